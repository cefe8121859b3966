#pragma once

#include "actors/node/eviction/entry_lists.hpp"
#include "actors/node/eviction/eviction_policy.hpp"

namespace troupe {

/// A base class of policies that keep their entries in lists. It handles entries that cannot be evicted now, and
/// entries that become evictable again. A derived policy says where an entry belongs, and which entries of its own
/// lists are next.
///
/// An entry that was kept stands aside, so that all others are proposed before it is proposed again. When an entry is
/// evicted, two entries return from aside: to where they would be after a use at that moment. This loses their age.
/// `freed` makes up for the part that matters, the ends of chains that are no longer used.
class listing_policy : public eviction_policy {
public:
  void announced(std::span<const entry_index>, const entry_use&) override {}
  void inserted(std::span<const entry_index> entries) final { come(entries, false); }
  void fetched(std::span<const entry_index> entries) final { come(entries, true); }
  void touched(std::span<const entry_index> entries, const entry_use& how) final;
  void left(entry_index entry, leave_reason why) final;
  std::size_t propose(std::span<entry_index> out) final;
  void kept(entry_index entry) final;
  void freed(entry_index entry) final;
  void marked_evict_first(std::span<const entry_index> entries) final;
  std::uint64_t size() const noexcept final { return size_; }
  std::uint64_t resident_bytes() const noexcept override { return lists_.resident_bytes(); }
  void for_each(const std::function<void(entry_index)>& f) const final;

protected:
  using position = entry_lists::position;

  /// Nodes of this class, which follow the lists of the derived policy.
  static constexpr position lists_here = 3;

  /// The tag bit of entries outside the derived policy's own lists. The derived policy sees tags below it.
  static constexpr std::uint32_t displaced = entry_lists::tag_limit / 2;

  /// The first `lists` of the `fixed` nodes are lists of the derived policy.
  listing_policy(position lists, position fixed);

  /// Called before these entries are admitted.
  virtual void prepare(std::span<const entry_index>) {}
  /// Admits an entry whose node is unlinked; `fetched` says that it comes from another node. Link it with `place`.
  virtual void admit(position at, bool fetched) = 0;
  /// Links an unlinked entry where it belongs after a use at this moment.
  virtual void place(position at) = 0;
  /// Records a use of a run of entries, from `first`, the youngest, to `last`, that are consecutive in a list and have
  /// the same tag. Their order may stay.
  virtual void use(position first, position last, const entry_use& how) = 0;
  /// Called when an entry, which is unlinked already, leaves the policy.
  virtual void forget(position, leave_reason) {}
  /// `propose` for the policy's own lists; 0 if they are empty.
  virtual std::size_t next(std::span<entry_index> out) = 0;

  /// Writes entries from the old end of a list on, or those older than a node, the youngest first, until `out` is full,
  /// or up to a mark. The youngest entry of a list is older than the list itself.
  std::size_t take_oldest(position list, std::span<entry_index> out) const;
  std::size_t take_older(position than, std::span<entry_index> out) const;

  entry_lists lists_;
  std::uint64_t size_ = 0;

private:
  static constexpr int back_at_once = 2;

  void come(std::span<const entry_index> entries, bool fetched);

  void displace(position at) noexcept;
  /// Unlinks from `freed_`, `aside_` or the policy's own list.
  void take_out(position at) noexcept;

  position own_lists_;
  /// Evicted first.
  position freed_;
  /// Evicted after `freed_`.
  position evict_first_;
  position aside_;
};

} // namespace troupe
