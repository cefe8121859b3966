#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>

/// What is said to a registry shard. A client splits its batch of keys over the shards (`shard_of`), keeping the
/// order, so that every message carries the shard's part of one batch.

namespace troupe {

/// Looks up a run of keys in prefix order and takes a lease on the leading complete ones. With the same lease again:
/// adds to it (a repeated request finds what the first one did).
struct match_request {
  namespace_id space;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
};

/// How many leading keys of the request are complete and now leased.
struct match_reply {
  std::uint32_t matched = 0;
};

/// Where the pages of one rank lie; takes a lease on the keys that are found.
struct locate_request {
  namespace_id space;
  rank_number rank = 0;
  ticket lease;
  duration lease_for{};
  packed<key_digest> keys;
};

/// One per key: `status` is ok or not_found.
struct location {
  slot_ref where;
  std::uint32_t status = 0;

  errc code() const noexcept { return status < errc_count ? static_cast<errc>(status) : errc::internal; }
  friend bool operator==(const location&, const location&) = default;
};

struct locate_reply {
  packed<location> locations;
};

/// Gives a lease back. With `keep` > 0, only the keys after the first `keep` of the lease's keys, in the order they
/// were leased, are given back: a lookup over several shards trims what lies beyond the shortest answer.
struct release_request {
  namespace_id space;
  ticket lease;
  std::uint32_t keep = 0;
};

/// Prolongs a lease; not_found when it is gone.
struct renew_request {
  namespace_id space;
  ticket lease;
  duration lease_for{};
};

/// Asks for slots to write the pages of one rank. `parents` is empty, or has one entry per key (null: first block of
/// a sequence, or unknown). The reservation `token` covers all keys of the request; the same token again gets the
/// answer of the first request.
struct reserve_request {
  namespace_id space;
  rank_number rank = 0;
  ticket token;
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
  ticket token;
  packed<page_ref> pages;
};

/// One code per page, as `errc`.
struct finish_reply {
  packed<std::uint8_t> results;
};

/// Says that committed pages were found not to hold what they must: they are unpublished if key, rank, slot and
/// generation still agree.
struct invalidate_request {
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

/// From one shard to another: keeps the children counts, which keep parents from being evicted first.
struct link_request {
  namespace_id space;
  packed<child_delta> changes;
};

/// From an allocator that runs low: evict keys until `wanted` slots of the rank are on their way back.
struct evict_request {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t wanted = 0;
};

/// How many slots of the rank are coming back, and whether there may be more: false means that nothing else of this
/// shard can be evicted at present.
struct evict_reply {
  std::uint32_t slots = 0;
  bool more = false;
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
};

} // namespace troupe
