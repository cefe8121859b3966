#include "actors/registry/key_space.hpp"

#include "actors/registry/recency_policy.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t group_keys = 64;
constexpr std::size_t prefetch_distance = 16;

} // namespace

key_space::key_space(namespace_spec spec, std::uint32_t shard, std::uint32_t shard_count, std::uint64_t seed)
    : spec_(std::move(spec)), id_(spec_.id()), shard_(shard), shard_count_(shard_count), table_(spec_.world_size, seed),
      policy_(std::make_unique<recency_policy>()), outbox_(id_, spec_.world_size, shard_count) {}

void key_space::append_leading_complete(std::span<const key_digest> keys, std::vector<entry_index>& found) const {
  std::array<entry_index, 512> group;
  // The first group is small: what is not there is mostly not there from the beginning.
  for (std::size_t begin = 0, size = group_keys; begin < keys.size(); begin += size, size = group.size()) {
    const auto part = keys.subspan(begin, std::min(size, keys.size() - begin));
    table_.find(part, group);
    std::size_t n = 0;
    while (n < part.size() && group[n] != no_entry && complete(group[n]))
      ++n;
    found.insert(found.end(), group.begin(), group.begin() + static_cast<std::ptrdiff_t>(n));
    if (n < part.size())
      return;
  }
}

bool key_space::lease(std::span<const entry_index> entries, std::vector<entry_index>& held, std::size_t most) {
  const auto before = held.size();
  for (const auto i : held)
    table_.entry(i).marked = true;
  bool fits = true;
  for (const auto i : entries) {
    auto& e = table_.entry(i);
    if (e.marked)
      continue;
    if (held.size() == most) {
      fits = false;
      break;
    }
    e.marked = true;
    ++e.leases;
    held.push_back(i);
  }
  for (const auto i : held)
    table_.entry(i).marked = false;
  if (!fits) {
    for (auto n = before; n < held.size(); ++n)
      --table_.entry(held[n]).leases;
    held.resize(before);
  }
  return fits;
}

void key_space::give_back(std::span<const entry_index> entries) {
  for (std::size_t n = 0; n < entries.size(); ++n) {
    if (n + prefetch_distance < entries.size())
      table_.prefetch_entry(entries[n + prefetch_distance]);
    const auto i = entries[n];
    auto& e = table_.entry(i);
    assert(e.in_use() && e.leases > 0);
    if (--e.leases > 0)
      continue;
    chance_ = true;
    if (e.withheld)
      release_withheld(i);
    if (e.live == 0)
      settle(i);
  }
}

entry_index key_space::find_or_create(const key_digest& key, entry_index hint) {
  const auto found = table_.refresh(hint, key);
  return found != no_entry ? found : table_.create(key);
}

void key_space::end_request(std::span<const entry_index> entries) noexcept {
  for (const auto i : entries)
    if (i != no_entry)
      table_.entry(i).marked = false;
}

void key_space::adopt_parent(entry_index i, const key_digest& parent, entry_index previous) {
  if (!table_.parent(i).is_null())
    return;
  if (previous != no_entry && table_.entry(previous).key == parent) {
    ++table_.entry(previous).children;
  } else {
    change_children(parent, 1);
  }
  table_.parent(i) = parent;
}

void key_space::change_children(const key_digest& parent, std::int64_t delta) {
  const auto target = shard_of(parent, shard_count_);
  if (target == shard_)
    add_children(parent, delta);
  else
    outbox_.link(target, {parent, delta});
}

bool key_space::add_children(const key_digest& key, std::int64_t delta) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (delta < -most || delta > most)
    return false;
  const auto i = find_or_create(key, no_entry);
  if (i == no_entry)
    return false;
  auto& e = table_.entry(i);
  const auto children = e.children + delta;
  const bool fits = children >= -most && children <= most;
  if (fits)
    e.children = static_cast<std::int32_t>(children);
  if (e.children <= 0)
    chance_ = true;
  settle(i);
  return fits;
}

void key_space::reserve(entry_index i, rank_number rank, std::uint32_t record) {
  auto& cell = table_.page(i, rank);
  assert(!cell.live() && !cell.reserved());
  cell = page_cell::reserved_by(record);
  ++table_.entry(i).reserved;
}

void key_space::unreserve(entry_index i, rank_number rank, slot_ref where) {
  auto& cell = table_.page(i, rank);
  assert(cell.reserved());
  cell = {};
  --table_.entry(i).reserved;
  if (where.generation != 0)
    outbox_.abort(rank, where);
  chance_ = true;
  settle(i);
}

bool key_space::publish(entry_index i, rank_number rank, slot_ref where) {
  auto& cell = table_.page(i, rank);
  auto& e = table_.entry(i);
  assert(cell.reserved() && where.generation != 0);
  cell = page_cell::live_at(where);
  --e.reserved;
  ++e.live;
  if (e.live == spec_.world_size)
    ++complete_keys_;
  outbox_.publish(rank, where);
  chance_ = true;
  return e.live == 1;
}

void key_space::unpublish(entry_index i, rank_number rank) {
  auto& e = table_.entry(i);
  assert(table_.page(i, rank).live() && e.live > 0);
  if (e.live == spec_.world_size)
    --complete_keys_;
  table_.page(i, rank) = {};
  if (--e.live == 0)
    policy_->removed(i);
}

void key_space::invalidate(entry_index i, rank_number rank) {
  const auto where = table_.page(i, rank).where();
  unpublish(i, rank);
  auto& e = table_.entry(i);
  if (e.leases == 0) {
    outbox_.release(rank, where);
  } else {
    e.withheld = true;
    withheld_[i].push_back({rank, where});
  }
  settle(i);
}

void key_space::release_withheld(entry_index i) {
  const auto found = withheld_.find(i);
  assert(found != withheld_.end());
  for (const auto& slot : found->second)
    outbox_.release(slot.rank, slot.where);
  withheld_.erase(found);
  table_.entry(i).withheld = false;
}

void key_space::settle(entry_index i) {
  auto& e = table_.entry(i);
  if (!e.ghost())
    return;
  if (const auto parent = std::exchange(table_.parent(i), {}); !parent.is_null())
    change_children(parent, -1);
  if (e.children == 0)
    table_.erase(i);
}

bool key_space::evictable(entry_index i) const noexcept {
  const auto& e = table_.entry(i);
  return e.children <= 0 && e.leases == 0 && e.reserved == 0;
}

std::uint32_t key_space::remove_key(entry_index i, rank_number wanted_rank) {
  std::uint32_t freed = 0;
  for (rank_number rank = 0; rank < spec_.world_size; ++rank) {
    const auto cell = table_.page(i, rank);
    if (!cell.live())
      continue;
    unpublish(i, rank);
    outbox_.release(rank, cell.where());
    if (rank == wanted_rank)
      ++freed;
  }
  ++evicted_keys_;
  settle(i);
  return freed;
}

void key_space::prefetch_for_removal(std::span<const entry_index> entries) const {
  for (const auto i : entries) {
    table_.prefetch_entry(i);
    table_.prefetch_details(i);
  }
  for (const auto i : entries) {
    table_.prefetch_index(table_.entry(i).key);
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_index(parent);
  }
  if (shard_count_ > 1)
    return; // most parents live in other shards
  for (const auto i : entries)
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_entry_of(parent);
}

evict_reply key_space::evict(rank_number rank, std::uint32_t wanted, std::uint32_t most_looks) {
  evict_reply reply;
  if (policy_->size() == 0)
    return reply;
  if (exhausted_ && !chance_)
    return reply;
  exhausted_ = false;
  reply.more = true;
  std::array<entry_index, group_keys> group;
  for (std::uint32_t looks = 0; reply.slots < wanted && looks < most_looks;) {
    const auto room = std::min<std::size_t>({group.size(), most_looks - looks, wanted - reply.slots});
    const auto n = policy_->candidates(std::span(group).first(room));
    if (n == 0) {
      reply.more = false;
      break;
    }
    prefetch_for_removal(std::span(group).first(n));
    for (std::size_t c = 0; c < n; ++c, ++looks) {
      if (evictable(group[c])) {
        reply.slots += remove_key(group[c], rank);
        looked_in_vain_ = 0;
        continue;
      }
      policy_->postponed(group[c]);
      if (looked_in_vain_ == 0)
        chance_ = false;
      if (++looked_in_vain_ < policy_->size())
        continue;
      // Every key was looked at. If one of them may have become evictable meanwhile, another round is due.
      looked_in_vain_ = 0;
      exhausted_ = !chance_;
      reply.more = chance_;
      return reply;
    }
  }
  if (policy_->size() == 0)
    reply.more = false;
  return reply;
}

std::uint64_t key_space::resident_bytes() const noexcept {
  return table_.resident_bytes() + policy_->resident_bytes() +
         withheld_.size() * (sizeof(entry_index) + sizeof(std::vector<withheld_slot>) + 4 * sizeof(void*));
}

} // namespace troupe
