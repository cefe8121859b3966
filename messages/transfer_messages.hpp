#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/page_origin.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>

/// What an engine says to its coordinators, and the coordinators to the copy engine. One set of coordinators serves
/// one namespace; load and save coordinators also serve one rank.

namespace troupe {

/// Which leading keys of a sequence are complete on all ranks?
struct lookup_task {
  packed<key_digest> keys;
  /// How long the answer must stay true without a word from the client.
  duration lease_for{};
  /// Asks for `lookup_result::on_disk`.
  bool tell_on_disk = false;
};

/// The leading `matched` keys are complete and held by `lease` until it is released or runs out. Nothing is held,
/// and `lease` is all zero, when nothing matched.
struct lookup_result {
  std::uint32_t matched = 0;
  ticket lease;
  /// Where that was asked, as in `match_reply`: one for each key that matched, or empty.
  packed<std::uint8_t> on_disk = {};
  /// Less than was asked for where the node gives no such lease; zero: as long as was asked for.
  duration lease_for = {};
};

/// Move blocks of paged KV cache to storage (save) or back (load).
struct transfer_task {
  packed<key_digest> keys;
  /// The blocks that hold the KV of `keys[0]`, those of `keys[1]`, and so on: for each key as many as make a page. A
  /// load may name `null_block`, in any place, for what must not be written.
  packed<std::uint32_t> blocks;
  /// Save only: the key before `keys[0]`, null for the first block of a sequence.
  key_digest parent;
  /// When the answer is due at the latest.
  duration deadline{};
  /// By what the sender cancels the task; tasks may share one. 0: not at all.
  std::uint64_t tag = 0;
  /// What has to happen before blocks are read or written: a number that the copy engine of the rank knows, in the same
  /// process, as one from its `device_event_table`. 0: nothing.
  std::uint64_t ready_event = 0;
  /// Save only: as `finish_request::origin`.
  page_origin origin = page_origin::client;
};

/// Where the time of a task went: how long at least one request of each kind was under way. Kinds overlap, since one
/// batch is written while the next is gathered, so their sum may exceed the whole.
struct transfer_timing {
  /// Asking the registry for reservations or locations.
  duration registry{};
  /// At the copy engine, from order to answer.
  duration copy{};
  /// Of that: moving bytes and checking them, summed over all batches.
  duration move{};
  /// Asking for frames, pages being read into them, and having them filled.
  duration io{};
  /// Commit, or release of the lease.
  duration finish{};
  /// Waiting because as many pages are under way as may be.
  duration window_wait{};
};

/// One code per block, as `errc`. Save: ok or exists mean that the page is stored. Load: only ok means that the
/// block was filled.
struct transfer_result {
  packed<std::uint8_t> results;
  /// Payload bytes moved by this task.
  std::uint64_t bytes = 0;
  transfer_timing timing;
  /// Load: of the blocks that were filled, those whose page had to be read from the slab first.
  std::uint64_t from_disk = 0;
  /// Load, where the storage of the node is shared: of the blocks that were filled, those that were read from its slab
  /// file by this side. And pages that were to be, and were asked of the node instead: another page, or a newer one,
  /// lay in their place; what lay there was no sound page; it could not be read, or not in time.
  std::uint64_t from_files = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
};

/// Where the pages of one rank lie, for who shares the storage of the node.
struct shared_slab {
  /// Of the file, below the directory that all nodes share. Empty: nowhere that others could read.
  std::string path{};
  /// Which file it is that is meant, among all that ever lay there.
  incarnation_number incarnation = 0;

  friend bool operator==(const shared_slab&, const shared_slab&) = default;
};

/// One page from a slot of a slab file into a block.
struct read_item {
  key_digest key;
  slot_ref where;
  std::uint32_t block = 0;
  /// For want of padding.
  std::uint32_t unused = 0;

  friend bool operator==(const read_item&, const read_item&) = default;
};

/// Read, verify, and put into blocks what verifies; answered within `patience`, and a moment.
struct read_order {
  shared_slab file;
  packed<read_item> items;
  duration patience{};
};

/// One code per item, as `errc`.
struct read_reply {
  packed<std::uint8_t> results;
};

/// One page between a block and a frame of the arena.
struct copy_item {
  key_digest key;
  slot_ref where;
  std::uint64_t frame_offset = 0;
  std::uint32_t block = 0;
  /// For want of padding.
  std::uint32_t unused = 0;

  friend bool operator==(const copy_item&, const copy_item&) = default;
};

/// Gather: block → frame, then header and checksum. Scatter: identity and checksum are verified, then frame → block; a
/// page that does not verify is not scattered.
struct copy_order {
  /// Under which attachment the frames were pinned.
  owner_id owner = 0;
  packed<copy_item> items;
  /// Where pages are made of several blocks: those behind `copy_item::block`, equally many for each item, in the order
  /// of the items. Empty where a page is one block.
  packed<std::uint32_t> further_blocks{};
  /// As in `transfer_task`.
  std::uint64_t ready_event = 0;
};

/// One code per item, as `errc`.
struct copy_reply {
  packed<std::uint8_t> results;
  /// What it took to move the bytes, and to seal or check the pages.
  duration move{};
};

} // namespace troupe
