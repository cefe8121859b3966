#include "tests/simulation/client_watch.hpp"

#include <algorithm>

namespace troupe::simulation {

namespace {

std::string text_of(const slot_ref& x) {
  return "slot " + std::to_string(x.slot) + " generation " + std::to_string(x.generation);
}

} // namespace

// -- loads ------------------------------------------------------------------------------------------------------------

void load_watch::clear() {
  ++epoch_;
  deadlines_.clear();
  told_.clear();
  reading_.clear();
}

std::string load_watch::locates(const locate_request& x, duration lease_max, timestamp now) const {
  const auto deadline = deadlines_.find(x.lease);
  if (deadline == deadlines_.end())
    return "locates pages for no task";
  if (x.lease_for < std::min<duration>(lease_max, deadline->second - now))
    return "leases pages for " + std::to_string(x.lease_for.count()) + " ns, and may read them for " +
           std::to_string((deadline->second - now).count());
  return {};
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

void load_watch::has_read(std::uint64_t epoch, const io_batch& batch) {
  if (epoch != epoch_)
    return;
  for (const auto& item : batch.items)
    if (--reading_[item.where] == 0)
      reading_.erase(item.where);
}

std::string load_watch::releases(std::uint32_t shard, const ticket& token) {
  const auto lease = told_.extract({token, shard});
  if (lease.empty() || reading_.empty())
    return {};
  for (const auto& [where, times] : lease.mapped()) {
    const auto now = reading_.find(where);
    if (now == reading_.end())
      continue;
    int left = 0;
    for (const auto& [name, slots] : told_)
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

// -- saves ------------------------------------------------------------------------------------------------------------

bool save_watch::is_answered(const ticket& token) const {
  const auto task = tasks_.find(token);
  return task != tasks_.end() && answered_.contains(task->second);
}

std::string save_watch::commits(const ticket& token) const {
  if (!tasks_.contains(token))
    return "commits pages for no task";
  // All of its pages have results by then: those that were fine were committed before, and no other one may be.
  if (is_answered(token))
    return "commits pages after it has said what became of them";
  return {};
}

// -- lookups ----------------------------------------------------------------------------------------------------------

void lookup_watch::begins(std::uint64_t id, const ticket& lease, std::vector<key_digest> path) {
  lookups_.emplace(lease, lookup{std::move(path), {}});
  names_.emplace(id, lease);
}

void lookup_watch::answered(std::uint32_t shard, const match_request& x, std::uint32_t matched) {
  const auto found = lookups_.find(x.lease);
  if (found == lookups_.end())
    return;
  const auto n = std::min<std::size_t>(matched, x.keys.size());
  found->second.parts[shard].leased.assign(x.keys.items.begin(), x.keys.items.begin() + static_cast<std::ptrdiff_t>(n));
}

void lookup_watch::releases(std::uint32_t shard, const release_request& x) {
  if (const auto found = lookups_.find(x.lease); found != lookups_.end())
    found->second.parts[shard].kept = x.keep;
}

std::string lookup_watch::ends(std::uint64_t id, std::uint32_t matched) {
  const auto name = names_.extract(id);
  if (name.empty())
    return {};
  const auto ended = lookups_.extract(name.mapped());
  const auto& path = ended.mapped().path;
  const auto end = path.begin() + std::min<std::ptrdiff_t>(matched, std::ssize(path));
  for (const auto& [shard, x] : ended.mapped().parts) {
    const auto within = std::count_if(x.leased.begin(), x.leased.end(),
                                      [&](const key_digest& key) { return std::find(path.begin(), end, key) != end; });
    const auto right = static_cast<std::uint32_t>(within);
    const auto kept = std::min(x.kept.value_or(~0U), static_cast<std::uint32_t>(x.leased.size()));
    if (kept != right)
      return "a lookup that found " + std::to_string(matched) + " keys keeps " + std::to_string(kept) + " of shard " +
             std::to_string(shard) + " leased instead of " + std::to_string(right);
  }
  return {};
}

} // namespace troupe::simulation
