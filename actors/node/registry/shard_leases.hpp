#pragma once

#include "actors/node/registry/hold_counts.hpp"
#include "actors/node/registry/lease_table.hpp"
#include "actors/node/registry/shard_namespaces.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The readers of one shard: which keys a reader finds, and how long they are kept for it. Clients with a ticket hold
/// leases; slot clients are promised a time.
///
/// Each key that a lease lists has one count in its entry for it, so the number of leases that list an entry is its
/// `leases`. Keys that callers with bounds hold are also counted in `hold_counts`, once per caller.
class shard_leases {
public:
  explicit shard_leases(shard_namespaces& namespaces) : namespaces_(namespaces) {}

  /// Leases the leading complete keys, or all complete ones. If nothing matches, no lease is created. An existing lease
  /// is extended to the later deadline. limit_exceeded if the lease would exceed the bounds of the request; then
  /// nothing has changed.
  result<match_reply> match(const match_request& request, timestamp now);

  /// Leases the keys of which the rank has a live page, complete or not.
  result<locate_reply> locate(const locate_request& request, timestamp now);

  /// Releases a lease. Releasing a lease that does not exist (released before, expired, or nothing matched) succeeds,
  /// so that a repeated request gets the answer of the first. With `must_exist`, it succeeds only for a lease that
  /// ended recently.
  result<void> release(const release_request& request, timestamp now);

  /// not_found if the lease has ended: the pages that were read under it may have been replaced.
  result<void> renew(const renew_request& request, timestamp now);

  // For slot clients; messages/registry_messages.hpp says what each code means.

  result<result_codes> exists(const exists_request& request);
  result<locate_reply> protect(const protect_request& request, timestamp now);

  /// Makes all leases of the owner, or of the namespace, due.
  void doom(owner_id owner) { leases_.doom(owner); }
  void doom_namespace(std::uint32_t ns) { leases_.doom_namespace(ns); }
  /// Forgets a removed namespace, whose leases have ended before.
  void forget_namespace(std::uint32_t ns) { holds_.forget_namespace(ns); }

  /// Ends leases that are due, giving back at most `left` keys, and subtracts their number from `left`. False if a
  /// lease is so long that it ends in several calls: the caller must do nothing else meanwhile.
  bool end_due(timestamp now, std::size_t& left);
  bool has_due(timestamp now) const { return leases_.due(now).has_value(); }
  std::optional<timestamp> next_deadline() const { return leases_.next_deadline(); }

  std::uint64_t size() const noexcept { return leases_.size(); }
  std::uint64_t count_in(std::uint32_t ns) const noexcept { return leases_.count_in(ns); }
  std::uint64_t expired() const noexcept { return expired_; }
  /// Memory of the leases; `resident_bytes` adds the hold counts.
  std::uint64_t lease_bytes() const noexcept { return leases_.resident_bytes(); }
  std::uint64_t resident_bytes() const noexcept { return leases_.resident_bytes() + holds_.resident_bytes(); }

  /// For tests: the first inconsistency, or an empty text. Key spaces are checked too.
  std::string check() const;

private:
  /// The keys in `used_` count as used by the lookup, and io workers are notified of them.
  void count_match(std::uint32_t number, const match_request& request, timestamp now);
  /// Passes a lookup to the recorder.
  void record(const key_space& ns, const match_request& request, timestamp now);
  /// What the history stores of a lookup that found the entries of `used_` and has not leased them yet. `at` and
  /// `missing` are the position of its first missing key, and the entry of that key, if it has one.
  lookup_part part_of(const key_space& ns, const match_request& request, std::size_t at, entry_index missing,
                      timestamp now) const;
  std::optional<error> check_lookup(std::uint32_t ns, const ticket& lease, duration lease_for,
                                    std::span<const key_digest> keys, timestamp now);
  std::optional<error> check_same_lease(std::uint32_t ns, const ticket& name, timestamp now);

  /// Where the rank's pages are, one answer per key; `used_` receives the entries that were found.
  packed<location> find_pages(const key_space& ns, rank_number rank, std::span<const key_digest> keys,
                              bool complete_only);

  /// `match_reply::on_disk` for complete entries.
  packed<std::uint8_t> on_disk(std::uint32_t number, std::span<const entry_index> entries) const;

  /// `locate_reply::in_slab` for pages that were found.
  packed<std::uint8_t> in_slab(const key_space& ns, rank_number rank, std::span<const location> pages) const;

  /// Returns the lease if its deadline has not passed; ends it otherwise.
  std::optional<lease_number> live_lease(const ticket& name, timestamp now);
  void end_lease(lease_number number);
  void expire_lease(lease_number number);
  /// Gives back the entries that the lease holds from position `first` on.
  void give_back_from(lease& l, std::size_t first);
  /// Marks keys of the lease as evicted first, because another node keeps them too.
  void evict_first(lease& l, std::span<const key_digest> keys);
  /// `release_request::retained`.
  void retain(lease_number number, std::span<const key_digest> keys, timestamp now);
  /// Gives back what the last use of a lease added beyond its first `keep` keys.
  void trim_last_use(lease_number number, std::uint32_t keep);
  /// Opens a lease unless a limit is reached; `keys` is how many it is about to hold.
  result<lease_number> open_lease(std::uint32_t ns, const ticket& name, timestamp deadline, const lease_bounds& bounds,
                                  std::size_t keys);
  /// Leases the entries under the ticket. Returns how often the lease has been used; 0 if there is none.
  result<std::uint32_t> take_lease(std::uint32_t ns, const ticket& name, duration lease_for, const lease_bounds& bounds,
                                   std::span<const entry_index> entries, timestamp now);
  /// Notifies io workers of the locations of the pages that the last use of the lease has added.
  void notify_workers(const ticket& name);
  /// Counts what the lease holds from position `first` on, or gives it back if that exceeds the bounds.
  std::optional<error> count_holds(lease& l, std::size_t first, const lease_bounds& bounds, timestamp now);
  std::optional<error> check_readers(std::uint32_t ns, std::uint32_t share, std::uint64_t held) const;
  /// `share` millionths of the keys that this shard has room for; at least one.
  std::uint64_t keys_in_share(const key_space& ns, std::uint32_t share) const;

  shard_namespaces& namespaces_;
  lease_table leases_;
  hold_counts holds_;
  std::uint64_t expired_ = 0;

  // Kept between calls for their memory.
  std::vector<entry_index> found_;
  std::vector<entry_index> used_;
};

} // namespace troupe
