#include "actors/node/registry/request_recorder.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <tuple>

namespace troupe {

namespace {

constexpr auto unknown_depth = std::numeric_limits<std::uint64_t>::max();

/// The position of a key in a lookup: by its depth, if known; otherwise after all keys of known depth, in its shard's
/// order.
struct placed_key {
  std::uint64_t depth = unknown_depth;
  std::size_t position = 0;
  std::uint32_t shard = 0;
  std::uint64_t key = 0;

  friend bool operator<(const placed_key& a, const placed_key& b) {
    return std::tie(a.depth, a.position, a.shard) < std::tie(b.depth, b.position, b.shard);
  }
};

} // namespace

// 0 is reserved for "no key".
request_recorder::key_hash64 request_recorder::hash_of(const key_digest& key) noexcept {
  return std::max<key_hash64>(mix(key.hi, key.lo), 1);
}

void request_recorder::note_parent(key_hash64 key, const key_digest& parent) {
  const auto found = known_.find(key);
  if (found == known_.end() || found->second.has_parent)
    return;
  found->second.has_parent = true;
  found->second.parent = parent.is_null() ? 0 : hash_of(parent);
}

void request_recorder::looked_up(std::uint32_t shard, const ticket& lookup, std::uint32_t block_tokens, timestamp now,
                                 std::span<const key_digest> keys, std::span<const key_digest> parents) {
  if (keys.empty() || keys.size() > keys_max_)
    return;
  const std::lock_guard guard(mutex_);
  while (kept_ + keys.size() > keys_max_)
    drop_oldest();
  auto& added = parts_.emplace_back(part{lookup, shard, block_tokens, now, {}});
  added.keys.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto key = hash_of(keys[i]);
    added.keys.push_back(key);
    ++known_[key].uses;
    if (i < parents.size() && parents[i] != keys[i])
      note_parent(key, parents[i]);
  }
  kept_ += keys.size();
}

void request_recorder::saves(std::span<const key_digest> keys, std::span<const key_digest> parents) {
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < keys.size() && i < parents.size(); ++i)
    note_parent(hash_of(keys[i]), parents[i]);
}

void request_recorder::drop_oldest() {
  for (const auto key : parts_.front().keys)
    if (const auto found = known_.find(key); --found->second.uses == 0)
      known_.erase(found);
  kept_ -= parts_.front().keys.size();
  parts_.pop_front();
}

std::uint64_t request_recorder::depth_of(key_hash64 key, std::unordered_map<key_hash64, std::uint64_t>& known) const {
  // Follows parents up to a key whose depth is known, that has no parent, or whose parent is unknown. Parents come from
  // clients and may be cyclic.
  std::vector<key_hash64> way;
  auto depth = unknown_depth;
  for (auto at = key;;) {
    if (at == 0) {
      depth = 0;
      break;
    }
    const auto [found, fresh] = known.emplace(at, unknown_depth);
    if (!fresh) {
      depth = found->second;
      break;
    }
    way.push_back(at);
    const auto entry = known_.find(at);
    if (entry == known_.end() || !entry->second.has_parent)
      break;
    at = entry->second.parent;
  }
  for (; !way.empty(); way.pop_back())
    known[way.back()] = depth = depth == unknown_depth ? unknown_depth : depth + 1;
  return depth;
}

std::vector<request_recorder::request> request_recorder::requests() const {
  const std::lock_guard guard(mutex_);
  // Groups parts by lookup, in the order of each lookup's first part. A repeated lookup counts once.
  std::vector<std::vector<const part*>> lookups;
  std::unordered_map<ticket, std::size_t> places;
  for (const auto& x : parts_) {
    const auto [at, fresh] = places.emplace(x.lookup, lookups.size());
    if (fresh)
      lookups.emplace_back();
    auto& of = lookups[at->second];
    if (std::ranges::find(of, x.shard, &part::shard) == of.end())
      of.push_back(&x);
  }
  std::unordered_map<key_hash64, std::uint64_t> depths;
  std::unordered_map<key_hash64, std::uint64_t> numbers;
  std::vector<request> out;
  std::vector<placed_key> keys;
  for (const auto& lookup : lookups) {
    keys.clear();
    for (const auto* x : lookup)
      for (std::size_t i = 0; i < x->keys.size(); ++i)
        keys.push_back({lookup.size() == 1 ? unknown_depth : depth_of(x->keys[i], depths), i, x->shard, x->keys[i]});
    std::ranges::stable_sort(keys, std::less<>{});
    const auto since = lookup.front()->at - parts_.front().at;
    auto& added = out.emplace_back();
    added.timestamp_ms = static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count(), 0));
    added.tokens = keys.size() * lookup.front()->block_tokens;
    for (const auto& x : keys)
      added.keys.push_back(numbers.emplace(x.key, numbers.size() + 1).first->second);
  }
  return out;
}

std::string request_recorder::trace() const {
  std::string out;
  for (const auto& x : requests()) {
    out += "{\"timestamp\":" + std::to_string(x.timestamp_ms) + ",\"input_length\":" + std::to_string(x.tokens) +
           ",\"output_length\":1,\"hash_ids\":[";
    for (std::size_t i = 0; i < x.keys.size(); ++i)
      out.append(i == 0 ? "" : ",").append(std::to_string(x.keys[i]));
    out += "]}\n";
  }
  return out;
}

} // namespace troupe
