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

/// What is said to a registry shard. A client splits its batch of keys over the shards (`shard_of`), keeping the
/// order, so that every message carries the shard's part of one batch.

namespace troupe {

/// What a caller from outside may hold, so that it cannot keep writers from getting slots. Zeros set no bound: so it is
/// for clients whose requests the node makes itself.
struct lease_bounds {
  /// Leases of the owner with keys in one shard.
  std::uint32_t leases = 0;
  /// How many keys all leases of the owner may hold in a namespace, in millionths of those it has room for.
  std::uint32_t share = 0;
  /// The same for all callers together that may only read; 0: this is none of them.
  std::uint32_t readers_share = 0;

  friend bool operator==(const lease_bounds&, const lease_bounds&) = default;
};

/// A share of everything.
inline constexpr std::uint32_t whole_share = 1'000'000;

/// Looks up a run of keys in prefix order and takes a lease on the leading complete ones. With the same lease again:
/// adds to it (a repeated request finds what the first one did). limit_exceeded beyond the bounds.
struct match_request {
  namespace_id space;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
  lease_bounds bounds = {};
  /// Asks for `match_reply::on_disk`.
  bool tell_on_disk = false;
  /// For another node, where the keys are used then, found here or not. The node's front says it, not the client.
  bool by_peer = false;
};

/// How many leading keys of the request are complete and now leased.
struct match_reply {
  std::uint32_t matched = 0;
  /// How often keys have been asked for under the lease, see `release_request`. 0: there is no lease.
  std::uint32_t uses = 0;
  /// Where that was asked, for each key that matched: 1 if the page of at least one rank is not in the memory of the
  /// node now, so that it would have to be read first, else 0. Empty where nobody knows.
  packed<std::uint8_t> on_disk = {};
};

/// Where the pages of one rank lie; takes a lease on the keys that are found.
struct locate_request {
  namespace_id space;
  rank_number rank = 0;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
  lease_bounds bounds = {};
  /// Asks for `locate_reply::in_slab`.
  bool tell_in_slab = false;
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
  /// Where that was asked, for each key: 1 if its page is in the slab file now, whole, so that who shares the storage
  /// may read it there, else 0. An expectation: who reads has to verify. Empty where nobody knows.
  packed<std::uint8_t> in_slab = {};
};

/// Gives a lease back. With `keep` > 0, only the keys after the first `keep` of the lease's keys, in the order they
/// were leased, are given back: a lookup over several shards trims what lies beyond the shortest answer. For a lease
/// that may have held keys before, it says with `uses` which lookup it means: of the keys which that one brought, those
/// stay that are among its first `keep`; and all do if the lease has been used since, by whom they may have been found.
struct release_request {
  namespace_id space;
  ticket lease;
  std::uint32_t keep = 0;
  /// As in `match_reply`; 0: `keep` counts the lease's keys.
  std::uint32_t uses = 0;
  /// Answers not_found for a lease that there is not and was not lately; else that is success.
  bool must_exist = false;
  /// From another node of the cluster, which gives all of the lease back: of these keys it keeps pages that it has made
  /// new under the lease, so that they may go here before others. Keys that the lease does not list are passed over.
  packed<key_digest> kept_there = {};
};

/// Prolongs a lease; not_found when it is gone.
struct renew_request {
  namespace_id space;
  ticket lease;
  duration lease_for{};
};

/// Asks for slots to write the pages of one rank. `parents` is empty, or has one entry per key (null: first block of
/// a sequence, or unknown). The reservation `ticket` covers all keys of the request; the same ticket again gets the
/// answer of the first request.
struct reserve_request {
  namespace_id space;
  rank_number rank = 0;
  troupe::ticket ticket;
  duration expires_in{};
  packed<key_digest> keys;
  packed<key_digest> parents;
};

/// One per key. ok: write to `where` and commit. exists: nothing to do. busy: somebody else is writing it.
/// full: no slot could be had.
struct reserve_reply {
  packed<location> results;
};

/// Ends reservations, by commit or by abort (two different messages).
struct finish_request {
  namespace_id space;
  rank_number rank = 0;
  troupe::ticket ticket;
  packed<page_ref> pages;
  /// For a ticket that names no reservation, nor did lately: a commit of a live page answers not_owner, and an abort of
  /// all not_found as a whole; else these succeed.
  bool must_exist = false;
  /// A commit: of the keys that get their first page by it.
  page_origin origin = page_origin::client;
};

/// One code per page, as `errc`.
struct finish_reply {
  packed<std::uint8_t> results;
};

/// Says that committed pages were found not to hold what they must: they are unpublished if key, rank, slot and
/// generation still agree. `reasons` are one `errc` per page, `tiers` one `page_tier`, or none where nobody knows.
struct invalidate_request {
  namespace_id space;
  rank_number rank = 0;
  packed<page_ref> pages;
  packed<std::uint8_t> reasons{};
  packed<std::uint8_t> tiers{};

  /// Of the page at that position.
  page_tier tier(std::size_t i) const noexcept {
    return i < tiers.size() && tiers[i] < page_tier_count ? static_cast<page_tier>(tiers[i]) : page_tier::unknown;
  }
};

/// From the io worker of the rank: these pages were in memory only, and are not any more. They are unpublished, and
/// what is reserved for them ends. One code per page in `result_codes`: ok, or not_found if the key has no such page.
struct give_up_request {
  namespace_id space;
  rank_number rank = 0;
  packed<page_ref> pages;
};

/// `parent` gained (delta > 0) or lost (delta < 0) children that live in another shard.
struct child_delta {
  key_digest parent;
  std::int64_t delta = 0;

  friend bool operator==(const child_delta&, const child_delta&) = default;
};

/// Changes in one `children_request`; what is more goes into another.
inline constexpr std::size_t child_changes_max = 16384;

/// From one shard to another: how many children keys have. While it has some, a key is not evicted before them.
struct children_request {
  namespace_id space;
  packed<child_delta> changes;
};

/// From an allocator that runs low: evict keys until `wanted` slots of the rank are on their way back.
///
/// A key that goes frees a slot on each of its ranks, and ranks become short together. So a request evicts nothing if
/// slots have been released, for whichever rank, that the allocator had not heard of: it asks again when it has counted
/// them, if it still needs more.
struct evict_request {
  /// The allocator knows of everything that was released before the request arrives.
  static constexpr std::uint64_t all = ~std::uint64_t{0};

  namespace_id space;
  rank_number rank = 0;
  std::uint32_t wanted = 0;
  /// Whatever can go, and not only what is due: else a shard waits for others to evict children of its oldest keys.
  bool force = false;
  /// `release_progress::released` of this shard and rank that the allocator had heard of when it counted its slots.
  std::uint64_t seen = all;
};

/// How many slots of the rank have come back since what was seen, for whomever they were evicted, and whether there may
/// be more: false means that nothing else of this shard can be evicted at present.
struct evict_reply {
  std::uint32_t slots = 0;
  bool more = false;
  release_progress progress{};
};

// -- for slot clients: they know a page by key and slot number only ---------------------------------------------------
//
// They have no owner id, no tickets, leases or generations, and read and write slab files themselves. What keeps their
// slots from being reused under them is time: see docs/decisions/0006-slot-clients.md. Each request is one
// message per shard with the shard's part of the keys, except where slots alone are named.

/// In place of a rank: all ranks of the namespace.
inline constexpr rank_number all_ranks = 0xffffffff;

/// One code per item of the request, in its order, as `errc`.
struct result_codes {
  packed<std::uint8_t> results;
};

/// Which keys are complete, or, with a rank, of which it has a live page. One code per key: ok or not_found. Nothing is
/// held and nothing counts as use.
struct exists_request {
  namespace_id space;
  rank_number rank = all_ranks;
  packed<key_digest> keys;
};

/// Where the pages of one rank lie. Until `protect_for` from now has passed, keys that are found are not evicted, and
/// slots told are not reused even if their pages are unpublished. Counts as use. Answered with `locate_reply`.
struct protect_request {
  namespace_id space;
  rank_number rank = 0;
  /// Find complete keys only; else whatever has a live page of the rank.
  bool complete_only = false;
  duration protect_for{};
  packed<key_digest> keys;
  /// As in `lease_bounds`; what is protected counts with what is leased.
  std::uint32_t readers_share = 0;
};

/// Asks for slots to write pages of one rank. While a page is reserved, whoever asks for it gets the same slot, and the
/// time starts again. Answered with `reserve_reply`, one per key, equal for equal keys:
///   ok      write to `where`, then confirm
///   exists  the page is live at `where`, and protected as long as a reservation would last: it may be written again
///   busy    a writer with a ticket is at it, or slots for it are being asked for
///   full    no slot could be had
/// `parents` as in `reserve_request`; a key that is given as its own parent has none.
struct allocate_request {
  namespace_id space;
  rank_number rank = 0;
  duration expires_in{};
  packed<key_digest> keys;
  packed<key_digest> parents;
};

/// Says that pages were written to the slots that `allocate_request` gave. Generations are 0, for whatever it is, or
/// must agree. Answered with `result_codes`:
///   ok            the page is live there, now or since before
///   expired       too late: the slot was taken back
///   stale         the key has another slot
///   not_owner     a writer with a ticket is at it
///   not_found     nothing is reserved, nor live, for the key and rank
///   out_of_range  the rank has no such slot
struct confirm_request {
  namespace_id space;
  rank_number rank = 0;
  packed<page_ref> pages;
};

/// Gives slots back whose writing failed. Slots name no shard: every shard is asked, and `reclaim_sum` makes one answer
/// of all, which is one of `result_codes`:
///   ok            what was reserved can be reserved anew, with another slot; a live page, whose bytes are suspect,
///                 is unpublished. The slot follows when neither lease, protection nor the time of the reservation hold
///                 it: the number may be late, and meant for who had the slot before
///   busy          another writer was given the same slot: it stays reserved until confirmed, or for its time
///   not_owner     a writer with a ticket has it
///   not_found     no key has this slot: it is free, on its way to it, or was never given out
///   out_of_range  the rank has no such slot
/// unsupported as a whole unless the namespace has a `slot_index`.
struct reclaim_request {
  namespace_id space;
  rank_number rank = 0;
  packed<slot_number> slots;
};

/// One shard at most knows a slot; those that do not, say not_found.
constexpr errc reclaim_sum(errc a, errc b) noexcept {
  return a == errc::not_found ? b : a;
}

/// Unpublishes the pages of the keys, on one rank or on all; children stay. One code per key in `result_codes`: ok, or
/// not_found where nothing was live. What is being written stays reserved. Slots that leases or protection hold follow
/// when these end.
struct erase_request {
  namespace_id space;
  rank_number rank = all_ranks;
  packed<key_digest> keys;
};

/// Erases all keys of this shard, on one rank or on all, a bounded number per call: to be asked again with `from` =
/// `clear_reply::next` while there is `more`. Pages that are published meanwhile may go or stay. Ranks stay registered.
struct clear_request {
  namespace_id space;
  rank_number rank = all_ranks;
  std::uint32_t from = 0;
};

struct clear_reply {
  /// Unpublished by this call.
  std::uint64_t pages = 0;
  std::uint32_t next = 0;
  bool more = false;
};

/// From an io worker, which reads what nobody asks for: live pages of the rank in this shard, at most so many, going
/// over its keys from `from` on. To be asked again with `from` = `list_pages_reply::next` while there is `more`; pages
/// that come meanwhile may be missing.
struct list_pages_request {
  namespace_id space;
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

/// Who brought a namespace into being, and so what a restart makes of it: see
/// docs/decisions/0005-what-the-store-keeps.md.
enum class namespace_origin : std::uint8_t {
  /// A client of the native API. Its engines have slab files of their own.
  api,
  /// The config, with slab files of the node.
  config,
  /// An engine that said no more than a name, over one of the wires of the `hf3fs` section. It has slab files of its
  /// own, and which namespace they belong to depends on that section.
  wire,
  /// A client that attached to it, with slab files of the node that grow.
  client,
};

/// How a shard keeps a namespace; not part of its identity.
struct namespace_options {
  /// Ranks are registered at run time, and a key is complete when every rank that is registered now has its page. The
  /// spec's world_size is 0 then. Otherwise ranks are 0 to world_size - 1.
  bool automatic = false;
  /// Remembers which key has a slot, for `reclaim_request`: 4 bytes a slot.
  bool slot_index = false;
  /// With `automatic`: ranks are below it.
  std::uint32_t max_ranks = 64;
  /// Whoever makes a namespace that is there already need not agree in this.
  namespace_origin origin = namespace_origin::api;

  friend bool operator==(const namespace_options&, const namespace_options&) = default;
};

/// Makes a namespace known. The same again is fine. identity_mismatch, naming each difference, if the name or the
/// identity is known with something else; busy while it is being removed.
struct add_namespace_request {
  namespace_spec spec;
  namespace_options options;
};

/// Forgets a namespace with its keys, a bounded number per call: to be repeated while there is `more`. From the first
/// call on the namespace is unknown to all other requests. Without `force`: busy while leases or reservations are open;
/// with it, these end.
struct remove_namespace_request {
  namespace_id space;
  bool force = false;
};

struct remove_namespace_reply {
  bool more = false;
};

/// One rank of a namespace. Fields are u64 for want of padding.
struct rank_info {
  std::uint64_t rank = 0;
  /// 0 if unknown.
  std::uint64_t slots = 0;
  /// Live pages.
  std::uint64_t pages = 0;
  /// Pages somebody is about to write.
  std::uint64_t reserved = 0;
  /// Slots that have no page any more and that leases, protection or promised time still hold.
  std::uint64_t withheld = 0;

  friend bool operator==(const rank_info&, const rank_info&) = default;
};

/// Requests that asked which keys there are, by a lease or without, the keys in them, and those that were found.
struct lookup_counts {
  std::uint64_t requests = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;

  friend bool operator==(const lookup_counts&, const lookup_counts&) = default;
};

/// One namespace in one shard. Bytes are pages × bytes of a page, which slot clients alone know.
struct namespace_info {
  namespace_spec spec;
  namespace_options options;
  /// With at least one live page; with one of every rank.
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t evicted_keys = 0;
  /// Requests, and pages.
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  packed<rank_info> ranks;
  lookup_counts lookups{};
};

/// One namespace, or all for the null id.
struct describe_request {
  namespace_id space;
};

struct describe_reply {
  std::vector<namespace_info> spaces;
};

/// What the shard has seen of when keys of a namespace are used again. `unsupported` where its policy learns nothing.
struct reuse_request {
  namespace_id space;
};

struct reuse_reply {
  /// Keys that came in, ever: what ages are counted in.
  std::uint64_t clock = 0;
  /// As `reuse_counts::numbers`.
  packed<std::uint32_t> counts;
};

/// What others have seen, in ages of this shard's clock, in place of what it was told before. Nothing where its policy
/// learns nothing.
struct learn_request {
  namespace_id space;
  packed<std::uint32_t> counts;
};

/// All that is known of one key, without any effect. not_found if there is no such key.
struct key_request {
  namespace_id space;
  key_digest key;
};

/// What one rank has of a key.
struct key_page {
  enum class use : std::uint32_t {
    live = 1,
    /// By a writer with a ticket; generation 0 while there is no slot.
    reserved = 2,
    /// By a slot client; and given to more than one.
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
  namespace_id space;
  key_digest key;
  /// Null if there is none, or none was known when the page was published.
  key_digest parent;
  slot_ref where;
  rank_number rank = 0;
  std::uint32_t unused = 0;

  friend bool operator==(const stored_page&, const stored_page&) = default;
};

/// Pages in one `restore_request`, slots in one `drop_restored_request`: enough that a message costs nothing next to
/// its pages, and little enough (under 1 MiB) that all shards together hold a few MiB of what was read.
inline constexpr std::size_t restored_pages_max = 8192;

/// Before service begins: pages that an earlier run stored. Namespaces and ranks come first. One code per page in
/// `result_codes`:
///   ok                 it is live; also when it was restored before
///   stale              another key claims the slot as well: nothing says who is right, so neither has it
///   exists             the rank has another page of this key
///   out_of_range       no such rank, or no such slot
///   unknown_namespace  no such namespace
///   invalid_argument   null key, generation 0, or another shard's key
struct restore_request {
  packed<stored_page> pages;
};

/// Still before service begins: pages that were restored, but whose slots pages of another shard claim as well, by what
/// the rank's allocator heard. One code per slot in `result_codes`: ok or not_found.
struct drop_restored_request {
  namespace_id space;
  rank_number rank = 0;
  packed<slot_ref> slots;
};

/// What came of all restoring.
struct restore_report {
  std::uint64_t pages = 0;
  std::uint64_t keys = 0;
  /// Pages that are not there for the sake of another one's claim on the slot, and all others that were not taken.
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
  /// Pages that slot clients gave back while live; pages erased or cleared.
  std::uint64_t reclaimed_pages = 0;
  std::uint64_t erased_pages = 0;
  /// Slots that have no page any more and that leases, protection or promised time still hold.
  std::uint64_t withheld_slots = 0;
  /// Of the pages that were found bad.
  std::uint64_t invalidated_in_memory = 0;
  std::uint64_t invalidated_on_disk = 0;
  /// That go before others, since another node has them as well.
  std::uint64_t spare_keys = 0;
};

} // namespace troupe
