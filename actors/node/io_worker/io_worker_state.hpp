#pragma once

#include "actors/node/io_worker/frame_table.hpp"
#include "actors/node/io_worker/pin_table.hpp"
#include "actors/node/io_worker/prefetch_queue.hpp"
#include "actors/node/io_worker/scrub.hpp"
#include "actors/node/registry/lru_policy.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_tier.hpp"
#include "io/page.hpp"
#include "io/page_store.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

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
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// Pages live in memory only: there is no store, and nothing is written.
  bool memory_only = false;
  /// A page that is filled is not stored before it is in the slab.
  bool write_through = false;
  /// Pages are written to the slab as soon as they are filled; else when memory runs short.
  bool write_eagerly = true;
  /// Pages are written to the slab only when somebody has asked for them again, and those that nobody has asked for
  /// make room for others without having been written. Not with `write_through`.
  bool second_hit = false;
  /// With that: how long a page that was saved is kept in any case, so that its commit comes first. A save that is
  /// larger than what memory has room for would lose its beginning to its end.
  duration commit_time = std::chrono::milliseconds(200);
  /// Pages that are promoted because a lookup has found them, and that nobody has fetched yet; 0: none are. How many
  /// of them are read at once, and how many may wait for that.
  std::uint64_t prefetch_pages_max = 0;
  std::uint32_t prefetch_reads_max = 32;
  std::uint32_t prefetch_waiting_max = 16384;
  /// Longest time a transfer may take, and a request may wait for frames, whatever the client asks for.
  duration deadline_max{};
  std::uint32_t batch_pages_max = 256;
  /// What one client may have pinned.
  std::uint64_t pinned_bytes_max = 0;
  /// Requests that wait for frames at once.
  std::uint32_t waiting_max = 1024;
  /// Pages that are read, and that are written behind, at once.
  std::uint32_t reads_max = 256;
  std::uint32_t writes_max = 64;
  /// Until a page whose writing failed is written again.
  duration write_retry = std::chrono::seconds(1);
  /// Writes count as failing for so long after one has failed.
  duration write_trouble_time = std::chrono::minutes(1);
  /// Clients there may be at once.
  std::uint32_t clients_max = 64;
  /// Pins are numbered from the one after this. Differs between runs and workers.
  pin_number first_pin = 0;
  eviction_factory eviction = make_lru_policy;
  /// Is told which pages are in memory; null if nobody asks.
  std::shared_ptr<resident_slots> resident{};
  /// Reading pages that nobody asks for; its slot bytes are those above.
  scrub_options scrub{};

  /// Whether it makes a difference what is leased.
  bool listens() const noexcept { return !memory_only && (second_hit || prefetch_pages_max > 0); }
};

/// A page that is not what it should be, and where that was seen.
struct damaged_page {
  page_ref page;
  errc why = errc::ok;
  page_tier tier = page_tier::unknown;

  bool operator==(const damaged_page&) const = default;
};

/// The rules of the io worker of one rank: which pages are in memory, who may touch them, when they go to the slab and
/// come back, and when a slot is at rest.
///
/// Fencing. Before a slot is given to another key, its allocator fences it: the worker refuses from then on whatever
/// names the old generation, and answers when no transfer between slab and memory touches the slot any more. A writer
/// that was thought dead, or an order that was late on its way, can therefore never reach a slot of somebody else. (A
/// fencing token, as in Kleppmann, "How to do distributed locking", 2016.)
///
/// Pins. A client copies to and from frames at a time of its own. So a frame is another page's only when whoever had it
/// pinned has said that it is done, or is known to be gone: never after a time-out. A fence does not wait for it; the
/// slot goes on without the frame.
///
/// Admission. With `second_hit`, a page that was saved is held back until somebody has asked for it again, by a fetch
/// or a lookup. When its commit has had its time, it makes room like a page that is in the slab, in the same order, and
/// is gone then. Whoever lists it learns of that before the frame is anybody else's. What is asked for once is written
/// as ever.
///
/// Promotion ahead. A page that a lookup has found, and that is in the slab alone, is read before anybody fetches it.
/// Fetches go first: nothing is read ahead while somebody waits for a frame, and who fetches a page that is being read
/// waits for that read. Nobody has such a frame pinned. When the lease of the lookup ends, what was read is a clean
/// page like all others, and what waits is forgotten.
///
/// Plain state: the actor gives `requests` to the store of pages, `checks` to whoever verifies pages, and answers to
/// whom they belong.
class io_worker_state {
public:
  /// One request that is answered later.
  using request_id = std::uint64_t;
  using fence_id = std::uint64_t;

  struct answered_frames {
    request_id request = 0;
    /// Else `reply`.
    errc refused = errc::ok;
    frame_reply reply;
    std::uint32_t pages = 0;
    bool fetched = false;
  };
  struct answered_fill {
    request_id request = 0;
    io_reply reply;
  };
  /// A page that is to be looked at before it is written to the slab: `checked` takes the verdict.
  struct page_check {
    std::uint64_t number = 0;
    page_ref page;
    /// From the start of the arena.
    std::uint64_t offset = 0;
  };

  explicit io_worker_state(const io_worker_options& options);

  // -- memory --

  /// Whether there is need of an extent: `add_extent` or `no_extent` follows.
  bool wants_extent() const noexcept { return wants_extent_; }
  void add_extent(const frame_table::extent& x, timestamp now);
  /// There is none now. Asked for again a second later, if there still is need; where it is `on_its_way`, soon, and for
  /// a moment no page has to leave instead.
  void no_extent(bool on_its_way, timestamp now);

  // -- an extent that goes back (io_worker_emptying.cpp) --

  /// How it ended: ok, and the extent is nobody's here any more; `timeout`, or `busy` (requests of this rank wait for
  /// memory), and all of it stays.
  struct emptying_end {
    errc code = errc::ok;
    frame_table::extent memory;
  };

  /// One extent is to be given back, within that time: `empty_some` is to be called until `take_emptying_end`. Its
  /// pages move to places in other extents, which are made by evicting what would go next, also of what is held back.
  /// What is nowhere else moves as well, or is written first, be pages written eagerly or not; what is held back is not
  /// written, but waits until its commit has had its time. What somebody has pinned, or bytes move in, waits as well.
  /// Nothing is promoted ahead meanwhile.
  /// `must`: also when requests of this rank are short of memory.
  ///
  /// Errors: `not_found` (it has none), `busy` (one is being emptied), `shutting_down`.
  result<void> begin_emptying(bool must, duration patience, timestamp now);
  /// Moves a few megabytes at most.
  void empty_some(timestamp now);
  bool emptying() const noexcept { return frames_.emptying(); }
  /// The last step stopped only because it was long enough.
  bool may_empty_more() const noexcept { return frames_.emptying() && may_empty_more_; }
  std::optional<emptying_end> take_emptying_end() { return std::exchange(emptying_end_, std::nullopt); }

  // -- clients --

  /// Frames for pages that their client is about to gather. In `take_frames`, maybe at once; or why not at all:
  /// `shutting_down`, `limit_exceeded`, `timeout`, `expired` (the client is gone).
  ///
  /// Per page: `out_of_range`, `stale` (the slot is another page's by now), `slab_damaged`, `busy` (a frame has it
  /// already), `full` (no frame within the time).
  result<request_id> place(owner_id owner, const frame_request& work, timestamp now);

  /// Frames of pages that are stored. Per page: `out_of_range`, `stale`, `full`, `busy` (its writer has not filled it),
  /// `not_found` (memory only, and it is not there, or it was given up), or what the store says of reading it.
  result<request_id> fetch(owner_id owner, const frame_request& work, timestamp now);

  /// Ends the pin of a `place`; in `take_fills`, maybe at once. `not_found`: the client has no such pin. Per page:
  /// `stale`; what the client said of it; or, where pages are written through, what the store says of writing it.
  result<request_id> fill(owner_id owner, const fill_request& work, timestamp now);

  /// Ends the pin of a `fetch`. `not_found`: the client has no such pin.
  result<void> unpin(owner_id owner, pin_number pin, timestamp now);

  /// The client asks for nothing any more, and gets nothing any more. What it has pinned stays so.
  void owner_died(owner_id owner, timestamp now);
  /// It touches no frame any more: its pins end.
  void owner_at_rest(owner_id owner, timestamp now);

  // -- shards --

  /// A lookup has found these pages: they are asked for, and promoted if they are in the slab alone.
  void prefetch(const prefetch_request& x, timestamp now);
  /// Its lease is over, or shorter.
  void end_prefetch(const prefetch_end& x, timestamp now);

  // -- slab --

  void complete(std::span<const io::completion> completions, timestamp now);
  /// `verdict`: ok, or what the page is instead of what was saved.
  void checked(std::uint64_t number, errc verdict, timestamp now);

  // -- pages that nobody asks for (io_worker_scrub.cpp) --

  /// Pages are read into this memory, one at a time, which the store knows by that number; shards list them.
  void begin_scrub(std::span<std::byte> memory, std::uint32_t buffer, std::uint32_t shards, timestamp now);
  /// A list to ask of a shard: `scrub_listed` or `scrub_not_listed` follows.
  std::optional<scrub::wish> take_scrub_wish(timestamp now) {
    return draining_ || damaged_ ? std::nullopt : scrub_.take_wish(now);
  }
  void scrub_listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now) {
    scrub_.listed(std::move(pages), next, more, now);
  }
  void scrub_not_listed(timestamp now) { scrub_.not_listed(now); }
  /// Begins to read the next page, if its time has come.
  void scrub_some(timestamp now);
  /// The page that the memory should have now: `scrub_verdict` follows.
  std::optional<page_ref> take_scrub_check() { return std::exchange(scrub_check_, std::nullopt); }
  void scrub_verdict(errc verdict, timestamp now);
  /// When `take_scrub_wish` or `scrub_some` has something to do, unless something else happens before.
  std::optional<timestamp> next_scrub() const noexcept {
    return draining_ || damaged_ ? std::nullopt : scrub_.next(clients_read());
  }

  /// Refuses these generations from now on, and waits for transfers of these slots. In `take_fenced` when at rest.
  fence_id fence(std::span<const slot_ref> slots, timestamp now);

  /// Nothing is placed or fetched any more.
  void drain();
  bool draining() const noexcept { return draining_; }
  /// No transfer is under way, and what should be in the slab is, as far as it can be.
  bool at_rest() const noexcept;

  /// Nothing is written any more; reads are tried, since what is left may be sound.
  void slab_is_damaged() {
    damaged_ = true;
    scrub_.end();
  }
  bool damaged() const noexcept { return damaged_; }

  /// Why a write to the slab has failed of late; ok where none has. For a while after the last one, since some may
  /// fail and others not.
  errc write_trouble() const noexcept { return write_trouble_; }

  /// Waits whose time is over end, and writes that failed are tried again.
  void tick(timestamp now);
  /// Whether something may run out.
  bool waits_for_extent() const noexcept { return extent_on_its_way_ && !queue_.empty(); }
  bool needs_ticks() const noexcept { return !queue_.empty() || !failed_.empty(); }

  std::vector<io::page_request> take_requests() { return std::exchange(requests_, {}); }
  std::vector<page_check> take_checks() { return std::exchange(checks_, {}); }
  std::vector<answered_frames> take_frames() { return std::exchange(frames_out_, {}); }
  std::vector<answered_fill> take_fills() { return std::exchange(fills_out_, {}); }
  std::vector<fence_id> take_fenced() { return std::exchange(fenced_, {}); }
  /// Pages whose bytes in memory are not what was saved, or that had to leave memory and can be written nowhere
  /// (`slab_damaged`), which are dropped; and those that were read in the slab unasked and are not what they should be.
  /// Whoever lists them should know.
  std::vector<damaged_page> take_damaged() { return std::exchange(damaged_out_, {}); }
  /// Pages that left memory unwritten. Whoever lists them should know before requests and answers are given to anybody.
  std::vector<page_ref> take_given_up() { return std::exchange(given_up_out_, {}); }

  io_stats stats() const;
  const frame_table& frames() const noexcept { return frames_; }
  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  /// A place or fetch that has not been answered.
  struct request {
    owner_id owner = 0;
    bool fetch = false;
    timestamp deadline;
    std::vector<page_ref> pages;
    std::vector<page_frame> reply;
    /// Of each page, `no_frame` if it has none (yet); pinned for this request.
    std::vector<frame_number> frames;
    /// Positions that need a frame, the first of them next.
    std::deque<std::uint32_t> short_of;
    /// Pages that are being read.
    std::size_t reading = 0;
  };
  /// A fill that waits for the slab.
  struct pending_fill {
    io_reply reply;
    std::size_t waiting = 0;
  };
  /// Bytes on their way between slab and memory, or about to be: a page that is checked before it is written has a
  /// transfer already.
  struct transfer {
    frame_number frame = no_frame;
    slot_number slot = 0;
    bool read = false;
    /// Of a page that nobody has fetched when it began.
    bool ahead = false;
  };
  struct waiter {
    std::uint64_t id = 0;
    std::uint32_t position = 0;
  };
  struct dirty_page {
    frame_number frame = no_frame;
    std::uint32_t turn = 0;
    timestamp not_before;
  };

  result<void> admit(owner_id owner, const frame_request& work) const;
  request_id begin(owner_id owner, const frame_request& work, bool fetch, timestamp now);
  errc check_page(const page_ref& page, bool fetch) const;
  /// What memory alone can do for a page of a fetch; ok if it is pinned, or waited for. `full`: it needs a frame.
  errc fetch_from_memory(request_id id, request& r, std::uint32_t position);
  /// False if the page needs a frame; else it has one, waits for one that is being read, or has the code why not.
  bool do_without_frame(request_id id, request& r, std::uint32_t position);
  /// Pages that need a frame still have this code.
  void refuse_rest(request& r, errc code);
  void start_read(request_id id, request& r, std::uint32_t position, frame_number f);
  void set_code(request& r, std::uint32_t position, errc code);
  void give_frame(request& r, std::uint32_t position, frame_number f, bool promoted);
  /// Serves who waits for frames, in order.
  void serve(timestamp now);
  /// As far as there are frames; whether it is short of none any more.
  bool serve(request_id id, request& r, timestamp now);
  bool has_all_frames(const request& r) const;
  bool is_dead(owner_id owner) const noexcept;
  /// Pages that were filled, and whose commit may be on its way.
  struct fresh_pages {
    timestamp until;
    /// By their slots, since they may be moved meanwhile.
    std::vector<slot_ref> pages;
  };
  /// Where the page is held back, and its commit may still be on its way; else `no_frame`.
  frame_number fresh_frame(const slot_ref& where) const noexcept;
  void hold_back(std::span<const frame_number> frames, timestamp now);
  /// Those whose time is over make room.
  void end_fresh(timestamp now);
  /// Makes no room for others any more, and is written.
  void ask_again(frame_number f);
  frame_number take_frame(const page_ref& page, frame_state as);
  /// Pages have made room: of those that were given up shards are told, and none is one that was promoted ahead.
  void note_vacated();
  void give_up_all();
  bool was_given_up(const slot_ref& where) const noexcept;
  bool may_promote_ahead() const noexcept;
  void promote_ahead(timestamp now);
  void answer_if_done(request_id id);
  void release(frame_number f, bool fetch);
  /// Of a pin, or of a request that is not answered.
  void release_all(std::span<const frame_number> frames, bool fetch);
  /// Its slot is another page's, or nobody's.
  void drop_frame(frame_number f);
  void answer_writers(frame_number f, errc code);
  bool may_write_behind() const noexcept;
  void write_behind();
  void start_check(frame_number f);
  void written(frame_number f, errc code, timestamp now);
  void end_of_read(frame_number f, errc code);
  void end_transfer(slot_number slot);
  void slot_at_rest(slot_number slot);
  std::uint64_t begin_transfer(const transfer& x);
  /// Makes room for a page of the extent that is emptied, or lets one go that can be kept nowhere; false if neither is
  /// possible now.
  bool make_room(frame_number f);
  void move_page(frame_number from);
  void end_emptying(errc code, timestamp now);
  /// Whether the slab should have the page, whole.
  bool may_scrub(const page_ref& page) const;
  bool clients_read() const noexcept;
  /// Whether it was that.
  bool end_of_scrub_read(const io::completion& c, timestamp now);

  // A transfer is a page whose bytes the store was told to move, or that is being checked before that. It belongs to
  // one frame and one slot; `busy_slots_` counts those of each slot. Only its completion ends it: no deadline, no
  // death, no fence. While there is one, the frame is `reading` or `writing` and stays.
  //
  // A request holds pins on the frames it lists until it is answered; then its pin does, until the client ends it or is
  // known to be at rest. So the pins of a frame are those of requests and of the pin table together.
  //
  // Requests that are short of frames stand in `queue_`, and only the first of them takes any: so a large one is not
  // passed by for ever, and two can never hold halves that both of them need. One that has taken all frames there are
  // goes on with these.

  io_worker_options options_;
  frame_table frames_;
  pin_table pins_;
  std::unordered_map<request_id, request> requests_open_;
  std::deque<request_id> queue_;
  /// Pages of open requests, by owner.
  std::unordered_map<owner_id, std::uint64_t> asked_;
  std::unordered_map<request_id, pending_fill> fills_;
  std::unordered_map<frame_number, std::vector<waiter>> read_waiters_;
  std::unordered_map<frame_number, std::vector<waiter>> write_waiters_;
  /// Pages to be written to the slab, in the order in which they were filled, and those whose writing failed.
  std::deque<dirty_page> dirty_;
  std::deque<dirty_page> failed_;
  std::unordered_map<std::uint64_t, transfer> transfers_;
  std::size_t reads_ = 0;
  /// Of these.
  std::size_t reads_ahead_ = 0;
  std::size_t writes_ = 0;
  prefetch_queue ahead_;
  scrub scrub_;
  std::span<std::byte> scrub_memory_;
  std::uint32_t scrub_buffer_ = 0;
  /// That is read, or judged. It is no transfer of its slot: a fence does not wait for it, since what was read counts
  /// for nothing then.
  page_ref scrubbed_{};
  std::uint64_t scrub_tag_ = 0;
  std::optional<page_ref> scrub_check_;
  /// In the order of their times.
  std::deque<fresh_pages> fresh_;
  /// Pages that were given up, by slot, until it is fenced: the slab has something else there.
  std::unordered_map<slot_number, generation_number> unwritten_;
  /// Owner ids are not used again. The one that died last is at the end.
  std::deque<owner_id> dead_owners_;
  /// Per slot: this generation and older are refused.
  std::vector<generation_number> fenced_generation_;
  std::unordered_map<slot_number, std::uint32_t> busy_slots_;
  /// Of busy slots only. A fence has as many entries here as `fences_` says. No new transfer of a slot can hold it up:
  /// when the fence is made, `fenced_generation_` is raised first.
  std::unordered_map<slot_number, std::vector<fence_id>> fence_waiters_;
  std::unordered_map<fence_id, std::size_t> fences_;
  std::vector<io::page_request> requests_;
  std::vector<page_check> checks_;
  std::vector<answered_frames> frames_out_;
  std::vector<answered_fill> fills_out_;
  std::vector<fence_id> fenced_;
  std::vector<damaged_page> damaged_out_;
  std::vector<page_ref> given_up_out_;
  io_stats stats_;
  std::uint64_t last_tag_ = 0;
  request_id last_request_ = 0;
  fence_id last_fence_ = 0;
  bool wants_extent_ = false;
  /// Frames that the first request waits for, of which there are none to be had now.
  std::size_t short_of_ = 0;
  /// No extent is asked for before; and until when one is waited for that is on its way.
  timestamp next_extent_ = timestamp::min();
  timestamp extent_due_ = timestamp::min();
  bool extent_on_its_way_ = false;
  /// An extent goes back: until when that may take, whether come what may, and whether pages have to be written first.
  timestamp emptied_by_ = timestamp::min();
  bool must_empty_ = false;
  bool may_empty_more_ = false;
  bool empty_by_writing_ = false;
  std::optional<emptying_end> emptying_end_;
  bool draining_ = false;
  errc write_trouble_ = errc::ok;
  timestamp write_trouble_ends_{};
  bool damaged_ = false;
};

} // namespace troupe
