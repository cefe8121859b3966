#pragma once

#include "actors/registry/eviction_policy.hpp"
#include "actors/registry/key_table.hpp"
#include "actors/registry/registry_outbox.hpp"
#include "base/namespace_spec.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// One key as tests see it.
struct key_info {
  key_digest key;
  key_digest parent;
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  std::uint32_t live = 0;
  std::uint32_t reserved = 0;
  bool complete = false;
  bool ghost = false;
};

/// The keys of one namespace in one shard, and the rules that hold for them whoever asks: what makes a key complete,
/// what pins it, who is whose parent, what may be evicted, and which slots go back. Callers, leases and reservations as
/// such are the registry's business.
///
/// An entry exists while it has a page, a reservation, a lease or children. With children only it is a ghost: it keeps
/// their number exact, and is otherwise not there.
class key_space {
public:
  key_space(namespace_spec spec, std::uint32_t shard, std::uint32_t shard_count, std::uint64_t seed);

  const namespace_spec& spec() const noexcept { return spec_; }
  const namespace_id& id() const noexcept { return id_; }

  /// Lookups, also of single entries and pages.
  const key_table& table() const noexcept { return table_; }

  bool complete(entry_index i) const noexcept { return table_.entry(i).live == spec_.world_size; }

  /// Appends the entries of the leading complete keys.
  void append_leading_complete(std::span<const key_digest> keys, std::vector<entry_index>& found) const;

  /// Adds a lease to those entries that `held` does not list yet, and lists them. False, with nothing changed, if
  /// `held` would grow beyond `most`.
  [[nodiscard]] bool lease(std::span<const entry_index> entries, std::vector<entry_index>& held, std::size_t most);

  /// Takes one lease from each. Where it was the last one, withheld slots are released and an entry without pages goes.
  void give_back(std::span<const entry_index> entries);

  /// These keys, in prefix order, were used; all have a live page.
  void touch(std::span<const entry_index> entries) { policy_->touched(entries); }

  /// The entry of a key, made if need be; `no_entry` if the index is full.
  entry_index find_or_create(const key_digest& key, entry_index hint);

  /// Marks the entry. False if it was marked before, since the last `end_request`, to which all entries go.
  bool first_in_request(entry_index i) noexcept { return !std::exchange(table_.entry(i).marked, true); }
  void end_request(std::span<const entry_index> entries) noexcept;

  /// Sets the parent where there is none, and tells the parent's shard. `previous` may be the parent's entry.
  void adopt_parent(entry_index i, const key_digest& parent, entry_index previous);

  void reserve(entry_index i, rank_number rank, std::uint32_t record);

  /// Ends a reservation without a page. A slot, if there was one, is aborted.
  void unreserve(entry_index i, rank_number rank, slot_ref where);

  /// Ends a reservation with a page. True if it is the first of the key, which then is to be given to `inserted`.
  bool publish(entry_index i, rank_number rank, slot_ref where);

  /// Keys that have got their first page, in prefix order.
  void inserted(std::span<const entry_index> entries) { policy_->inserted(entries); }

  /// Unpublishes a live page. Its slot is released once the key has no lease.
  void invalidate(entry_index i, rank_number rank);

  /// Children in other shards came or went. False if the count would leave its range.
  bool add_children(const key_digest& key, std::int64_t delta);

  /// Evicts until `wanted` slots of the rank are released, or `most_looks` keys were looked at, or nothing can go.
  evict_reply evict(rank_number rank, std::uint32_t wanted, std::uint32_t most_looks);

  outbox_collector& outbox() noexcept { return outbox_; }

  /// Keys with a page.
  std::uint64_t keys() const noexcept { return policy_->size(); }
  std::uint64_t complete_keys() const noexcept { return complete_keys_; }
  std::uint64_t evicted_keys() const noexcept { return evicted_keys_; }
  std::uint64_t resident_bytes() const noexcept;

  /// For tests; they read every entry.
  void for_each_key(const std::function<void(const key_info&)>& f) const;
  void for_each_withheld(const std::function<void(entry_index, rank_number, slot_ref)>& f) const;
  /// The first inconsistency, or an empty text. `leases` says how many leases list each entry.
  std::string check(const std::unordered_map<entry_index, std::uint32_t>& leases) const;

private:
  struct withheld_slot {
    rank_number rank = 0;
    slot_ref where;
  };

  bool evictable(entry_index i) const noexcept;
  std::uint32_t remove_key(entry_index i, rank_number rank);
  void unpublish(entry_index i, rank_number rank);
  void release_withheld(entry_index i);
  /// Makes a ghost of an entry that nothing holds, and removes it if it has no children either.
  void settle(entry_index i);
  void change_children(const key_digest& parent, std::int64_t delta);
  void prefetch_for_removal(std::span<const entry_index> entries) const;
  std::string check_entry(entry_index i, const std::unordered_map<entry_index, std::uint32_t>& leases) const;
  std::string check_policy() const;

  namespace_spec spec_;
  namespace_id id_;
  std::uint32_t shard_;
  std::uint32_t shard_count_;
  key_table table_;
  std::unique_ptr<eviction_policy> policy_;
  outbox_collector outbox_;
  std::unordered_map<entry_index, std::vector<withheld_slot>> withheld_;
  std::uint64_t complete_keys_ = 0;
  std::uint64_t evicted_keys_ = 0;

  /// Keys looked at in vain since the last success, and whether meanwhile any key may have become evictable. Nothing
  /// can be evicted when a whole round was in vain and nothing has changed; this is known without looking again.
  std::uint64_t looked_in_vain_ = 0;
  bool chance_ = true;
  bool exhausted_ = false;
};

} // namespace troupe
