#pragma once

#include "actors/node/tables/chunked_array.hpp"
#include "actors/node/tables/key_index.hpp"

#include <cstdint>
#include <functional>

namespace troupe {

/// Doubly linked lists of entries in an array that is parallel to the entries, with six bits beside the links: 8 bytes
/// per entry. Each entry is in at most one list, and can be unlinked without knowing which.
///
/// Besides entries there are fixed nodes, numbered from 0: the first of them are the lists themselves; others may be
/// placed in lists as marks.
class entry_lists {
public:
  /// Position of a node in the array: fixed nodes come first.
  using position = std::uint32_t;

  static constexpr std::uint32_t tag_limit = 64;

  /// The first `lists` of the `fixed` nodes are lists, all empty.
  entry_lists(position lists, position fixed);

  /// Must be called before anything else is done with an entry.
  void make_room_for(entry_index entry) { nodes_.grow_to(std::uint64_t{entry} + fixed_ + 1); }

  position of(entry_index entry) const noexcept { return entry + fixed_; }
  bool is_entry(position at) const noexcept { return at >= fixed_; }
  entry_index entry_at(position at) const noexcept { return at - fixed_; }

  /// Six bits for the user. They stay when a node is linked or unlinked.
  std::uint32_t tag(position at) const noexcept {
    return (nodes_[at].younger >> link_bits) | (nodes_[at].older >> link_bits << 3);
  }
  void set_tag(position at, std::uint32_t tag) noexcept {
    auto& n = nodes_[at];
    n.younger = (n.younger & link_mask) | (tag & 7) << link_bits;
    n.older = (n.older & link_mask) | tag >> 3 << link_bits;
  }

  /// The neighbours of a node in its list; at the end, the list itself. For a list: its oldest and its youngest node.
  position younger(position at) const noexcept { return nodes_[at].younger & link_mask; }
  position older(position at) const noexcept { return nodes_[at].older & link_mask; }
  position oldest(position list) const noexcept { return younger(list); }
  position youngest(position list) const noexcept { return older(list); }
  bool empty(position list) const noexcept { return younger(list) == list; }

  // For all nodes from `first`, the youngest, to `last`, the oldest, which are consecutive in a list; their order
  // stays.

  void unlink(position first, position last) noexcept;
  void link_youngest(position list, position first, position last) noexcept;
  void link_oldest(position list, position at) noexcept;

  void unlink(position at) noexcept { unlink(at, at); }
  void link_youngest(position list, position at) noexcept { link_youngest(list, at, at); }

  /// Visits the entries of a list from the oldest on.
  void for_each(position list, const std::function<void(entry_index)>& f) const;

  std::uint64_t resident_bytes() const noexcept { return nodes_.resident_bytes(); }

private:
  static constexpr std::uint32_t link_bits = 29;
  static constexpr std::uint32_t link_mask = (1U << link_bits) - 1;

  /// Rings: a list is in its own ring, before its oldest and behind its youngest, so that no link is ever missing. The
  /// upper three bits of each link are half of the tag.
  struct node {
    std::uint32_t younger;
    std::uint32_t older;
  };

  void set_younger(position at, position to) noexcept { nodes_[at].younger = (nodes_[at].younger & ~link_mask) | to; }
  void set_older(position at, position to) noexcept { nodes_[at].older = (nodes_[at].older & ~link_mask) | to; }

  position fixed_;
  chunked_array<node> nodes_;
};

} // namespace troupe
