#include "actors/node/registry/hold_counts.hpp"

#include <algorithm>

namespace troupe {

std::uint64_t hold_counts::add(owner_id who, std::uint32_t ns, std::span<const entry_index> entries) {
  auto& held = holders_[{who, ns}].entries;
  for (const auto i : entries)
    ++held[i].leases;
  return held.size();
}

void hold_counts::remove(owner_id who, std::uint32_t ns, std::span<const entry_index> entries) {
  const auto found = holders_.find({who, ns});
  if (found == holders_.end())
    return;
  auto& held = found->second.entries;
  for (const auto i : entries)
    if (const auto at = held.find(i);
        at != held.end() && at->second.leases > 0 && --at->second.leases == 0 && at->second.until == 0)
      held.erase(at);
  if (held.empty())
    holders_.erase(found);
}

std::uint64_t hold_counts::readers_with(std::uint32_t ns, std::span<const entry_index> entries, coarse_time now) {
  const auto found = holders_.find({readers, ns});
  if (found == holders_.end())
    return entries.size();
  auto& [held, protections] = found->second;
  while (!protections.empty() && protections.front().first <= now) {
    const auto [until, i] = protections.front();
    protections.pop_front();
    // An entry that was protected again has a later record.
    const auto at = held.find(i);
    if (at == held.end() || at->second.until != until)
      continue;
    at->second.until = 0;
    if (at->second.leases == 0)
      held.erase(at);
  }
  const auto fresh = std::ranges::count_if(entries, [&held = held](entry_index i) { return !held.contains(i); });
  return held.size() + static_cast<std::uint64_t>(fresh);
}

void hold_counts::protect(std::uint32_t ns, std::span<const entry_index> entries, coarse_time until) {
  auto& [held, protections] = holders_[{readers, ns}];
  for (const auto i : entries) {
    auto& h = held[i];
    if (h.until >= until)
      continue;
    h.until = until;
    protections.emplace_back(until, i);
  }
}

std::uint64_t hold_counts::count(owner_id who, std::uint32_t ns) const {
  const auto found = holders_.find({who, ns});
  return found == holders_.end() ? 0 : found->second.entries.size();
}

void hold_counts::forget_namespace(std::uint32_t ns) {
  std::erase_if(holders_, [ns](const auto& x) { return x.first.ns == ns; });
}

std::uint64_t hold_counts::resident_bytes() const noexcept {
  std::uint64_t bytes = holders_.bucket_count() * sizeof(void*);
  for (const auto& [who, x] : holders_) {
    bytes += sizeof(std::pair<name, holder>) + 2 * sizeof(void*);
    bytes += x.entries.bucket_count() * sizeof(void*);
    bytes += x.entries.size() * (sizeof(std::pair<entry_index, hold>) + sizeof(void*));
    bytes += x.protections.size() * sizeof(std::pair<coarse_time, entry_index>);
  }
  return bytes;
}

} // namespace troupe
