#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/page_origin.hpp"
#include "messages/io_messages.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>

/// Messages from an engine to its coordinators, and from these to the copy engine. One set of coordinators serves one
/// namespace; load and save coordinators also serve one rank.

namespace troupe {

/// The part of a lookup of each key that is about pages of other nodes. First they are searched for the keys that a
/// lookup of this node did not find; then those are fetched that a hit of all groups of KV caches needs.
struct peer_step {
  enum class kind : std::uint8_t {
    none,
    /// Ask other nodes for the keys, and nothing else. The answer has `found` and `search`, and no lease here.
    search,
    /// Fetch the keys of `search`, then look them up. Without keys, only what the search holds is released.
    fetch,
  };
  kind what = kind::none;
  /// Fetch: as in `lookup_result`.
  std::uint64_t search = 0;
  /// Fetch: as in `fetch_pages_request`.
  packed<key_digest> parents{};
  /// Search: how long the same lookup has waited for earlier searches and fetches.
  duration waited{};
};

/// What a lookup had from other nodes.
struct peers_share {
  /// How often they were searched, or asked for keys.
  std::uint32_t requests = 0;
  /// The keys that were fetched.
  std::uint32_t keys = 0;
  /// How long that took together.
  duration took{};

  peers_share& operator+=(const peers_share& x) noexcept {
    requests += x.requests;
    keys += x.keys;
    took += x.took;
    return *this;
  }
  friend bool operator==(const peers_share&, const peers_share&) = default;
};

/// Requests the number of leading keys of a sequence that are complete on all ranks; or, with `each`, which of the keys
/// are.
struct lookup_task {
  packed<key_digest> keys;
  /// How long the keys have to stay leased without a renewal.
  duration lease_for{};
  /// Asks for `lookup_result::on_disk`.
  bool report_on_disk = false;
  /// Finds every complete key, also behind missing ones, on this node only. The caller decides which of them it uses,
  /// and has the rest given back (`retain_atom`): only then the keys count as used.
  bool each = false;
  /// With `each`.
  peer_step peers{};
  /// As in `match_request`.
  std::string request = {};
};

/// The leading `matched` keys, or with `each` those that are marked in `found`, are complete and held by `lease` until
/// it is released or expires. When nothing matched, nothing is held, and `lease` is all zero.
struct lookup_result {
  std::uint32_t matched = 0;
  ticket lease;
  /// If requested, as in `match_reply`: one for each key that matched, or empty.
  packed<std::uint8_t> on_disk = {};
  /// The granted time, where it is less than requested; zero: as requested.
  duration lease_for = {};
  /// With `each`: 1 for each key of the task that is complete and leased, else 0. Then `on_disk`, if not empty, has one
  /// mark for each key of the task as well. Fewer marks than keys where the node accepts fewer at once.
  packed<std::uint8_t> found = {};
  /// Of a search at other nodes: its name for the fetch, and `found` has the keys that they have. 0: none.
  std::uint64_t search = 0;
  /// With `each`: whether there are other nodes that may have what was not found.
  bool has_peers = false;
  peers_share peers = {};
};

/// Move blocks of paged KV cache to storage (save) or back (load).
struct transfer_task {
  packed<key_digest> keys;
  /// The blocks with the KV of `keys[0]`, those of `keys[1]`, and so on: `blocks_per_page` for each key. A load may
  /// have `null_block` at any position, for a block that must not be written.
  packed<std::uint32_t> blocks;
  /// Save only: the key before `keys[0]`, null for the first block of a sequence.
  key_digest parent;
  /// The time until the answer is due at the latest.
  duration deadline{};
  /// The tag by which the sender cancels the task; tasks may share one. 0: it cannot be cancelled.
  std::uint64_t tag = 0;
  /// The event after which blocks may be read or written: its number in the `device_event_table` of the rank's copy
  /// engine, in the same process. 0: none.
  std::uint64_t ready_event = 0;
  /// Save only: as `finish_request::origin`.
  page_origin origin = page_origin::client;
  /// Save only: whether each key is the parent of the next one. Otherwise none has a parent: they are evicted in the
  /// order of their use, as pages of a window or states, of which a later one is worth no less without an earlier one.
  bool chained = true;
};

/// The time of a task by kind of request: how long at least one of each kind was in progress. Kinds overlap, since one
/// batch is written while the next is gathered, so their sum may exceed the total.
struct transfer_timing {
  /// Requests to the registry for reservations or locations.
  duration registry{};
  /// The copy engine, from order to answer.
  duration copy{};
  /// The part of that for moving and checking bytes, summed over all batches.
  duration move{};
  /// Requests for frames, including reads into them, and filling them.
  duration io{};
  /// Commit, or release of the lease.
  duration finish{};
  /// Waiting because the window of pages in progress is full.
  duration window_wait{};
};

/// One code per block, as `errc`. Save: ok or exists mean that the page is stored. Load: only ok means that the
/// block was filled.
struct transfer_result {
  packed<std::uint8_t> results;
  /// Payload bytes moved by this task.
  std::uint64_t bytes = 0;
  transfer_timing timing;
  /// Load: blocks that were filled from a page that had to be read from the slab first.
  std::uint64_t from_disk = 0;
  /// Load, where the storage of the node is shared: filled blocks that this side read from its slab file. Then the
  /// pages that could not be read there and were requested from the node: another or a newer page was in the slot; the
  /// page did not verify; it could not be read, or not in time.
  std::uint64_t from_files = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
};

/// The slab file of one rank, for readers with access to the node's storage.
struct shared_slab {
  /// Its path, relative to the directory that all nodes share. Empty: others cannot read it.
  std::string path{};
  /// Distinguishes the file from earlier ones with that path.
  incarnation_number incarnation = 0;

  friend bool operator==(const shared_slab&, const shared_slab&) = default;
};

/// A read of one page from a slot of a slab file into a block.
struct read_item {
  key_digest key;
  slot_ref where;
  std::uint32_t block = 0;
  /// Padding.
  std::uint32_t unused = 0;

  friend bool operator==(const read_item&, const read_item&) = default;
};

/// Reads and verifies pages, and copies valid ones into blocks; answered shortly after `patience` at the latest.
struct read_order {
  shared_slab file;
  packed<read_item> items;
  duration patience{};
};

/// One code per item, as `errc`.
struct read_reply {
  packed<std::uint8_t> results;
};

/// A copy of one page between a block and a frame of the arena.
struct copy_item {
  key_digest key;
  slot_ref where;
  std::uint64_t frame_offset = 0;
  std::uint32_t block = 0;
  /// As `frame_size`, or `as_it_is`. In a frame for encoded pages, a page that has no encoding is not stored:
  /// `unsupported`.
  std::uint32_t frame = 0;
  /// Gather: a whole frame, for a page that is known to have no encoding.
  static constexpr std::uint32_t as_it_is = 2;

  bool in_encoded_frame() const noexcept { return frame == static_cast<std::uint32_t>(frame_size::encoded); }

  friend bool operator==(const copy_item&, const copy_item&) = default;
};

/// Gather: block → frame, then header and checksum. Scatter: identity and checksum are verified, then frame → block; a
/// page that does not verify is not scattered.
struct copy_order {
  /// The attachment under which the frames were pinned.
  owner_id owner = 0;
  packed<copy_item> items;
  /// Where a page has several blocks: those after `copy_item::block`, equally many for each item, in the order of the
  /// items. Empty where a page is one block.
  packed<std::uint32_t> further_blocks{};
  /// As in `transfer_task`.
  std::uint64_t ready_event = 0;
};

/// One code per item, as `errc`.
struct copy_reply {
  packed<std::uint8_t> results;
  /// The time to move the bytes, and to seal or check the pages.
  duration move{};
  /// Gather: one per item, 1 where the page is stored encoded. Empty if none is.
  packed<std::uint8_t> encoded{};
};

} // namespace troupe
