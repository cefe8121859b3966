#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "base/page_origin.hpp"
#include "base/page_tier.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/packed.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Messages to a registry shard. A client splits its batch of keys over the shards (`shard_of`), keeping the order, so
/// that every message has the shard's part of one batch.

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

// -- for slot clients: they know a page by key and slot number only ---------------------------------------------------
//
// They have no owner id, tickets, leases or generations, and read and write slab files themselves. Their slots are
// protected from reuse by time limits: see docs/decisions/0006-slot-clients.md. Each request is one message per shard
// with the shard's part of the keys, except where only slots are named.

/// Used instead of a rank: all ranks of the namespace.
inline constexpr rank_number all_ranks = 0xffffffff;

/// One code per item of the request, in its order, as `errc`.
struct result_codes {
  packed<std::uint8_t> results;
};

/// Which keys are complete, or, with a rank, have a live page of it. One code per key: ok or not_found. Takes no lease,
/// and does not count as use.
struct exists_request {
  namespace_id ns;
  rank_number rank = all_ranks;
  packed<key_digest> keys;
};

/// Finds the pages of one rank. Until `protect_for` from now has passed, keys that are found are not evicted, and
/// returned slots are not reused even if their pages are unpublished. Counts as use. Answered with `locate_reply`.
struct protect_request {
  namespace_id ns;
  rank_number rank = 0;
  /// Finds complete keys only; otherwise all with a live page of the rank.
  bool complete_only = false;
  duration protect_for{};
  packed<key_digest> keys;
  /// As in `lease_bounds`; protected keys count together with leased ones.
  std::uint32_t readers_share = 0;
};

/// Requests slots to write pages of one rank. While a page is reserved, every request for it gets the same slot, and
/// restarts its time. Answered with `reserve_reply`, one per key, equal for equal keys:
///   ok      write to `where`, then confirm
///   exists  the page is live at `where`, and protected for the time of a reservation: it may be written again
///   busy    a writer with a ticket has reserved it, or slots for it are being requested
///   full    no slot is available
/// `parents` as in `reserve_request`; a key that is given as its own parent has none.
struct allocate_request {
  namespace_id ns;
  rank_number rank = 0;
  duration expires_in{};
  packed<key_digest> keys;
  packed<key_digest> parents;
};

/// Reports pages that were written to the slots of `allocate_request`. Generations are 0, for any, or must agree.
/// Answered with `result_codes`:
///   ok            the page is live there, now or since before
///   expired       too late: the slot was taken back
///   stale         the key has another slot
///   not_owner     a writer with a ticket has reserved it
///   not_found     the key has no reserved or live page of the rank
///   out_of_range  the rank has no such slot
struct confirm_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<page_ref> pages;
};

/// Gives back slots whose writing failed. A slot does not determine a shard: every shard gets the request, and
/// `reclaim_sum` combines the answers to one of `result_codes`:
///   ok            a reserved page can be reserved again, with another slot; a live page, whose bytes are suspect,
///                 is unpublished. The slot is free when no lease, protection or time of the reservation holds
///                 it: the request may be late, and meant for an earlier holder of the slot
///   busy          another writer was given the same slot: it stays reserved until confirmed, or for its time
///   not_owner     a writer with a ticket has it
///   not_found     no key has this slot: it is free, about to be, or was never given out
///   out_of_range  the rank has no such slot
/// unsupported as a whole unless the namespace has a `slot_index`.
struct reclaim_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<slot_number> slots;
};

/// At most one shard has a slot; the others answer not_found.
constexpr errc reclaim_sum(errc a, errc b) noexcept {
  return a == errc::not_found ? b : a;
}

/// Unpublishes the pages of the keys, on one rank or on all; children stay. One code per key in `result_codes`: ok, or
/// not_found where no page was live. Reservations stay. Slots that are held by leases or protection are free when these
/// end.
struct erase_request {
  namespace_id ns;
  rank_number rank = all_ranks;
  packed<key_digest> keys;
};

/// Erases all keys of this shard, on one rank or on all, a bounded number per call: repeat it with `from` =
/// `clear_reply::next` while there is `more`. Pages that are published meanwhile may or may not be erased. Ranks stay
/// registered.
struct clear_request {
  namespace_id ns;
  rank_number rank = all_ranks;
  std::uint32_t from = 0;
};

struct clear_reply {
  /// Pages unpublished by this call.
  std::uint64_t pages = 0;
  std::uint32_t next = 0;
  bool more = false;
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

// -- namespaces and ranks at run time ---------------------------------------------------------------------------------

/// How a namespace was made, which decides what a restart does with it: see
/// docs/decisions/0005-what-the-store-keeps.md.
enum class namespace_origin : std::uint8_t {
  /// A client of the native API. Its engines have slab files of their own.
  api,
  /// The config, with slab files of the node.
  config,
  /// An engine that only gave a name, over one of the protocols of the `hf3fs` section. It has slab files of its own,
  /// and that section decides which namespace they belong to.
  protocol,
  /// A client that attached to it, with slab files of the node that grow.
  client,
};

/// How a shard keeps a namespace; not part of its identity.
struct namespace_options {
  /// Ranks are registered at run time, and a key is complete when every rank that is registered now has its page. The
  /// spec's world_size is 0 then. Otherwise ranks are 0 to world_size - 1.
  bool automatic = false;
  /// Whether the key of each slot is stored, for `reclaim_request`: 4 bytes a slot.
  bool slot_index = false;
  /// With `automatic`: the limit of rank numbers.
  std::uint32_t max_ranks = 64;
  /// A repeated request need not agree in this.
  namespace_origin origin = namespace_origin::api;

  friend bool operator==(const namespace_options&, const namespace_options&) = default;
};

/// Adds a namespace. A repetition with the same values is no error. identity_mismatch, naming each difference, if the
/// name or the identity exists with other values; busy while it is being removed.
struct add_namespace_request {
  namespace_spec spec;
  namespace_options options;
};

/// Removes a namespace with its keys, a bounded number per call: repeat it while there is `more`. From the first call
/// on the namespace is unknown to all other requests. Without `force`: busy while leases or reservations are open; with
/// it, these end.
struct remove_namespace_request {
  namespace_id ns;
  bool force = false;
};

struct remove_namespace_reply {
  bool more = false;
};

/// One rank of a namespace. Fields have 64 bits to avoid padding.
struct rank_info {
  std::uint64_t rank = 0;
  /// 0 if unknown.
  std::uint64_t slots = 0;
  /// Live pages.
  std::uint64_t pages = 0;
  /// Pages reserved by writers.
  std::uint64_t reserved = 0;
  /// Slots without a page that leases, protection or a time limit still hold.
  std::uint64_t withheld = 0;

  friend bool operator==(const rank_info&, const rank_info&) = default;
};

/// Lookups, with or without a lease: the requests, the keys in them, and the keys found.
struct lookup_counts {
  std::uint64_t requests = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;
  /// The found keys by where their pages were: in memory on all ranks, to be read from disk on some rank, or fetched
  /// from another node for this lookup. The keys of lookups that do not ask for it are in none of them.
  std::uint64_t memory_keys = 0;
  std::uint64_t disk_keys = 0;
  std::uint64_t peer_keys = 0;

  /// Adds the keys. Shards share requests, which therefore are not added.
  void add_keys(const lookup_counts& x) noexcept {
    asked_keys += x.asked_keys;
    found_keys += x.found_keys;
    memory_keys += x.memory_keys;
    disk_keys += x.disk_keys;
    peer_keys += x.peer_keys;
  }

  friend bool operator==(const lookup_counts&, const lookup_counts&) = default;
};

/// One namespace in one shard. Bytes are pages times the page size, which only slot clients know.
struct namespace_info {
  namespace_spec spec;
  namespace_options options;
  /// With at least one live page; with one of every rank.
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t evicted_keys = 0;
  /// Requests, then pages.
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  packed<rank_info> ranks;
  lookup_counts lookups{};
};

/// One namespace, or all for the null id.
struct describe_request {
  namespace_id ns;
};

struct describe_reply {
  std::vector<namespace_info> namespaces;
};

/// Returns a shard's statistics of when keys of a namespace are used again. `unsupported` where its policy does not
/// learn.
struct reuse_request {
  namespace_id ns;
};

struct reuse_reply {
  /// The number of keys ever added, in which ages are counted.
  std::uint64_t clock = 0;
  /// As `reuse_counts::numbers`.
  packed<std::uint32_t> counts;
};

/// The statistics of other shards, in ages of this shard's clock. Replaces earlier ones. No effect where its policy
/// does not learn.
struct learn_request {
  namespace_id ns;
  packed<std::uint32_t> counts;
};

/// Returns the state of one key, without any effect. not_found if there is no such key.
struct key_request {
  namespace_id ns;
  key_digest key;
};

/// The state of a key's page on one rank.
struct key_page {
  enum class use : std::uint32_t {
    live = 1,
    /// Reserved by a writer with a ticket; generation 0 while there is no slot.
    reserved = 2,
    /// Reserved by a slot client; then, reserved by more than one.
    allocated = 3,
    shared = 4,
  };

  rank_number rank = 0;
  use state = use::live;
  slot_ref where;

  friend bool operator==(const key_page&, const key_page&) = default;
};

struct key_reply {
  key_digest parent;
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  bool complete = false;
  /// 0 if it is not.
  duration protected_for{};
  packed<key_page> pages;
};

// -- what survives a restart ------------------------------------------------------------------------------------------

/// A live page as it was stored.
struct stored_page {
  namespace_id ns;
  key_digest key;
  /// Null if there is none, or it was unknown when the page was published.
  key_digest parent;
  slot_ref where;
  rank_number rank = 0;
  std::uint32_t unused = 0;

  friend bool operator==(const stored_page&, const stored_page&) = default;
};

/// Pages in one `restore_request`, slots in one `drop_restored_request`: enough that the overhead of a message is
/// negligible, and so few (under 1 MiB) that all shards together hold only a few MiB of what was read.
inline constexpr std::size_t restored_pages_max = 8192;

/// Before service begins: pages that an earlier run stored. Namespaces and ranks come first. One code per page in
/// `result_codes`:
///   ok                 it is live; also when it was restored before
///   stale              another key claims the slot as well: it is unknown which is right, so neither has it
///   exists             the rank has another page of this key
///   out_of_range       no such rank, or no such slot
///   unknown_namespace  no such namespace
///   invalid_argument   null key, generation 0, or another shard's key
struct restore_request {
  packed<stored_page> pages;
};

/// Still before service begins: restored pages whose slots are also claimed by pages of another shard, as the rank's
/// allocator found. One code per slot in `result_codes`: ok or not_found.
struct drop_restored_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<slot_ref> slots;
};

/// The result of all restoring.
struct restore_report {
  std::uint64_t pages = 0;
  std::uint64_t keys = 0;
  /// Pages that were dropped because another one claims the slot, and all others that were refused.
  std::uint64_t displaced = 0;
  std::uint64_t refused = 0;
};

struct registry_stats {
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t invalidated_pages = 0;
  std::uint64_t expired_leases = 0;
  std::uint64_t expired_reservations = 0;
  std::uint64_t refused = 0;
  std::uint64_t resident_bytes = 0;
  /// Live pages that slot clients gave back; pages erased or cleared.
  std::uint64_t reclaimed_pages = 0;
  std::uint64_t erased_pages = 0;
  /// Slots without a page that leases, protection or a time limit still hold.
  std::uint64_t withheld_slots = 0;
  /// Pages that did not verify, by tier.
  std::uint64_t invalidated_in_memory = 0;
  std::uint64_t invalidated_on_disk = 0;
  /// Keys that are evicted first, because another node has them as well.
  std::uint64_t evict_first_keys = 0;
};

} // namespace troupe
