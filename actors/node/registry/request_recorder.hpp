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

/// The last lookups of a node, as a trace that `troupe whatif` and `troupe replay` read. Shards tell it what passes
/// them; it keeps no key, but only which are the same, so that nothing of a prompt can be guessed from a trace. Any
/// thread.
///
/// A lookup reaches each shard with its part of the keys. Parts are put together by their ticket; the order within the
/// prompt, which shards do not know, follows from what saves say of parents. Where there is one shard, it is known.
class request_recorder {
public:
  /// So many keys of lookups are kept, the newest ones.
  explicit request_recorder(std::uint64_t keys_max) : keys_max_(keys_max) {}

  /// The part of a lookup that the shard got, in prefix order. `parents` are those that the shard knows, null for who
  /// has none; where it does not know the key it is left out, by naming the key itself.
  void looked_up(std::uint32_t shard, const ticket& lookup, std::uint32_t block_tokens, timestamp now,
                 std::span<const key_digest> keys, std::span<const key_digest> parents);

  /// Somebody saves these keys, whose parents are those, null for who has none.
  void saves(std::span<const key_digest> keys, std::span<const key_digest> parents);

  struct request {
    /// Since the first one.
    std::uint64_t timestamp_ms = 0;
    std::uint64_t tokens = 0;
    /// In prefix order; the same number for the same key, from 1 on.
    std::vector<std::uint64_t> keys;

    friend bool operator==(const request&, const request&) = default;
  };
  /// In the order in which they came, each with all of its parts that are kept.
  std::vector<request> requests() const;

  /// The same as a trace, a line each.
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
    /// 0 is none.
    key_hash64 parent = 0;
  };

  static key_hash64 hash_of(const key_digest& key) noexcept;
  void note_parent(key_hash64 key, const key_digest& parent);
  void drop_oldest();
  std::uint64_t depth_of(key_hash64 key, std::unordered_map<key_hash64, std::uint64_t>& known) const;

  // `uses` of a key is how often it stands in `parts_`, and a key that stands nowhere is not known. `kept_` is the sum.

  const std::uint64_t keys_max_;
  mutable std::mutex mutex_;
  std::deque<part> parts_;
  std::unordered_map<key_hash64, known_key> known_;
  std::uint64_t kept_ = 0;
};

} // namespace troupe
