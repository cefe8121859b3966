#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_origin.hpp"
#include "base/page_tier.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/packed.hpp"

#include <cstddef>
#include <cstdint>

/// Messages to a registry shard from clients of the native API, from other shards, and from the actors of a rank. A
/// client splits its batch of keys over the shards (`shard_of`), keeping the order, so that every message has the
/// shard's part of one batch.
///
/// `registry_slot_messages.hpp` has those of slot clients, `registry_admin_messages.hpp` those about namespaces and
/// ranks as a whole.

namespace troupe {

/// Limits of an outside caller's leases, so that it cannot block writers from getting slots. Zeros set no limit, for
/// clients whose requests the node itself makes.
struct lease_bounds {
  /// The most leases of the owner with keys in one shard.
  std::uint32_t leases = 0;
  /// The most keys that all leases of the owner may hold in a namespace, in millionths of its capacity.
  std::uint32_t share = 0;
  /// The same for all read-only callers together; 0: the caller is not one of them.
  std::uint32_t readers_share = 0;

  friend bool operator==(const lease_bounds&, const lease_bounds&) = default;
};

/// A share of 100 %.
inline constexpr std::uint32_t whole_share = 1'000'000;

/// Looks up a run of keys in prefix order and takes a lease on the leading complete ones, or on all complete ones. The
/// same lease again is extended (a repeated request finds what the first one did). limit_exceeded beyond the bounds.
struct match_request {
  namespace_id ns;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
  lease_bounds bounds = {};
  /// Asks for `match_reply::on_disk`.
  bool report_on_disk = false;
  /// Set for another node, where the keys are then used, found here or not. The client proxy sets it, not the client.
  bool by_peer = false;
  /// Leases every complete key, also behind missing ones: for a group of KV caches that needs only some of the keys. As
  /// the caller decides later which of them it uses, this does not count as use, and io workers prepare nothing:
  /// `release_request::retained` does both.
  bool each = false;
  /// The engine's name for its request, for `troupe explain`; the node keeps the first bytes (`request_name`).
  std::string request = {};
};

/// The number of leading keys of the request that are complete and now leased; with `each`, of all complete ones.
struct match_reply {
  std::uint32_t matched = 0;
  /// The number of requests under the lease so far, see `release_request`. 0: there is no lease.
  std::uint32_t uses = 0;
  /// If requested, for each key that matched: 1 if the page of at least one rank is not in the memory of the node now,
  /// so that it would have to be read first, else 0. Empty where this is unknown.
  packed<std::uint8_t> on_disk = {};
  /// With `each`, for each key of the request: 1 if it is complete and leased, else 0.
  packed<std::uint8_t> found = {};
};

/// Finds the pages of one rank, and takes a lease on the keys that are found.
struct locate_request {
  namespace_id ns;
  rank_number rank = 0;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
  lease_bounds bounds = {};
  /// Asks for `locate_reply::in_slab`.
  bool report_in_slab = false;
};

/// One per key: `status` is ok or not_found.
struct location {
  slot_ref where;
  std::uint32_t status = 0;

  errc code() const noexcept { return errc_from_wire(status); }
  friend bool operator==(const location&, const location&) = default;
};

struct locate_reply {
  packed<location> locations;
  /// If requested, for each key: 1 if its page is completely in the slab file now, so that a node with access to the
  /// storage may read it there, else 0. This may change at any time, so the reader has to verify the page. Empty where
  /// this is unknown.
  packed<std::uint8_t> in_slab = {};
};

/// Gives a lease back. With `keep` > 0, only the keys after the first `keep` of the lease's keys, in the order they
/// were leased, are given back: a lookup over several shards trims the keys beyond the shortest answer. For a lease
/// that may have held keys before, `uses` says which lookup is meant: of the keys that this lookup added, the first
/// `keep` stay; all of them stay if the lease has been used since, because the later request may have found them.
struct release_request {
  namespace_id ns;
  ticket lease;
  std::uint32_t keep = 0;
  /// As in `match_reply`; 0: `keep` counts the lease's keys.
  std::uint32_t uses = 0;
  /// Whether an unknown lease is answered with not_found, unless it existed lately; otherwise that is success.
  bool must_exist = false;
  /// From another node of the cluster, which gives all of the lease back: it keeps new pages of these keys, made under
  /// the lease, so that those here may be evicted first. Keys that are not in the lease are ignored.
  packed<key_digest> kept_there = {};
  /// If not empty, these keys of the lease stay, in this order, and all others are given back; `keep` and `uses` do not
  /// apply. They count as used now, and io workers are notified that they will be read. Keys that are not in the lease
  /// are ignored; where none is left, the lease ends.
  packed<key_digest> retained = {};
};

/// Prolongs a lease; not_found when it does not exist any more.
struct renew_request {
  namespace_id ns;
  ticket lease;
  duration lease_for{};
};

/// Asks for slots to write the pages of one rank. `parents` is empty, or has one entry per key (null: first block of
/// a sequence, or unknown). The reservation `ticket` covers all keys of the request; the same ticket again gets the
/// answer of the first request.
struct reserve_request {
  namespace_id ns;
  rank_number rank = 0;
  troupe::ticket ticket;
  duration expires_in{};
  packed<key_digest> keys;
  packed<key_digest> parents;
};

/// One per key. ok: write to `where` and commit. exists: nothing to do. busy: another client is writing it. full: no
/// slot is available.
struct reserve_reply {
  packed<location> results;
};

/// Ends reservations, by commit or by abort (two different messages).
struct finish_request {
  namespace_id ns;
  rank_number rank = 0;
  troupe::ticket ticket;
  packed<page_ref> pages;
  /// Applies to an unknown ticket that did not exist lately either. Set: a commit of a live page answers not_owner, and
  /// an abort is not_found as a whole. Not set: they succeed.
  bool must_exist = false;
  /// For a commit: the origin of keys that get their first page by it.
  page_origin origin = page_origin::client;
};

/// One code per page, as `errc`.
struct finish_reply {
  packed<std::uint8_t> results;
};

/// Reports committed pages that did not verify: they are unpublished if key, rank, slot and generation still agree.
/// `reasons` are one `errc` per page, `tiers` one `page_tier` per page, or empty where the tier is unknown.
struct invalidate_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<page_ref> pages;
  packed<std::uint8_t> reasons{};
  packed<std::uint8_t> tiers{};

  /// The tier of the page at that position.
  page_tier tier(std::size_t i) const noexcept {
    return i < tiers.size() && tiers[i] < page_tier_count ? static_cast<page_tier>(tiers[i]) : page_tier::unknown;
  }
};

/// One code per item of the request, in its order, as `errc`.
struct result_codes {
  packed<std::uint8_t> results;
};

/// From the io worker of the rank: these pages were in memory only and were dropped. They are unpublished, and their
/// reservations end. One code per page in `result_codes`: ok, or not_found if the key has no such page.
struct dropped_pages_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<page_ref> pages;
};

/// `parent` gained (delta > 0) or lost (delta < 0) children that live in another shard.
struct child_delta {
  key_digest parent;
  std::int64_t delta = 0;
  /// 1 if a child was evicted to make room, 0 otherwise.
  std::uint64_t evicted = 0;

  friend bool operator==(const child_delta&, const child_delta&) = default;
};

/// The most changes in one `children_request`.
inline constexpr std::size_t child_changes_max = 16384;

/// From one shard to another: how many children keys have. A key with children is not evicted before them.
struct children_request {
  namespace_id ns;
  packed<child_delta> changes;
};

/// From an allocator that runs low: evict keys until `wanted` slots of the rank are on their way back.
///
/// An evicted key frees a slot on each of its ranks, and ranks become short together. So a request evicts nothing if
/// slots have been released, for any rank, that the allocator had not counted yet: it repeats the request when it has,
/// if it still needs more.
struct evict_request {
  /// The allocator has counted everything that was released before the request arrives.
  static constexpr std::uint64_t all = ~std::uint64_t{0};

  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t wanted = 0;
  /// Evicts any evictable key, not only those that are due. Without it, a shard waits for others to evict children of
  /// its oldest keys.
  bool force = false;
  /// The value of `release_progress::released` of this shard and rank that the allocator had when it counted its slots.
  std::uint64_t seen = all;
};

/// The number of slots of the rank that were released since `seen`, for any rank, and whether there may be more: false
/// means that this shard cannot evict anything else at present.
struct evict_reply {
  std::uint32_t slots = 0;
  bool more = false;
  release_progress progress{};
};

/// From an io worker, for its scrub: live pages of the rank in this shard, a bounded number, from position `from` of
/// its keys on. Repeat it with `from` = `list_pages_reply::next` while there is `more`; pages that are published
/// meanwhile may be missing.
struct list_pages_request {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t from = 0;
  std::uint32_t most = 0;
};

struct list_pages_reply {
  packed<page_ref> pages;
  std::uint32_t next = 0;
  bool more = false;
};

} // namespace troupe
