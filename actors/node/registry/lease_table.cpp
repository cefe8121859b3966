#include "actors/node/registry/lease_table.hpp"

#include <cassert>
#include <utility>

namespace troupe {

namespace {

/// An ended lease keeps the capacity for this many entries; a larger vector is freed.
constexpr std::size_t kept_capacity = 1024;

} // namespace

std::optional<lease_number> lease_table::find(const ticket& name) const {
  const auto found = by_ticket_.find(name);
  if (found == by_ticket_.end())
    return std::nullopt;
  return found->second;
}

lease_number lease_table::open(const ticket& name, std::uint32_t ns, timestamp deadline) {
  assert(!find(name));
  auto number = static_cast<lease_number>(leases_.size());
  if (free_.empty()) {
    leases_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  auto& l = leases_[number];
  l.name = name;
  l.ns = ns;
  l.doomed = l.counts = l.by_reader = l.notified = false;
  l.uses = l.last_first = 0;
  l.last_new.clear();
  by_ticket_.emplace(name, number);
  owners_.add(name.owner, number);
  if (ns >= in_namespace_.size())
    in_namespace_.resize(std::size_t{ns} + 1, 0);
  ++in_namespace_[ns];
  set_deadline(number, deadline);
  return number;
}

void lease_table::close(lease_number number) {
  auto& l = leases_[number];
  assert(l.entries.empty());
  if (l.entries.capacity() > kept_capacity)
    std::vector<entry_index>{}.swap(l.entries);
  if (l.last_new.capacity() > 0)
    std::vector<std::uint32_t>{}.swap(l.last_new);
  by_ticket_.erase(l.name);
  owners_.remove(l.name.owner, number);
  deadlines_.erase(number);
  --in_namespace_[l.ns];
  if (l.counts)
    remember(l.name);
  l.name = {};
  free_.push_back(number);
}

void lease_table::remember(const ticket& name) {
  if (!ended_.insert(name).second)
    return;
  if (ended_order_.size() < remembered_names) {
    ended_order_.push_back(name);
    return;
  }
  ended_.erase(std::exchange(ended_order_[oldest_ended_], name));
  oldest_ended_ = (oldest_ended_ + 1) % remembered_names;
}

void lease_table::set_deadline(lease_number number, timestamp deadline) {
  leases_[number].deadline = deadline;
  deadlines_.set(number, deadline);
}

void lease_table::doom(owner_id owner) {
  for (auto number = owners_.first(owner); number != owner_index::none; number = owners_.next(number)) {
    leases_[number].doomed = true;
    set_deadline(number, timestamp::min());
  }
}

void lease_table::doom_namespace(std::uint32_t ns) {
  for (const auto& [name, number] : by_ticket_)
    if (leases_[number].ns == ns) {
      leases_[number].doomed = true;
      set_deadline(number, timestamp::min());
    }
}

std::uint64_t lease_table::resident_bytes() const noexcept {
  std::uint64_t bytes = leases_.capacity() * sizeof(lease) + free_.capacity() * sizeof(lease_number) +
                        by_ticket_.size() * (sizeof(std::pair<ticket, lease_number>) + 2 * sizeof(void*)) +
                        by_ticket_.bucket_count() * sizeof(void*);
  for (const auto& l : leases_)
    bytes += l.entries.capacity() * sizeof(entry_index) + l.last_new.capacity() * sizeof(std::uint32_t);
  bytes += ended_order_.capacity() * sizeof(ticket) + ended_.size() * (sizeof(ticket) + 2 * sizeof(void*));
  return bytes + owners_.resident_bytes() + deadlines_.resident_bytes();
}

} // namespace troupe
