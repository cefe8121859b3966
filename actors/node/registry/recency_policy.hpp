#pragma once

#include "actors/node/registry/chunked_array.hpp"
#include "actors/node/registry/eviction_policy.hpp"

#include <memory>

namespace troupe {

/// Least recently used first; of the keys of one batch the last first, since those after it in the prefix are of no
/// use without it. A doubly linked list over an array that is parallel to the entries: 8 bytes an entry. What was kept
/// goes where what was used goes: behind all others.
class recency_policy final : public eviction_policy {
public:
  recency_policy();

  void inserted(std::span<const entry_index> entries) override;
  void touched(std::span<const entry_index> entries) override;
  void left(entry_index entry, leave_reason why) override;
  std::size_t propose(std::span<entry_index> out) override;
  void kept(entry_index entry) override;
  std::uint64_t size() const noexcept override { return size_; }
  std::uint64_t resident_bytes() const noexcept override { return nodes_.resident_bytes(); }
  void for_each(const std::function<void(entry_index)>& f) const override;

private:
  /// Positions in `nodes_`; position 0 is the end of both sides, the entry i is at i + 1. From 0 by `older` over all to
  /// 0 again, and by `younger` the same way back: so nothing is first or last, and no link is ever missing.
  struct node {
    std::uint32_t younger;
    std::uint32_t older;
  };

  static std::uint32_t position(entry_index entry) noexcept { return entry + 1; }

  // Of all between two positions, both included; the order in between stays.
  void unlink(std::uint32_t first, std::uint32_t last) noexcept;
  void link_youngest(std::uint32_t first, std::uint32_t last) noexcept;
  void make_youngest(std::uint32_t first, std::uint32_t last) noexcept;

  chunked_array<node> nodes_;
  std::uint64_t size_ = 0;
};

/// Needs no hashes.
std::unique_ptr<eviction_policy> make_recency_policy(key_hash hash);

} // namespace troupe
