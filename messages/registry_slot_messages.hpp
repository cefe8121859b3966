#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/packed.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>

/// Messages to a registry shard from slot clients, which know a page by key and slot number only.
///
/// They have no owner id, tickets, leases or generations, and read and write slab files themselves. Their slots are
/// protected from reuse by time limits: see docs/decisions/0006-slot-clients.md. Each request is one message per shard
/// with the shard's part of the keys, except where only slots are named.

namespace troupe {

/// Used instead of a rank: all ranks of the namespace.
inline constexpr rank_number all_ranks = 0xffffffff;

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

} // namespace troupe
