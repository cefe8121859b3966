#include "offline/played_cache.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe::offline {

namespace {

constexpr auto slot_patience = std::chrono::seconds(1);

/// Requests run one at a time, so none of them can be refused.
[[noreturn]] void refused() {
  throw std::logic_error("the rules of a node have refused what no client would ask");
}

/// The keys at these positions.
std::vector<key_digest> at(std::span<const key_digest> keys, const std::vector<std::size_t>& positions) {
  std::vector<key_digest> out;
  out.reserve(positions.size());
  for (const auto i : positions)
    out.push_back(keys[i]);
  return out;
}

/// The identity of a group's namespace.
namespace_spec spec_of(const played_cache::options& how, std::size_t group) {
  namespace_spec spec;
  spec.name = "played";
  spec.world_size = how.ranks;
  if (how.group_capacities.empty())
    return spec;
  spec.name += std::to_string(group);
  spec.layout = "group " + std::to_string(group);
  spec.group_of = how.groups_related ? "all" : "";
  return spec;
}

} // namespace

played_cache::played_cache(const options& how) {
  constexpr auto no_limit = std::numeric_limits<std::uint32_t>::max();
  for (std::uint32_t i = 0; i < how.shards; ++i) {
    registry_options rules;
    rules.shard = i;
    rules.shard_count = how.shards;
    rules.hash_seed = how.seed;
    rules.eviction = how.policy;
    // Recorded prompts may be longer than clients of a node may send at once.
    rules.max_batch = rules.max_lease_keys = rules.max_reserved_pages = no_limit;
    shards_.push_back(std::make_unique<registry_state>(rules));
  }
  const auto capacities = how.group_capacities.empty() ? std::vector{how.capacity} : how.group_capacities;
  for (std::size_t group = 0; group < capacities.size(); ++group) {
    const auto spec = spec_of(how, group);
    const auto slots = static_cast<std::uint32_t>(capacities[group]);
    auto& part = groups_.emplace_back();
    part.ns = spec.id();
    auto allocator = options_for_slots(slots, how.low_watermark, how.high_watermark);
    allocator.max_parked = no_limit; // a prompt may have keys in every shard
    for (rank_number rank = 0; rank < how.ranks; ++rank)
      part.ranks.push_back({allocator_state(allocator), eviction_shares(how.shards)});
    for (auto& shard : shards_) {
      if (!shard->add_namespace(spec))
        refused();
      for (rank_number rank = 0; rank < how.ranks; ++rank)
        if (!shard->add_rank(part.ns, rank, slots))
          refused();
    }
  }
}

played_cache::~played_cache() = default;

std::size_t played_cache::play(std::span<const key_digest> keys) {
  const auto lookup = begin();
  const auto matched = match(keys, lookup);
  load(keys, matched);
  save(keys, matched, keys.size());
  end(lookup);
  return matched;
}

ticket played_cache::begin() {
  now_ += std::chrono::milliseconds(100);
  return next_ticket();
}

void played_cache::end(ticket lease, std::span<const key_digest> kept_there, std::uint32_t group) {
  const auto split = parts(kept_there, 0, kept_there.size());
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    release_request request{groups_[group].ns, lease, 0};
    request.kept_there = at(kept_there, split[s]);
    if (!shards_[s]->release(request, now_))
      refused();
  }
}

void played_cache::learn_reuse(std::uint32_t shard, const reuse_counts& counts) {
  if (!shards_[shard]->learn_reuse({ns(), {counts.numbers()}}))
    refused();
}

std::uint32_t played_cache::owner_of(const key_digest& key) const {
  return shard_of(key, static_cast<std::uint32_t>(shards_.size()));
}

/// For each shard, the positions of its keys in the half-open range of `keys`.
std::vector<std::vector<std::size_t>> played_cache::parts(std::span<const key_digest> keys, std::size_t first,
                                                          std::size_t last) const {
  std::vector<std::vector<std::size_t>> out(shards_.size());
  for (auto i = first; i < last; ++i)
    out[owner_of(keys[i])].push_back(i);
  return out;
}

std::size_t played_cache::match(std::span<const key_digest> keys, ticket lease, bool by_peer) {
  const auto split = parts(keys, 0, keys.size());
  auto matched = keys.size();
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    match_request request{ns(), lease, std::chrono::seconds(60), {}};
    request.by_peer = by_peer;
    request.keys = at(keys, split[s]);
    const auto found = shards_[s]->match(request, now_).value().matched;
    if (found < split[s].size())
      matched = std::min(matched, split[s][found]);
  }
  for (std::size_t s = 0; s < split.size(); ++s) {
    const auto keep = std::ranges::lower_bound(split[s], matched) - split[s].begin();
    if (!shards_[s]->release({ns(), lease, static_cast<std::uint32_t>(keep)}, now_))
      refused();
  }
  return matched;
}

std::vector<std::uint8_t> played_cache::find(std::span<const key_digest> keys, ticket lease, std::uint32_t group) {
  const auto split = parts(keys, 0, keys.size());
  std::vector<std::uint8_t> marks(keys.size());
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    match_request request{groups_[group].ns, lease, std::chrono::seconds(60), {}};
    request.each = true;
    request.keys = at(keys, split[s]);
    const auto found = shards_[s]->match(request, now_).value().found;
    for (std::size_t n = 0; n < found.size(); ++n)
      marks[split[s][n]] = found.items[n];
  }
  return marks;
}

void played_cache::use(std::span<const key_digest> keys, std::size_t first, std::size_t last, ticket lease,
                       std::uint32_t group) {
  const auto split = parts(keys, first, last);
  for (std::size_t s = 0; s < split.size(); ++s) {
    release_request request{groups_[group].ns, lease, 0};
    request.retained = at(keys, split[s]);
    if (!shards_[s]->release(request, now_))
      refused();
  }
  load(keys, first, last, group);
}

void played_cache::load(std::span<const key_digest> keys, std::size_t first, std::size_t last, std::uint32_t group) {
  const auto split = parts(keys, first, last);
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    locate_request request{groups_[group].ns, 0, next_ticket(), std::chrono::seconds(60), {}};
    request.keys = at(keys, split[s]);
    for (; request.rank < groups_[group].ranks.size(); ++request.rank)
      if (!shards_[s]->locate(request, now_))
        refused();
    if (!shards_[s]->release({groups_[group].ns, request.lease, 0}, now_))
      refused();
  }
}

std::vector<key_digest> played_cache::save(std::span<const key_digest> keys, std::size_t first, std::size_t last,
                                           const saving& how) {
  const auto& [ns, ranks] = groups_[how.group];
  const auto split = parts(keys, first, last);
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    reserve_request request{ns, 0, next_ticket(), std::chrono::seconds(60), {}, {}};
    for (const auto i : split[s]) {
      request.keys.items.push_back(keys[i]);
      request.parents.items.push_back(how.chained && i > 0 ? keys[i - 1] : key_digest{});
    }
    // All ranks send their requests before any of them is answered.
    for (; request.rank < ranks.size(); ++request.rank)
      begin_write(s, how.group, request);
    settle();
  }
  // Leased keys and keys that are being written cannot be evicted. A request that waits for their slots gets the free
  // ones at its deadline, perhaps none.
  for (; answered_ < writes_.size(); settle()) {
    now_ += slot_patience;
    for (auto& rank : groups_[how.group].ranks)
      rank.allocator.tick(now_);
  }
  std::vector<key_digest> made;
  for (const auto& write : writes_) {
    finish_request finish{ns, write.request.rank, write.request.ticket, {}};
    finish.origin = how.origin;
    for (std::size_t i = 0; i < write.request.keys.size(); ++i)
      if (write.results[i].code() == errc::ok) {
        finish.pages.items.push_back({write.request.keys[i], write.results[i].where});
        if (finish.rank == 0)
          made.push_back(write.request.keys[i]);
      }
    // Without any slot, the reservation has ended with its answer.
    if (!finish.pages.empty() && !shards_[write.shard]->commit(finish, now_))
      refused();
    settle();
  }
  writes_.clear();
  answered_ = 0;
  return made;
}

void played_cache::begin_write(std::size_t shard, std::uint32_t group, reserve_request request) {
  const auto plan = shards_[shard]->begin_reserve(request, now_).value();
  if (plan.what != reserve_plan::kind::needs_slots)
    return;
  auto& allocator = groups_[group].ranks[request.rank].allocator;
  writes_.push_back({shard, plan.plan, std::move(request), {}});
  const auto rank = writes_.back().request.rank;
  allocator.take(writes_.size() - 1, plan.slots_needed, now_ + slot_patience, now_);
  collect(group, rank);
}

std::uint32_t played_cache::group_of(const namespace_id& ns) const {
  return static_cast<std::uint32_t>(std::ranges::find(groups_, ns, &group_part::ns) - groups_.begin());
}

/// Handles the allocator's answer to a write. The only place where results arrive: one for each key, whatever was
/// granted.
void played_cache::granted(const take_answer& answer) {
  auto& write = writes_[answer.request];
  auto reply = shards_[write.shard]->finish_reserve(write.plan, answer.reply.slots.items, now_);
  if (!reply || reply->results.size() != write.request.keys.size())
    refused();
  write.results = std::move(reply->results.items);
  ++answered_;
}

/// Delivers a shard's messages to the others and to the allocators; returns false if there are none.
bool played_cache::deliver(registry_state& from) {
  const auto out = from.take_outbox();
  for (const auto& x : out.children)
    if (!shards_[x.shard]->count_children(x.request, now_))
      refused();
  for (const auto& x : out.slots) {
    const auto group = group_of(x.ns);
    auto& rank = groups_[group].ranks[x.rank];
    rank.allocator.publish(x.publish.slots.items);
    rank.allocator.abort(x.abort.slots.items);
    rank.allocator.abort(x.unused.slots.items);
    rank.allocator.release(x.release.slots.items);
    rank.shares.released(x.release.progress);
    collect(group, x.rank);
  }
  return !out.empty();
}

/// Collects an allocator's messages. Eviction requests go to the shards later, with what it knows then.
void played_cache::collect(std::uint32_t group, rank_number rank) {
  auto& [allocator, shares] = groups_[group].ranks[rank];
  for (auto out = allocator.take_outbox(); !out.empty(); out = allocator.take_outbox()) {
    for (const auto& x : out.answers)
      granted(x);
    allocator.fenced(out.fence);
    if (out.evict == 0)
      continue;
    auto& asked = evictions_.emplace_back();
    asked.group = group;
    asked.rank = rank;
    const auto divided = shares.divide(out.evict);
    for (std::size_t s = 0; s < divided.size(); ++s)
      asked.requests.push_back({groups_[group].ns, rank, divided[s], shares.forced(), shares.seen(s)});
  }
}

void played_cache::settle() {
  for (bool more = true; more;) {
    more = false;
    for (auto& shard : shards_)
      more = deliver(*shard) || more;
    for (std::uint32_t group = 0; group < groups_.size(); ++group)
      for (rank_number rank = 0; rank < groups_[group].ranks.size(); ++rank)
        collect(group, rank);
    more = more || !evictions_.empty();
    for (; !evictions_.empty(); evictions_.pop_front())
      evict(evictions_.front());
  }
}

void played_cache::evict(const pending_eviction& what) {
  auto& [allocator, shares] = groups_[what.group].ranks[what.rank];
  std::uint64_t freed = 0;
  bool more = false;
  for (std::size_t s = 0; s < what.requests.size(); ++s) {
    if (what.requests[s].wanted == 0)
      continue;
    const auto reply = shards_[s]->evict(what.requests[s], now_).value();
    deliver(*shards_[s]);
    shares.answered(s, reply);
    freed += reply.slots;
    more = more || reply.more;
  }
  allocator.eviction_done(freed, more || shares.hopeful());
  collect(what.group, what.rank);
}

std::uint64_t played_cache::evicted_keys() const {
  std::uint64_t n = 0;
  for (const auto& shard : shards_)
    n += shard->stats().evicted_keys;
  return n;
}

} // namespace troupe::offline
