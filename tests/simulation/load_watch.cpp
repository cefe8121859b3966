#include "tests/simulation/load_watch.hpp"

#include "tests/simulation/slot_text.hpp"

namespace troupe::simulation {

void load_watch::clear() {
  notified_.clear();
  reading_.clear();
  pinned_.clear();
}

void load_watch::located(std::uint32_t shard, const locate_request& x, const locate_reply& reply) {
  // Asked again, it is answered again for all of its keys.
  auto& slots = notified_[{x.lease, shard}];
  slots.clear();
  for (const auto& found : reply.locations)
    if (found.code() == errc::ok)
      ++slots[found.where];
}

void load_watch::fetches(const frame_request& wanted) {
  for (const auto& page : wanted.pages)
    ++reading_[page.where];
}

void load_watch::fetched(const frame_request& wanted, pin_number pin) {
  if (pin == 0)
    ends(wanted);
  else
    pinned_.emplace(pin, wanted);
}

void load_watch::unpins(pin_number pin) {
  if (const auto node = pinned_.extract(pin); !node.empty())
    ends(node.mapped());
}

void load_watch::ends(const frame_request& wanted) {
  for (const auto& page : wanted.pages)
    if (--reading_[page.where] == 0)
      reading_.erase(page.where);
}

std::string load_watch::releases(std::uint32_t shard, const ticket& name) {
  const auto lease = notified_.extract({name, shard});
  if (lease.empty() || reading_.empty())
    return {};
  for (const auto& [where, times] : lease.mapped()) {
    const auto now = reading_.find(where);
    if (now == reading_.end())
      continue;
    int left = 0;
    for (const auto& [other, slots] : notified_)
      if (const auto found = slots.find(where); found != slots.end())
        left += found->second;
    if (now->second > left)
      return "gives a lease back while it reads " + text_of(where) + " under it";
  }
  return {};
}

std::optional<std::pair<std::uint32_t, ticket>> load_watch::holder_of(const frame_request& wanted) const {
  for (const auto& [name, slots] : notified_)
    for (const auto& page : wanted.pages)
      if (slots.contains(page.where))
        return std::pair(name.second, name.first);
  return std::nullopt;
}

} // namespace troupe::simulation
