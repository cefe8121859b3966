#pragma once

#include "actors/node/tables/chunked_array.hpp"
#include "actors/node/tables/key_index.hpp"
#include "base/digest.hpp"
#include "events/feed.hpp"

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace troupe {

/// Which keys of one namespace in one shard engines have described, and what is to be published about them. One byte a
/// key; the descriptions themselves are kept by the publisher.
class described_keys {
public:
  explicit described_keys(namespace_id ns) : ns_(ns) {}

  bool is_described(entry_index i) const noexcept { return i < marks_.size() && (marks_[i] & mark_described) != 0; }
  bool was_in_memory(entry_index i) const noexcept { return (marks_[i] & mark_in_memory) != 0; }

  void prefetch(entry_index i) const noexcept {
    if (i < marks_.size())
      marks_.prefetch(i);
  }

  /// The key, which is complete, is described from now on.
  void describe(entry_index i, bool in_memory) {
    marks_.grow_to(std::uint64_t{i} + 1);
    marks_[i] = static_cast<std::uint8_t>(mark_described | (in_memory ? mark_in_memory : 0U));
  }

  /// The key is not complete any more. Whether it was described.
  bool lose(entry_index i, const key_digest& key) {
    if (!is_described(i))
      return false;
    marks_[i] = 0;
    // An eviction removes many at once.
    if (lost_.empty())
      lost_.reserve(lost_at_once);
    lost_.push_back(key);
    return true;
  }

  void move(entry_index i, const key_digest& key, bool in_memory) {
    describe(i, in_memory);
    flush_lost();
    if (changes_.empty() || !std::holds_alternative<events::keys_moved>(changes_.back().what))
      changes_.push_back({ns_, events::keys_moved{}});
    auto& to = std::get<events::keys_moved>(changes_.back().what);
    to.keys.push_back(key);
    to.in_memory.push_back(in_memory ? 1 : 0);
  }

  /// Adds another change behind those so far.
  void add(decltype(events::change::what) what) {
    flush_lost();
    changes_.push_back({ns_, std::move(what)});
  }

  bool has_changes() const noexcept { return !lost_.empty() || !changes_.empty(); }
  void drain_into(std::vector<events::change>& out) {
    flush_lost();
    std::move(changes_.begin(), changes_.end(), std::back_inserter(out));
    changes_.clear();
  }

  std::uint64_t resident_bytes() const noexcept { return marks_.resident_bytes(); }

private:
  static constexpr std::uint8_t mark_described = 1;
  static constexpr std::uint8_t mark_in_memory = 2;
  static constexpr std::size_t lost_at_once = 256;

  void flush_lost() {
    if (!lost_.empty())
      changes_.push_back({ns_, events::keys_removed{std::exchange(lost_, {})}});
  }

  namespace_id ns_;
  chunked_array<std::uint8_t> marks_;
  /// Keys that were lost after the last of `changes_`.
  std::vector<key_digest> lost_;
  std::vector<events::change> changes_;
};

} // namespace troupe
