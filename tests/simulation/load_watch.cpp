#include "tests/simulation/load_watch.hpp"

#include "tests/simulation/slot_text.hpp"

namespace troupe::simulation {

void load_watch::clear() {
  told_.clear();
  reading_.clear();
}

void load_watch::located(std::uint32_t shard, const locate_request& x, const locate_reply& reply) {
  // Asked again, it is answered again for all of its keys.
  auto& slots = told_[{x.lease, shard}];
  slots.clear();
  for (const auto& found : reply.locations)
    if (found.code() == errc::ok)
      ++slots[found.where];
}

void load_watch::reads(const io_batch& batch) {
  for (const auto& item : batch.items)
    ++reading_[item.where];
}

void load_watch::has_read(const io_batch& batch) {
  for (const auto& item : batch.items)
    if (--reading_[item.where] == 0)
      reading_.erase(item.where);
}

std::string load_watch::releases(std::uint32_t shard, const ticket& name) {
  const auto lease = told_.extract({name, shard});
  if (lease.empty() || reading_.empty())
    return {};
  for (const auto& [where, times] : lease.mapped()) {
    const auto now = reading_.find(where);
    if (now == reading_.end())
      continue;
    int left = 0;
    for (const auto& [other, slots] : told_)
      if (const auto found = slots.find(where); found != slots.end())
        left += found->second;
    if (now->second > left)
      return "gives a lease back while it reads " + text_of(where) + " under it";
  }
  return {};
}

std::optional<std::pair<std::uint32_t, ticket>> load_watch::holder_of(const io_batch& batch) const {
  for (const auto& [name, slots] : told_)
    for (const auto& item : batch.items)
      if (slots.contains(item.where))
        return std::pair(name.second, name.first);
  return std::nullopt;
}

} // namespace troupe::simulation
