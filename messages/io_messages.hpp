#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>

/// What is said to the io worker of one rank: where its pages lie in memory, and that they shall.

namespace troupe {

/// The memory in which a node keeps pages, shared with every client that is attached. By `name` the client finds it,
/// see `io::shared_memory_finder`.
struct arena_info {
  std::uint64_t bytes = 0;
  /// What it is lent to ranks in; a page lies in one extent. A client's device may lock it piece by piece.
  std::uint64_t extent_bytes = 0;
  packed<std::uint8_t> name{};
  /// It is on another host, or treated so, and cannot be mapped: the client exposes memory of its own, and the node
  /// moves pages between the two. Then nothing else above says anything.
  bool elsewhere = false;
  /// With that: the IPv4 addresses of the node, in the byte order of hosts, from which it will connect.
  packed<std::uint32_t> movers{};
};

/// Memory of a client, of one rank, in which the node may put pages, and from which it may get them: see
/// `io/remote_memory.hpp`. It is cut into frames like an extent of the arena.
struct remote_offer {
  packed<std::uint8_t> address{};
  packed<std::uint8_t> key{};
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t frame_bytes = 0;
  /// What stands at its beginning now, so that the node knows that it has found it.
  packed<std::uint8_t> proof{};
};

/// From the transport to whoever moves pages between hosts: what was under way has ended.
struct remote_news {
  enum class kind : std::uint8_t { moved, lost, closed };
  std::uint8_t what = 0;
  /// As `errc`.
  std::uint8_t code = 0;
  std::uint64_t job = 0;
  std::string text{};
};

/// Frames of these pages are the client's, until it says that it is done with them, or is known to be gone. Unique in
/// the life of a node.
using pin_number = std::uint64_t;

/// Where one page lies: `offset` from the start of the arena, or of the memory that the client has offered; the whole
/// slot with its header, or why it does not.
struct page_frame {
  std::uint64_t offset = 0;
  std::uint32_t status = 0;
  /// Whether it had to be read from the slab. For want of padding, in 32 bits.
  std::uint32_t promoted = 0;

  errc code() const noexcept { return errc_from_wire(status); }

  friend bool operator==(const page_frame&, const page_frame&) = default;
};

/// Asks for frames: for reserved pages that are about to be gathered (place), or for stored pages that are about to be
/// scattered (fetch), which are read from the slab where they are not in memory. Answered when all of them are there,
/// at the latest after `patience`; in that answer, pages may have no frame.
struct frame_request {
  packed<page_ref> pages;
  duration patience{};
};

/// One frame per page. Those that are ok are pinned by `pin`, which is 0 if none is.
struct frame_reply {
  pin_number pin = 0;
  packed<page_frame> frames;
};

/// Ends the pin of a place. Pages that are gathered and sealed are stored from now on, at least in memory: readable as
/// soon as they are committed. The frames of the others are free.
struct fill_request {
  pin_number pin = 0;
  /// One per page of the place, as `errc`: ok for those that were gathered.
  packed<std::uint8_t> gathered;
  /// Where pages have to be on disk before they are committed: how long that may take.
  duration deadline{};
};

/// A page in memory that is about to be written to the slab.
struct check_item {
  page_ref page;
  /// From the start of the arena.
  std::uint64_t offset = 0;

  friend bool operator==(const check_item&, const check_item&) = default;
};

/// Are these the pages that were saved, every byte of them?
struct check_order {
  packed<check_item> items;
};

/// From a shard, about a lease that a lookup has taken: these pages of the rank will probably be fetched. `first` is
/// the place of the first of them among the keys that the lease has in this shard.
struct prefetch_request {
  std::uint32_t shard = 0;
  ticket lease;
  std::uint32_t first = 0;
  packed<page_ref> pages;
};

/// Of that lease only the first `keep` keys are left.
struct prefetch_end {
  std::uint32_t shard = 0;
  ticket lease;
  std::uint32_t keep = 0;
};

/// One code per page, as `errc`.
struct io_reply {
  packed<std::uint8_t> results;
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
  /// Frames there are, and the bytes of each.
  std::uint64_t frames = 0;
  std::uint64_t frame_bytes = 0;
  /// Frames with a page that can be read, and those of them that are not on disk.
  std::uint64_t resident_pages = 0;
  std::uint64_t dirty_pages = 0;
  /// Frames that somebody has pinned, and those of them whose page is gone.
  std::uint64_t pinned_frames = 0;
  std::uint64_t orphaned_frames = 0;
  /// Pages that were fetched and were in memory.
  std::uint64_t memory_hits = 0;
  /// Pages that left memory for others, and were on disk.
  std::uint64_t demotions = 0;
  /// Pages in memory that were not what had been saved when they were to be written.
  std::uint64_t damaged_pages = 0;
  /// Of the dirty pages: those that nobody has asked for since they were saved, and that are not written before. And
  /// how many such have left memory, and were nowhere else.
  std::uint64_t unasked_pages = 0;
  std::uint64_t given_up_pages = 0;
  /// Pages that were read because a lookup had found them, before anybody fetched them; those of them that were fetched
  /// then; and pages that were to be read, and were not because their lease had ended, or too many waited.
  std::uint64_t prefetched_pages = 0;
  std::uint64_t prefetch_hits = 0;
  std::uint64_t prefetches_cancelled = 0;
  /// Extents that the rank has been lent, and how many have gone back.
  std::uint64_t extents = 0;
  std::uint64_t returned_extents = 0;
  /// Pages of the slab that were read although nobody asked for them; those of them that were not sound; and how often
  /// all of them were gone over.
  std::uint64_t scrubbed_pages = 0;
  std::uint64_t scrub_unsound_pages = 0;
  std::uint64_t scrub_passes = 0;
  /// Pages that clients have got, and pages that they have handed over.
  std::uint64_t loaded_pages = 0;
  std::uint64_t saved_pages = 0;
  /// Of the slab file; 0 where pages live in memory only.
  std::uint64_t slab_slots = 0;
};

/// What a rank says of its memory to who distributes it among all of them (`memory_broker_actor`).
struct memory_report {
  namespace_id space;
  rank_number rank = 0;
  /// It was short of memory a moment ago, and the arena had none.
  bool wants = false;
  std::uint32_t extents = 0;
  /// In which there is no page; of an extent without pages, all of it.
  std::uint64_t free_bytes = 0;
  /// For how long the page was not used that was not for longest; 0 if there is none.
  duration oldest{};
};

} // namespace troupe
