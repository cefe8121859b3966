#pragma once

#include "actors/node/registry/hold_counts.hpp"
#include "actors/node/registry/lease_table.hpp"
#include "actors/node/registry/shard_spaces.hpp"
#include "messages/registry_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The readers of one shard: who finds which keys, and how long these stay for it. Clients with a ticket hold leases;
/// slot clients are promised time.
///
/// Each key that a lease lists has one count in its entry for it, so that an entry with `leases` is in that many lists.
/// Keys that callers with bounds hold are counted in `hold_counts` as well, each once per caller.
class shard_leases {
public:
  explicit shard_leases(shard_spaces& spaces) : spaces_(spaces) {}

  /// Leases the leading complete keys. No lease comes into being where nothing matches. A lease that exists is extended
  /// to the later deadline. limit_exceeded if that went beyond the bounds of the request; then all is as it was.
  result<match_reply> match(const match_request& request, timestamp now);

  /// Leases the keys of which the rank has a live page, complete or not.
  result<locate_reply> locate(const locate_request& request, timestamp now);

  /// A lease that is gone (released before, expired, or nothing matched) is given back with success: a repeated
  /// request gets the answer of the first. With `must_exist`, only one that was here not long ago.
  result<void> release(const release_request& request, timestamp now);

  /// not_found if the lease is gone: what was read under it may have been replaced.
  result<void> renew(const renew_request& request, timestamp now);

  // Of slot clients; messages/registry_messages.hpp says what each code means.

  result<result_codes> exists(const exists_request& request);
  result<locate_reply> protect(const protect_request& request, timestamp now);

  /// Makes all leases of the owner, or of the namespace, due.
  void doom(owner_id owner) { leases_.doom(owner); }
  void doom_space(std::uint32_t space) { leases_.doom_space(space); }
  /// The namespace is gone, and its leases ended before.
  void forget_space(std::uint32_t space) { holds_.forget_space(space); }

  /// Ends what is due, giving back `left` keys at most, and takes from `left` what that was. False if a lease is so
  /// long that it ends in several calls: nothing else is to be done meanwhile.
  bool end_due(timestamp now, std::size_t& left);
  bool has_due(timestamp now) const { return leases_.due(now).has_value(); }
  std::optional<timestamp> next_deadline() const { return leases_.next_deadline(); }

  std::uint64_t size() const noexcept { return leases_.size(); }
  std::uint64_t count_in(std::uint32_t space) const noexcept { return leases_.count_in(space); }
  std::uint64_t expired() const noexcept { return expired_; }
  /// Of the leases, and with what is counted beside them.
  std::uint64_t lease_bytes() const noexcept { return leases_.resident_bytes(); }
  std::uint64_t resident_bytes() const noexcept { return leases_.resident_bytes() + holds_.resident_bytes(); }

  /// For tests: the first inconsistency, or an empty text; key spaces are checked with it.
  std::string check() const;

private:
  /// Tells the recorder of a lookup.
  void record(const key_space& space, const match_request& request, timestamp now);
  std::optional<error> check_lookup(std::uint32_t space, const ticket& lease, duration lease_for,
                                    std::span<const key_digest> keys, timestamp now);
  std::optional<error> check_same_lease(std::uint32_t space, const ticket& name, timestamp now);

  /// Where the rank's pages lie, one answer per key; `used_` are the entries that were found.
  packed<location> find_pages(const key_space& space, rank_number rank, std::span<const key_digest> keys,
                              bool complete_only);

  /// Of complete entries, as `match_reply::on_disk`.
  packed<std::uint8_t> on_disk(std::uint32_t number, std::span<const entry_index> entries) const;

  /// Of pages that were found, as `locate_reply::in_slab`.
  packed<std::uint8_t> in_slab(const key_space& space, rank_number rank, std::span<const location> pages) const;

  /// The lease if its deadline is not over; one whose deadline is over is ended here.
  std::optional<lease_number> live_lease(const ticket& name, timestamp now);
  void end_lease(lease_number number);
  void expire_lease(lease_number number);
  /// Gives back what the lease holds from that place on.
  void give_back_from(lease& l, std::size_t first);
  /// Of what the lease lists, another node keeps these keys as well.
  void spare(lease& l, std::span<const key_digest> keys);
  /// Gives back what the last use of a lease brought beyond its first `keep` keys.
  void trim_last_use(lease_number number, std::uint32_t keep);
  /// A new lease, unless one of the limits is reached; `keys` are what it is about to hold.
  result<lease_number> open_lease(std::uint32_t space, const ticket& name, timestamp deadline,
                                  const lease_bounds& bounds, std::size_t keys);
  /// Leases the entries under the ticket. How often it was used now; 0 where there is no lease.
  result<std::uint32_t> take_lease(std::uint32_t space, const ticket& name, duration lease_for,
                                   const lease_bounds& bounds, std::span<const entry_index> entries, timestamp now);
  /// Tells io workers where the pages lie of keys that the last use of the lease has brought.
  void tell_workers(const ticket& name);
  /// Counts what the lease holds from that place on, or gives it back if that is beyond the bounds.
  std::optional<error> count_holds(lease& l, std::size_t first, const lease_bounds& bounds, timestamp now);
  std::optional<error> check_readers(std::uint32_t space, std::uint32_t share, std::uint64_t held) const;
  /// So many millionths of the keys that this shard has room for; at least one.
  std::uint64_t keys_in_share(const key_space& space, std::uint32_t share) const;

  shard_spaces& spaces_;
  lease_table leases_;
  hold_counts holds_;
  std::uint64_t expired_ = 0;

  // Kept between calls for their memory.
  std::vector<entry_index> found_;
  std::vector<entry_index> used_;
};

} // namespace troupe
