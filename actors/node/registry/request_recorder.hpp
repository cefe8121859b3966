#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

/// A recorder of the last lookups of a node, as a trace that `troupe whatif` and `troupe replay` read. Shards call it
/// for each lookup. It stores no keys, only which ones are equal, so that nothing of a prompt can be guessed from a
/// trace. May be called from any thread.
///
/// A lookup reaches each shard with its part of the keys. Parts are joined by their ticket. Shards do not know the
/// order within the prompt; it follows from the parents that saves name. With one shard the order is known.
class request_recorder {
public:
  /// Keeps the newest `keys_max` keys of lookups.
  explicit request_recorder(std::uint64_t keys_max) : keys_max_(keys_max) {}

  /// Records the part of a lookup that the shard received, in prefix order. `parents` are those that the shard knows:
  /// null for a key without a parent, and the key itself for a key that the shard does not know.
  void looked_up(std::uint32_t shard, const ticket& lookup, std::uint32_t block_tokens, timestamp now,
                 std::span<const key_digest> keys, std::span<const key_digest> parents);

  /// Records that a client saves these keys with these parents; null for a key without a parent.
  void saves(std::span<const key_digest> keys, std::span<const key_digest> parents);

  struct request {
    /// Since the first request.
    std::uint64_t timestamp_ms = 0;
    std::uint64_t tokens = 0;
    /// In prefix order; equal keys have equal numbers, from 1 on.
    std::vector<std::uint64_t> keys;

    friend bool operator==(const request&, const request&) = default;
  };
  /// The requests in order of arrival, each with all of its parts that are still kept.
  std::vector<request> requests() const;

  /// The requests as a trace, one line each.
  std::string trace() const;

private:
  using key_hash64 = std::uint64_t;

  struct part {
    ticket lookup;
    std::uint32_t shard = 0;
    std::uint32_t block_tokens = 0;
    timestamp at;
    std::vector<key_hash64> keys;
  };
  struct known_key {
    std::uint64_t uses = 0;
    bool has_parent = false;
    /// 0 means none.
    key_hash64 parent = 0;
  };

  static key_hash64 hash_of(const key_digest& key) noexcept;
  void note_parent(key_hash64 key, const key_digest& parent);
  void drop_oldest();
  std::uint64_t depth_of(key_hash64 key, std::unordered_map<key_hash64, std::uint64_t>& known) const;

  // `uses` of a key is how often it occurs in `parts_`; a key that does not occur is not in `known_`. `kept_` is the
  // sum.

  const std::uint64_t keys_max_;
  mutable std::mutex mutex_;
  std::deque<part> parts_;
  std::unordered_map<key_hash64, known_key> known_;
  std::uint64_t kept_ = 0;
};

} // namespace troupe
