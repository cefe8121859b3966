#pragma once

#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/io_worker/emptying_run.hpp"
#include "actors/node/io_worker/frame_sizes.hpp"
#include "actors/node/io_worker/frame_table.hpp"
#include "actors/node/io_worker/pending_fills.hpp"
#include "actors/node/io_worker/pin_table.hpp"
#include "actors/node/io_worker/prefetch_queue.hpp"
#include "actors/node/io_worker/scrub.hpp"
#include "actors/node/io_worker/scrub_slot.hpp"
#include "actors/node/io_worker/slab_usage.hpp"
#include "actors/node/io_worker/slot_fences.hpp"
#include "actors/node/io_worker/transfer_table.hpp"
#include "actors/node/io_worker/write_queue.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_tier.hpp"
#include "io/page.hpp"
#include "io/slab/page_store.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

struct io_worker_options {
  /// All slots, and how many of them, the last ones, are memory slots: beyond the slab, for pages that are in memory
  /// only. None with `write_through`.
  std::uint64_t slots = 0;
  std::uint64_t memory_slots = 0;
  /// How many slots of the slab the rank can count on, by which its memory is divided; 0: all.
  std::uint64_t expected_slab_slots = 0;
  std::uint64_t slot_bytes = 0;
  /// The bytes of a frame for an encoded page, less than `slot_bytes`; 0: all frames are whole. Not with `whole_slots`.
  std::uint64_t encoded_bytes = 0;
  /// Whether slots have to be written to their ends (`io::page_store_traits`).
  bool whole_slots = false;
  /// Whether the slab file is sparse: its slots have only the disk space that their pages need. Only with
  /// `encoded_bytes`.
  bool sparse = false;
  /// Pages live in memory only: there is no store, and nothing is written to disk.
  bool memory_only = false;
  /// A filled page counts as stored only when it is in the slab.
  bool write_through = false;
  /// Pages are written to the slab as soon as they are filled; else when memory runs short.
  bool write_eagerly = true;
  /// Pages are written to the slab only when they are requested a second time. Pages that are not requested again make
  /// room for others without having been written. Not with `write_through`.
  bool second_hit = false;
  /// With `second_hit`: the minimum time for which a saved page is kept, so that its commit comes first. Otherwise a
  /// save larger than free memory would lose its first pages to its last ones.
  duration commit_time = std::chrono::milliseconds(200);
  /// The most pages that are promoted because a lookup has found them and that no fetch has requested yet; 0: no
  /// promotion. Below: how many of them are read at once, and how many may wait.
  std::uint64_t prefetch_pages_max = 0;
  std::uint32_t prefetch_reads_max = 32;
  std::uint32_t prefetch_waiting_max = 16384;
  /// The longest time that a transfer may take, and that a request may wait for frames, whatever the client asks for.
  duration deadline_max{};
  std::uint32_t batch_pages_max = 256;
  /// The most bytes that one client may have pinned.
  std::uint64_t pinned_bytes_max = 0;
  /// The most requests that wait for frames.
  std::uint32_t waiting_max = 1024;
  /// The most pages that are read, and written back, at once.
  std::uint32_t reads_max = 256;
  std::uint32_t writes_max = 64;
  /// The delay before a failed write is retried.
  duration write_retry = std::chrono::seconds(1);
  /// The time for which writes count as failing after a failed one.
  duration write_trouble_time = std::chrono::minutes(1);
  /// The most clients at once.
  std::uint32_t clients_max = 64;
  /// The number before the first pin. Differs between runs and workers.
  pin_number first_pin = 0;
  eviction_factory eviction = make_lru_policy;
  /// Records which pages are in memory; may be null.
  std::shared_ptr<resident_slots> resident{};
  /// Options of scrubbing; its slot size is the one above.
  scrub_options scrub{};

  /// Slots of the slab.
  std::uint64_t slab_slots() const noexcept { return memory_only ? 0 : slots - memory_slots; }
  /// Whether the allocator has to be notified of the number of frames.
  bool reports_frames() const noexcept { return memory_only || memory_slots > 0; }
  /// Whether the worker has to be notified of leases.
  bool listens() const noexcept { return !memory_only && (second_hit || prefetch_pages_max > 0); }
};

/// A damaged page, and the tier where the damage was found.
struct damaged_page {
  page_ref page;
  errc why = errc::ok;
  page_tier tier = page_tier::unknown;

  bool operator==(const damaged_page&) const = default;
};

/// The rules of the io worker of one rank: which pages are in memory, who may access them, when they are written to the
/// slab and read back, and when a slot is quiesced.
///
/// Fencing. Before a slot is given to another key, its allocator fences it: from then on the worker rejects requests
/// that name the old generation, and it answers when no transfer between slab and memory uses the slot any more. So a
/// writer that was taken for dead, or a late request, can never reach the slot of another key. (A fencing token, as in
/// Kleppmann, "How to do distributed locking", 2016.)
///
/// Pins. A client copies to and from frames at times of its own. So a frame is reused only when the client that pinned
/// it has ended the pin, or is known to have ended: never after a timeout. A fence does not wait for pins; the slot
/// continues without the frame.
///
/// Admission. With `second_hit`, a saved page is held back until a fetch or lookup requests it again. When its commit
/// has had its time, it makes room in the same order as a page that is in the slab, and is then dropped. The shards
/// that list it are notified before its frame is reused. A page that is requested once more is written as usual.
///
/// Memory slots. A page with such a slot is never written. It stays in its frame until its slot is fenced, and at most
/// as many frames are used so as `io::pages_beyond_slab` allows, so that pages of the slab always find frames. If the
/// rank loses memory, pages for which there is no room any more are dropped, those used longest ago first, and the
/// shards are notified.
///
/// Promotion ahead. A page that a lookup has found, and that is only in the slab, is read before a fetch requests it.
/// Fetches have priority: nothing is read ahead while a request waits for a frame, and a fetch of a page that is being
/// read waits for that read. Such a frame is not pinned. When the lease of the lookup ends, pages that were read are
/// ordinary clean pages, and pages that wait to be read are removed from the queue.
///
/// Plain state: the actor sends `requests` to the page store, `checks` to the page checker, and answers to the
/// requesters.
class io_worker_state {
public:
  /// The number of a request that is answered later.
  using request_id = std::uint64_t;
  using fence_id = slot_fences::fence_id;

  struct answered_frames {
    request_id request = 0;
    /// Not ok: the request was rejected with this code; else `reply` counts.
    errc refused = errc::ok;
    frame_reply reply;
    std::uint32_t pages = 0;
    bool fetched = false;
    /// Whether at least one page had to be read from the slab.
    bool from_disk = false;
  };
  using answered_fill = pending_fills::answer;
  /// A page to be verified before it is written to the slab; `checked` takes the result.
  struct page_check {
    std::uint64_t number = 0;
    page_ref page;
    /// The offset from the start of the arena, and the bytes of the frame.
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  explicit io_worker_state(const io_worker_options& options);

  // -- memory --

  /// Whether an extent is needed; `add_extent` or `no_extent` follows.
  bool wants_extent() const noexcept { return sizes_.wish().requested(); }
  void add_extent(const frame_table::extent& x, timestamp now);
  /// There is no extent now. The request is repeated a second later if the need remains. With `on_its_way` it is
  /// repeated soon, and until then no page is evicted instead.
  void no_extent(bool on_its_way, timestamp now);

  // -- an extent that goes back (io_worker_emptying.cpp) --

  using emptying_end = troupe::emptying_end;

  /// Starts to empty one extent, within `patience`; `empty_some` must be called until `take_emptying_end` has a result.
  /// Pages move to frames in other extents, which are freed by evicting the next pages in order, held-back ones
  /// included. Pages that exist only here move as well, or are written first, whatever the write-back mode. Held-back
  /// pages are not written, but wait until their commit has had its time. Pinned pages, and pages with a transfer in
  /// progress, wait as well. Nothing is promoted ahead meanwhile. `must`: also when requests of this rank are short of
  /// memory.
  ///
  /// Errors: `not_found` (there is no extent), `busy` (one is being emptied), `shutting_down`.
  result<void> begin_emptying(bool must, duration patience, timestamp now);
  /// Does one step, which moves a few megabytes at most.
  void empty_some(timestamp now);
  bool emptying() const noexcept { return frames_.emptying(); }
  /// Whether the last step stopped only because it had taken long enough.
  bool may_empty_more() const noexcept { return frames_.emptying() && emptying_.paused(); }
  std::optional<emptying_end> take_emptying_end() { return emptying_.take_end(); }

  // -- clients --

  /// Requests frames for pages that the client is about to gather. Answered in `take_frames`, possibly at once. Errors:
  /// `shutting_down`, `limit_exceeded`, `timeout`, `expired` (the client has disconnected).
  ///
  /// Codes per page: `out_of_range`, `stale` (the slot belongs to another page now), `slab_damaged`, `busy` (a frame
  /// has it already), `full` (no frame within the time).
  result<request_id> place(owner_id owner, const frame_request& work, timestamp now);

  /// Requests the frames of stored pages. Codes per page: `out_of_range`, `stale`, `full`, `busy` (its writer has not
  /// filled it), `not_found` (memory only, and the page is not there, or it was dropped), or the store's error of
  /// reading it.
  result<request_id> fetch(owner_id owner, const frame_request& work, timestamp now);

  /// Ends the pin of a `place`; answered in `take_fills`, possibly at once. `not_found`: the client has no such pin.
  /// Codes per page: `stale`; the code that the client gave; or, with write-through, the store's error of writing it.
  result<request_id> fill(owner_id owner, const fill_request& work, timestamp now);

  /// Ends the pin of a `fetch`. `not_found`: the client has no such pin.
  result<void> unpin(owner_id owner, pin_number pin, timestamp now);

  /// The client has disconnected: it sends no more requests and gets no more answers. Its pins stay.
  void owner_died(owner_id owner, timestamp now);
  /// The client is quiesced and accesses no frame any more: its pins end.
  void owner_quiesced(owner_id owner, timestamp now);

  // -- shards --

  /// A lookup has found these pages: they count as requested, and are promoted if they are only in the slab.
  void prefetch(const prefetch_request& x, timestamp now);
  /// The lease has ended, or is shorter.
  void end_prefetch(const prefetch_end& x, timestamp now);

  // -- slab --

  void complete(std::span<const io::completion> completions, timestamp now);
  /// `verdict`: ok, or the fault of the page.
  void checked(std::uint64_t number, errc verdict, timestamp now);

  // -- the disk space of a sparse slab --

  /// As `slab_usage::found`, before anything else. With `pages`, the room is unknown until the first fence, which the
  /// allocator makes of all free slots when it knows the index.
  void slab_found(std::span<const std::uint64_t> occupied, bool pages) { usage_.found(occupied, pages); }
  /// There is disk space for so many whole pages now, and these slots were given theirs.
  void slab_granted(const io::slab_grant& x);
  std::uint64_t granted_slab_pages() const noexcept { return usage_.granted(); }
  /// For how many pages there is room in the slab, if that has changed.
  std::optional<std::uint32_t> take_changed_room() { return usage_.take_changed_room(); }

  // -- scrubbing (io_worker_scrub.cpp) --

  /// Starts scrubbing. Pages are read one at a time into this memory, which the store knows by that number; shards list
  /// the pages.
  void begin_scrub(std::span<std::byte> memory, std::uint32_t buffer, std::uint32_t shards, timestamp now);
  /// The list to request from a shard; `scrub_listed` or `scrub_not_listed` follows.
  std::optional<scrub::wish> take_scrub_wish(timestamp now) {
    return draining_ || damaged_ ? std::nullopt : scrub_.take_wish(now);
  }
  void scrub_listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now) {
    scrub_.listed(std::move(pages), next, more, now);
  }
  void scrub_not_listed(timestamp now) { scrub_.not_listed(now); }
  /// Starts to read the next page, if it is due.
  void scrub_some(timestamp now);
  /// The page that should now be in the scrub memory; `scrub_verdict` follows.
  std::optional<page_ref> take_scrub_check() { return scrub_slot_.take_check(); }
  void scrub_verdict(errc verdict, timestamp now);
  /// The time when `take_scrub_wish` or `scrub_some` next has something to do, unless another event comes first.
  std::optional<timestamp> next_scrub() const noexcept {
    return draining_ || damaged_ ? std::nullopt : scrub_.next(clients_read());
  }

  /// Rejects these generations from now on, and waits for transfers of these slots. Reported in `take_fenced` when none
  /// is left.
  fence_id fence(std::span<const slot_ref> slots, timestamp now);

  /// Rejects new places and fetches.
  void drain(timestamp now);
  bool draining() const noexcept { return draining_; }
  /// Whether no transfer is in progress, and all pages that belong in the slab are there, as far as possible.
  bool quiesced() const noexcept;

  /// Stops writing. Reads are still tried, because the remaining pages may be sound.
  void slab_is_damaged() {
    damaged_ = true;
    scrub_.end();
  }
  bool damaged() const noexcept { return damaged_; }

  /// The error of a recent failed write to the slab; ok if there is none. It stays for a while after the last failure,
  /// since some writes may fail and others succeed.
  errc write_trouble() const noexcept { return to_write_.trouble(); }

  /// Ends waits whose time has expired, and retries failed writes.
  void tick(timestamp now);
  /// Whether requests wait for an extent that is expected soon.
  bool waits_for_extent() const noexcept { return sizes_.wish().on_its_way() && !queue_.empty(); }
  /// Whether a timeout may expire, or a write is to be retried.
  bool needs_ticks() const noexcept { return !queue_.empty() || to_write_.any_failed(); }

  std::vector<io::page_request> take_requests() { return std::exchange(requests_, {}); }
  std::vector<page_check> take_checks() { return std::exchange(checks_, {}); }
  std::vector<answered_frames> take_frames() { return std::exchange(out_.frames, {}); }
  std::vector<answered_fill> take_fills() { return fills_.take_answers(); }
  std::vector<fence_id> take_fenced() { return fences_.take_complete(); }
  /// Damaged pages: those whose bytes in memory are not what was saved, or that had to leave memory and cannot be
  /// written (`slab_damaged`), which are dropped; and those that a scrub found damaged in the slab. The shards that
  /// list them must be notified.
  std::vector<damaged_page> take_damaged() { return std::exchange(out_.damaged, {}); }
  /// Pages that left memory unwritten. The shards that list them must be notified before any requests and answers are
  /// passed on.
  std::vector<page_ref> take_dropped() { return std::exchange(out_.dropped, {}); }

  io_stats stats() const;
  const frame_table& frames() const noexcept { return frames_; }
  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  /// An unanswered place or fetch.
  struct request {
    owner_id owner = 0;
    bool fetch = false;
    timestamp deadline;
    std::vector<page_ref> pages;
    /// Place: the size of the frame that each page needs, as `frame_size`; empty if all need whole ones.
    std::vector<std::uint8_t> sizes;
    std::vector<page_frame> reply;
    /// The frame of each page, `no_frame` if it has none (yet); pinned for this request.
    std::vector<frame_number> frames;
    /// Positions that need a frame, the next one first.
    std::deque<std::uint32_t> short_of;
    /// The number of pages that are being read.
    std::size_t reading = 0;
  };
  struct waiter {
    std::uint64_t id = 0;
    std::uint32_t position = 0;
  };

  result<void> admit(owner_id owner, const frame_request& work) const;
  request_id begin(owner_id owner, const frame_request& work, bool fetch, timestamp now);
  errc check_page(const page_ref& page, bool fetch) const;
  /// Serves a page of a fetch from memory, if possible; ok if the page is pinned, or its read is waited for. `full`: it
  /// needs a frame.
  errc fetch_from_memory(request_id id, request& r, std::uint32_t position);
  /// False if the page needs a frame; else the page has one, waits for a read in progress, or has an error code.
  bool do_without_frame(request_id id, request& r, std::uint32_t position);
  /// Gives this code to all pages that still need a frame.
  void refuse_rest(request& r, errc code);
  void start_read(request_id id, request& r, std::uint32_t position, frame_number f);
  /// The size of the frame that the page needs, as far as it is known.
  frame_size needed(const request& r, std::uint32_t position) const;
  /// Asks for a read of the page into its frame, of as many bytes as it has, as far as that is known.
  void ask_for_read(frame_number f, const slot_ref& where, std::uint64_t tag, timestamp deadline);
  void set_code(request& r, std::uint32_t position, errc code);
  void give_frame(request& r, std::uint32_t position, frame_number f, bool promoted);
  /// Serves requests that wait for frames, in order.
  void serve(timestamp now);
  /// Serves one request as far as there are frames; returns whether it needs no more.
  bool serve(request_id id, request& r, timestamp now);
  bool has_all_frames(const request& r, frame_size needed, timestamp now) const;
  /// Whether the slot is beyond the slab.
  bool in_memory_only(slot_number slot) const noexcept { return slot >= options_.slab_slots(); }
  bool is_dead(owner_id owner) const noexcept;
  /// What follows from calls, until it is taken.
  struct outbox {
    std::vector<answered_frames> frames;
    std::vector<damaged_page> damaged;
    std::vector<page_ref> dropped;
  };
  /// Filled pages whose commit may still arrive.
  struct fresh_pages {
    timestamp until;
    /// Named by their slots, since they may be moved meanwhile.
    std::vector<slot_ref> pages;
  };
  /// The frame of a held-back page whose commit may still arrive; else `no_frame`.
  frame_number fresh_frame(const slot_ref& where) const noexcept;
  void hold_back(std::span<const frame_number> frames, timestamp now);
  /// Makes pages expendable when the time for their commit has passed.
  void end_fresh(timestamp now);
  /// The page is no longer expendable, and is written.
  void ask_again(frame_number f);
  /// The page is to be written to the slab.
  void add_to_write(frame_number f) {
    if (!in_memory_only(frames_.page(f).where.slot))
      to_write_.add({f, frames_.turn(f)});
  }
  frame_number take_frame(const page_ref& page, frame_state as, frame_size size);
  /// Whether a page that needs this size finds a free frame. An extent without pages may be cut anew for that.
  bool finds_free_frame(frame_size size);
  /// Whether to wait for an extent before a frame for a page of this size is taken.
  bool waits_for_memory(frame_size needed, timestamp now);
  /// Takes a frame of this size or a larger one.
  frame_number take_fitting(const page_ref& page, frame_state as, frame_size needed);
  /// The size of the frame for a page with so many bytes of payload as it is stored.
  frame_size size_for(std::uint64_t stored_bytes) const noexcept {
    return io::slot_bytes(stored_bytes) <= options_.encoded_bytes ? frame_size::encoded : frame_size::whole;
  }
  /// The size of frames to look for: the one that is needed, or whole ones as long as there are no others.
  frame_size best(frame_size needed) const noexcept;
  /// Whether encoded pages use free frames of the only whole extent.
  bool uses_last_whole_extent(frame_size size) const noexcept;
  /// Drops the page that was used longest ago of some that stay in memory, in frames of this size or of any, and
  /// notifies the shards. False if there is none without a pin.
  bool drop_staying(std::optional<frame_size> size = std::nullopt);
  /// Lets the two sizes of frames exchange extents.
  void exchange_extents(timestamp now);
  frame_sizes::report report_of(frame_size x) const;
  /// The reports of both sizes, whole frames first.
  std::array<frame_sizes::report, 2> report_sizes() const;
  /// The size that gives an extent to another rank.
  frame_size giving_size() const;
  /// Processes evicted and dropped frames: shards are notified of dropped pages, and none of the frames counts as
  /// promoted ahead any more.
  void note_vacated();
  /// The page has left memory unwritten; shards are notified.
  void note_dropped(const page_ref& page);
  void drop_all();
  bool was_dropped(const slot_ref& where) const noexcept;
  bool may_promote_ahead() const noexcept;
  void promote_ahead(timestamp now);
  void answer_if_done(request_id id);
  /// Adds to the counts of a client; pages of a disconnected one do not count.
  void count_pages(const owner_pages& more);
  void release(frame_number f, bool fetch);
  /// Releases the frames of a pin, or of an unanswered request.
  void release_all(std::span<const frame_number> frames, bool fetch);
  /// Drops the frame because its slot is free or belongs to another page.
  void drop_frame(frame_number f);
  /// Drops a page that is in memory only, and notifies the shards.
  void drop_page(frame_number f);
  /// How many more pages stay in memory than may.
  std::uint64_t displaced() const noexcept;
  /// Drops such pages, unless they are pinned.
  void drop_displaced();
  bool may_write_behind() const noexcept;
  void write_behind();
  /// Requests trims of slots, as far as they are needed.
  void trim_slots();
  /// Whether the page of the entry is still to be written.
  bool is_due(const write_queue::entry& x) const;
  /// Drops the pages that are held for want of disk space, and notifies the shards.
  void drop_held();
  void start_check(frame_number f);
  void written(const page_transfer& t, errc code, timestamp now);
  /// A write or a trim has ended with this code.
  void note_outcome(errc code, timestamp now);
  void end_of_read(const page_transfer& t, errc code, timestamp now);
  /// The page is larger than assumed: it is read once more, into a whole frame. For those who wait for it, it is
  /// missing if there is none: they hold other frames, for which others may wait.
  void read_again(frame_number f, timestamp now);
  std::uint64_t begin_transfer(const page_transfer& x);
  /// Asks for a transfer that has begun: of these bytes, at the start of the frame.
  void ask_for(io::operation op, frame_number f, const slot_ref& where, std::span<std::byte> bytes, std::uint64_t tag,
               timestamp deadline);
  /// Makes room for a page of the extent that is being emptied, or drops a page that cannot be kept anywhere; false if
  /// neither is possible now.
  bool make_room(frame_number f);
  /// The size of the frame that a page of the extent moves to: its own, or a whole one if there is no other and the
  /// page is dirty; and whether there is such a frame.
  frame_size target_of(frame_number f) const noexcept;
  bool may_move(frame_number f) const noexcept;
  void move_page(frame_number from);
  void end_emptying(errc code, timestamp now);
  /// Whether the slab should have the complete page.
  bool may_scrub(const page_ref& page) const;
  bool clients_read() const noexcept;
  /// Whether the completion was that of the scrub read.
  bool end_of_scrub_read(const io::completion& c, timestamp now);

  // A transfer is a page whose bytes the store was asked to move, or that is being verified before that. It belongs to
  // one frame and one slot, whose transfers `fences_` counts. Only its completion ends it: no deadline, no
  // disconnection, no fence. Until then the frame is `reading` or `writing` and stays.
  //
  // A request holds pins on the frames it lists until it is answered; then its pin does, until the client ends it or is
  // known to be quiesced. So the pins of a frame are those of requests and of the pin table together.
  //
  // Requests that are short of frames wait in `queue_`, and only the first of them takes frames: so a large request is
  // not overtaken for ever, and two requests can never each hold half of what both need. A request that has taken all
  // frames there are continues with these.

  io_worker_options options_;
  frame_table frames_;
  pin_table pins_;
  std::unordered_map<request_id, request> requests_open_;
  std::deque<request_id> queue_;
  /// The number of pages of open requests, by owner.
  std::unordered_map<owner_id, std::uint64_t> asked_;
  pending_fills fills_;
  std::unordered_map<frame_number, std::vector<waiter>> read_waiters_;
  write_queue to_write_;
  slab_usage usage_;
  transfer_table transfers_;
  prefetch_queue ahead_;
  scrub scrub_;
  scrub_slot scrub_slot_;
  /// In order of time.
  std::deque<fresh_pages> fresh_;
  /// Pages that were dropped unwritten, by slot, until it is fenced: the slab has another page there.
  std::unordered_map<slot_number, generation_number> unwritten_;
  /// Disconnected owners, the last one at the end. Owner ids are not reused.
  std::deque<owner_id> dead_owners_;
  slot_fences fences_;
  std::vector<io::page_request> requests_;
  std::vector<page_check> checks_;
  outbox out_;
  io_stats stats_;
  request_id last_request_ = 0;
  frame_sizes sizes_;
  /// The number of frames that the first request waits for and that are not available now.
  std::size_t short_of_ = 0;
  emptying_run emptying_;
  bool draining_ = false;
  bool damaged_ = false;
};

} // namespace troupe
