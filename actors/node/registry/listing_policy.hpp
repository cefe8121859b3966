#pragma once

#include "actors/node/registry/entry_lists.hpp"
#include "actors/node/registry/eviction_policy.hpp"

namespace troupe {

/// What policies share that keep their entries in lists: what becomes of entries that cannot go, and of those that can
/// again. A policy says where an entry belongs, and who is next of those in its own lists.
///
/// What is kept stands aside, so that all others are proposed before it is again. As soon as one has gone, those aside
/// come back, two for each that goes: where they belong if they were used just now. That loses their age, of which
/// `freed` makes good what matters, the ends of chains nobody wants any more.
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
  void spared(std::span<const entry_index> entries) final;
  std::uint64_t size() const noexcept final { return size_; }
  std::uint64_t resident_bytes() const noexcept override { return lists_.resident_bytes(); }
  void for_each(const std::function<void(entry_index)>& f) const final;

protected:
  using position = entry_lists::position;

  /// Nodes of this class, which stand behind the lists of the policy.
  static constexpr position lists_here = 3;

  /// Tags of entries are below it for the policy, as long as it is asked of them.
  static constexpr std::uint32_t displaced = entry_lists::tag_limit / 2;

  /// Of `fixed` nodes the first `lists` are lists of the policy's own.
  listing_policy(position lists, position fixed);

  /// These are about to be admitted.
  virtual void prepare(std::span<const entry_index>) {}
  /// The entry comes in, from another node if it is `fetched`; its node is unlinked. Where it stands by `place`.
  virtual void admit(position at, bool fetched) = 0;
  /// Puts an unlinked entry where it belongs if it was used just now.
  virtual void place(position at) = 0;
  /// A run of entries, from `first`, the youngest, to `last`, that follow each other in a list, in an order that may
  /// stay, and have the same tag, was used.
  virtual void use(position first, position last, const entry_use& how) = 0;
  /// The entry, which is not linked any more, leaves.
  virtual void forget(position, leave_reason) {}
  /// `propose` for the policy's own lists; 0 if they are empty.
  virtual std::size_t next(std::span<entry_index> out) = 0;

  /// Writes entries from one end of a list until `out` is full, or up to a mark.
  std::size_t take_oldest(position list, std::span<entry_index> out) const;
  std::size_t take_youngest(position list, std::span<entry_index> out) const;

  entry_lists lists_;
  std::uint64_t size_ = 0;

private:
  static constexpr int back_at_once = 2;

  void come(std::span<const entry_index> entries, bool fetched);

  void displace(position at) noexcept;
  /// Back from `freed_` or `aside_`, or out of the policy's own list.
  void take_out(position at) noexcept;

  position own_lists_;
  /// What goes first.
  position freed_;
  /// What goes behind these.
  position spare_;
  position aside_;
};

} // namespace troupe
