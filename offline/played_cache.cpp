#include "offline/played_cache.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe::offline {

namespace {

constexpr auto slot_patience = std::chrono::seconds(1);

/// One request at a time, so nothing that is asked for here can be refused.
[[noreturn]] void refused() {
  throw std::logic_error("the rules of a node have refused what no client would ask");
}

} // namespace

played_cache::played_cache(const options& how)
    : allocator_(options_for_slots(static_cast<std::uint32_t>(how.capacity), how.low_watermark, how.high_watermark)),
      shares_(how.shards) {
  namespace_spec spec;
  spec.name = "played";
  spec.world_size = 1;
  space_ = spec.id();
  for (std::uint32_t i = 0; i < how.shards; ++i) {
    registry_options rules;
    rules.shard = i;
    rules.shard_count = how.shards;
    rules.hash_seed = how.seed;
    rules.eviction = how.policy;
    // Recorded prompts may be longer than what clients of a node send at once.
    rules.max_batch = rules.max_lease_keys = rules.max_reserved_pages = std::numeric_limits<std::uint32_t>::max();
    auto& shard = shards_.emplace_back(std::make_unique<registry_state>(rules));
    if (!shard->add_namespace(spec) || !shard->add_rank(space_, 0, static_cast<std::uint32_t>(how.capacity)))
      refused();
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

void played_cache::end(ticket lease, std::span<const key_digest> kept_there) {
  const auto split = parts(kept_there, 0, kept_there.size());
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    release_request request{space_, lease, 0};
    for (const auto i : split[s])
      request.kept_there.items.push_back(kept_there[i]);
    if (!shards_[s]->release(request, now_))
      refused();
  }
}

void played_cache::learn_reuse(std::uint32_t shard, const reuse_counts& counts) {
  if (!shards_[shard]->learn_reuse({space_, {counts.numbers()}}))
    refused();
}

std::uint32_t played_cache::owner_of(const key_digest& key) const {
  return shard_of(key, static_cast<std::uint32_t>(shards_.size()));
}

/// For each shard the places of its keys among `keys` from the first to before the last.
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
    match_request request{space_, lease, std::chrono::seconds(60), {}};
    request.by_peer = by_peer;
    for (const auto i : split[s])
      request.keys.items.push_back(keys[i]);
    const auto found = shards_[s]->match(request, now_).value().matched;
    if (found < split[s].size())
      matched = std::min(matched, split[s][found]);
  }
  for (std::size_t s = 0; s < split.size(); ++s) {
    const auto keep = std::ranges::lower_bound(split[s], matched) - split[s].begin();
    if (!shards_[s]->release({space_, lease, static_cast<std::uint32_t>(keep)}, now_))
      refused();
  }
  return matched;
}

void played_cache::load(std::span<const key_digest> keys, std::size_t matched) {
  const auto split = parts(keys, 0, matched);
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    locate_request request{space_, 0, next_ticket(), std::chrono::seconds(60), {}};
    for (const auto i : split[s])
      request.keys.items.push_back(keys[i]);
    if (!shards_[s]->locate(request, now_) || !shards_[s]->release({space_, request.lease, 0}, now_))
      refused();
  }
}

std::vector<key_digest> played_cache::save(std::span<const key_digest> keys, std::size_t first, std::size_t last,
                                           page_origin origin) {
  const auto split = parts(keys, first, last);
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (split[s].empty())
      continue;
    reserve_request request{space_, 0, next_ticket(), std::chrono::seconds(60), {}, {}};
    for (const auto i : split[s]) {
      request.keys.items.push_back(keys[i]);
      request.parents.items.push_back(i > 0 ? keys[i - 1] : key_digest{});
    }
    const auto plan = shards_[s]->begin_reserve(request, now_).value();
    if (plan.what == reserve_plan::kind::needs_slots) {
      writes_.push_back({s, plan.plan, std::move(request), {}});
      allocator_.take(writes_.size() - 1, plan.slots_needed, now_ + slot_patience, now_);
    }
    settle();
  }
  // Leased keys and keys that are being written cannot be evicted. A request that waits for their slots gets as many as
  // there are when its time is over, which may be none.
  for (; answered_ < writes_.size(); settle()) {
    now_ += slot_patience;
    allocator_.tick(now_);
  }
  std::vector<key_digest> made;
  for (const auto& write : writes_) {
    finish_request finish{space_, 0, write.request.ticket, {}};
    finish.origin = origin;
    for (std::size_t i = 0; i < write.request.keys.size(); ++i)
      if (write.results[i].code() == errc::ok) {
        finish.pages.items.push_back({write.request.keys[i], write.results[i].where});
        made.push_back(write.request.keys[i]);
      }
    // Without a single slot, the reservation has ended with its answer.
    if (!finish.pages.empty() && !shards_[write.shard]->commit(finish, now_))
      refused();
    settle();
  }
  writes_.clear();
  answered_ = 0;
  return made;
}

/// The allocator's answer to a write. The one place where results come in: one for each key, whatever was granted.
void played_cache::granted(const take_answer& answer) {
  auto& write = writes_[answer.request];
  auto reply = shards_[write.shard]->finish_reserve(write.plan, answer.reply.slots.items, now_);
  if (!reply || reply->results.size() != write.request.keys.size())
    refused();
  write.results = std::move(reply->results.items);
  ++answered_;
}

/// Delivers what a shard has for the others and for the allocator; false if that is nothing.
bool played_cache::deliver(registry_state& from) {
  const auto out = from.take_outbox();
  for (const auto& x : out.children)
    if (!shards_[x.shard]->count_children(x.request, now_))
      refused();
  for (const auto& x : out.slots) {
    allocator_.publish(x.publish.slots.items);
    allocator_.abort(x.abort.slots.items);
    allocator_.abort(x.unused.slots.items);
    allocator_.release(x.release.slots.items);
  }
  return !out.empty();
}

void played_cache::settle() {
  for (bool more = true; more;) {
    more = false;
    for (auto& shard : shards_)
      more = deliver(*shard) || more;
    const auto out = allocator_.take_outbox();
    more = more || !out.empty();
    for (const auto& x : out.answers)
      granted(x);
    allocator_.fenced(out.fence);
    if (out.evict > 0)
      evict(out.evict);
  }
}

void played_cache::evict(std::uint32_t wanted) {
  const auto shares = shares_.divide(wanted);
  std::uint64_t freed = 0;
  bool more = false;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (shares[s] == 0)
      continue;
    const auto reply = shards_[s]->evict({space_, 0, shares[s], shares_.forced()}, now_).value();
    deliver(*shards_[s]);
    shares_.answered(s, reply.slots, reply.pages);
    freed += reply.slots;
    more = more || reply.more;
  }
  allocator_.eviction_done(freed, more || shares_.hopeful());
}

} // namespace troupe::offline
