#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_address.hpp"
#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// Messages to the io worker of one rank: where its pages are in memory, and the requests to keep them there.

namespace troupe {

/// The memory in which a node keeps pages, shared with all attached clients. A client finds it by `name`, see
/// `io::shared_memory_finder`.
struct arena_info {
  std::uint64_t bytes = 0;
  /// The unit in which it is assigned to ranks; a page is in one extent. A client's device may lock it extent by
  /// extent.
  std::uint64_t extent_bytes = 0;
  packed<std::uint8_t> name{};
  /// Set: it is on another host, or treated so, and cannot be mapped. The client exposes memory of its own, and the
  /// node moves pages between the two. The fields above are then unused.
  bool elsewhere = false;
  /// With that: the addresses from which the node connects.
  packed<host_address> movers{};
};

/// Memory of a client, for one rank, which the node may write pages to and read pages from: see
/// `io/memory/remote_memory.hpp`. It is cut into frames like an extent of the arena.
struct remote_offer {
  packed<std::uint8_t> address{};
  packed<std::uint8_t> key{};
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t frame_bytes = 0;
  /// The bytes at its beginning, by which the node checks that it has reached the right memory.
  packed<std::uint8_t> proof{};
};

/// From the transport to the mover of pages between hosts: a transfer has ended.
struct remote_news {
  enum class kind : std::uint8_t { moved, lost, closed };
  std::uint8_t what = 0;
  /// As `errc`.
  std::uint8_t code = 0;
  std::uint64_t job = 0;
  std::string text{};
};

/// Counts of transfers between a node and memory of clients on other hosts, including other nodes: of a whole node
/// since its start, or of one remote worker.
struct remote_stats {
  /// From here to there, as in loads; then the other way, as in saves.
  std::uint64_t put_pages = 0;
  std::uint64_t got_pages = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t got_bytes = 0;
  /// Pages that did not arrive, or did not verify.
  std::uint64_t put_failures = 0;
  std::uint64_t got_failures = 0;
  /// How often the memory of an attached client was lost.
  std::uint64_t lost = 0;
  /// Connections to memory of clients that were lost while others to the same memory went on, and those of them that
  /// were opened again; of a whole node only.
  std::uint64_t streams_lost = 0;
  std::uint64_t streams_reopened = 0;

  remote_stats& operator+=(const remote_stats& x) noexcept {
    put_pages += x.put_pages;
    got_pages += x.got_pages;
    put_bytes += x.put_bytes;
    got_bytes += x.got_bytes;
    put_failures += x.put_failures;
    got_failures += x.got_failures;
    lost += x.lost;
    streams_lost += x.streams_lost;
    streams_reopened += x.streams_reopened;
    return *this;
  }
};

/// A pin: the frames of these pages belong to the client until it reports that it has finished with them, or has ended
/// for certain. Numbers are unique in the life of a node.
using pin_number = std::uint64_t;

/// What a frame has room for: a whole slot, with any page; or the header and an encoded page
/// (`io::encoded_slot_bytes`), so that memory holds more of those.
enum class frame_size : std::uint8_t { whole, encoded };

/// The place of one page: `offset` from the start of the arena, or of the memory that the client has offered, for the
/// slot with its header; or the reason why there is no frame.
struct page_frame {
  std::uint64_t offset = 0;
  std::uint32_t status = 0;
  /// Whether it had to be read from the slab. 16 bits to avoid padding.
  std::uint16_t promoted = 0;
  /// As `frame_size`. Nothing behind an encoded frame may be accessed: it belongs to another page.
  std::uint16_t size = 0;

  errc code() const noexcept { return errc_from_wire(status); }
  bool is_encoded() const noexcept { return size == static_cast<std::uint16_t>(frame_size::encoded); }

  friend bool operator==(const page_frame&, const page_frame&) = default;
};

/// Requests frames: for reserved pages that will be gathered (place), or for stored pages that will be scattered
/// (fetch), which are read from the slab where they are not in memory. Answered when all of them are available, at the
/// latest after `patience`; some pages of the answer may have no frame.
struct frame_request {
  packed<page_ref> pages;
  duration patience{};
  /// Place: per page, the size of the frame that suffices, as `frame_size`; empty: whole frames for all. The frames of
  /// the answer may be larger.
  packed<std::uint8_t> sizes{};
};

/// One frame per page. Those that are ok are pinned by `pin`, which is 0 if none is.
struct frame_reply {
  pin_number pin = 0;
  packed<page_frame> frames;
};

/// Ends the pin of a place. Gathered and sealed pages are stored from now on, at least in memory, and readable as soon
/// as they are committed. The frames of the others are free.
struct fill_request {
  pin_number pin = 0;
  /// One per page of the place, as `errc`: ok for gathered pages.
  packed<std::uint8_t> gathered;
  /// The time limit for the write, where pages have to be on disk before they are committed.
  duration deadline{};
};

/// A page in memory that is about to be written to the slab.
struct check_item {
  page_ref page;
  /// From the start of the arena.
  std::uint64_t offset = 0;
  /// The bytes of its frame.
  std::uint64_t bytes = 0;

  friend bool operator==(const check_item&, const check_item&) = default;
};

/// Verifies that these pages are as they were saved, every byte of them.
struct check_order {
  packed<check_item> items;
};

/// From a shard, about the lease of a lookup: these pages of the rank will probably be fetched. `first` is the position
/// of the first of them among the keys of the lease in this shard.
struct prefetch_request {
  std::uint32_t shard = 0;
  ticket lease;
  std::uint32_t first = 0;
  packed<page_ref> pages;
};

/// Only the first `keep` keys of that lease are left.
struct prefetch_end {
  std::uint32_t shard = 0;
  ticket lease;
  std::uint32_t keep = 0;
};

/// One code per page, as `errc`.
struct io_reply {
  packed<std::uint8_t> results;
};

/// Pages that one attached client has loaded from a rank, and saved to it.
struct owner_pages {
  owner_id owner = 0;
  std::uint64_t loaded = 0;
  std::uint64_t saved = 0;

  friend bool operator==(const owner_pages&, const owner_pages&) = default;
};

struct io_stats {
  /// Between slab and memory: promotions and write-backs.
  std::uint64_t read_pages = 0;
  std::uint64_t written_pages = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t failed = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t fenced = 0;
  std::uint64_t in_flight = 0;
  /// The number of frames, the bytes of a whole one, and the bytes of all: frames for encoded pages have fewer.
  std::uint64_t frames = 0;
  std::uint64_t frame_bytes = 0;
  std::uint64_t memory_bytes = 0;
  /// The bytes of the frames that have a readable page.
  std::uint64_t resident_bytes = 0;
  /// Frames with a readable page, and those of them that are not on disk.
  std::uint64_t resident_pages = 0;
  std::uint64_t dirty_pages = 0;
  /// Pinned frames, and those of them whose page was unpublished.
  std::uint64_t pinned_frames = 0;
  std::uint64_t orphaned_frames = 0;
  /// Fetched pages that were in memory; then those of them that were there without a prefetch.
  std::uint64_t memory_hits = 0;
  std::uint64_t memory_loads = 0;
  /// Pages on disk that left memory to make room.
  std::uint64_t demotions = 0;
  /// Pages in memory that did not verify when they were to be written.
  std::uint64_t damaged_pages = 0;
  /// Dirty pages that have not been requested since they were saved, and are not written before that. Then how many
  /// such pages were dropped from memory, and were stored nowhere else.
  std::uint64_t unasked_pages = 0;
  std::uint64_t dropped_pages = 0;
  /// Pages that were read because a lookup had found them, before they were fetched; those of them that were fetched
  /// then; and pages that were not read because their lease had ended, or too many waited.
  std::uint64_t prefetched_pages = 0;
  std::uint64_t prefetch_hits = 0;
  std::uint64_t prefetches_cancelled = 0;
  /// Extents assigned to the rank, those of them with frames for encoded pages, and how many were reassigned.
  std::uint64_t extents = 0;
  std::uint64_t encoded_extents = 0;
  std::uint64_t returned_extents = 0;
  /// Pages of the slab that the scrub has read; those of them that did not verify; and completed passes.
  std::uint64_t scrubbed_pages = 0;
  std::uint64_t scrub_unsound_pages = 0;
  std::uint64_t scrub_passes = 0;
  /// Pages loaded by clients, and pages saved by them.
  std::uint64_t loaded_pages = 0;
  std::uint64_t saved_pages = 0;
  /// The payloads of saved pages, and the bytes in which they are stored.
  std::uint64_t saved_payload_bytes = 0;
  std::uint64_t saved_stored_bytes = 0;
  /// Slots of the slab file; 0 where pages are in memory only.
  std::uint64_t slab_slots = 0;
  /// The most slots beyond the slab file, for pages that are in memory only.
  std::uint64_t memory_slots = 0;
  /// Pages that are in memory only and are not written, because the slab has no slot for them; not counted as dirty.
  std::uint64_t memory_pages = 0;
  /// Of a sparse slab file: the disk space that it may use, the part of it that its slots occupy, and how many pages it
  /// has, with the bytes that these need. All 0 for others, whose slots all have the size of a whole page.
  std::uint64_t slab_bytes = 0;
  std::uint64_t slab_occupied_bytes = 0;
  std::uint64_t slab_pages = 0;
  std::uint64_t slab_page_bytes = 0;
  /// Clients that have loaded or saved pages and are attached, in no order. Owner ids are secret, so these are summed
  /// by the node's supervisor and go no further.
  std::vector<owner_pages> owners{};
};

/// A rank's report on its memory to the `memory_broker_actor`, which distributes memory among all ranks.
struct memory_report {
  namespace_id ns;
  rank_number rank = 0;
  /// Whether it was recently short of memory, and the arena had none.
  bool wants = false;
  std::uint32_t extents = 0;
  /// Memory without a page; an extent without pages counts as a whole.
  std::uint64_t free_bytes = 0;
  /// The time since the last use of the least recently used page; 0 if there is none.
  duration oldest{};
};

} // namespace troupe
