#pragma once

#include "actors/support/shard_batches.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/answer_codes.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::transfer {

/// The `n`th ticket of one of an owner's streams.
constexpr ticket make_ticket(owner_id owner, std::uint32_t stream, std::uint64_t n) noexcept {
  return {owner, (std::uint64_t{stream} << 40U) | n};
}

using task_id = std::uint64_t;

/// One request under way to another actor. Never used twice, so that a late answer finds nothing.
using call_id = std::uint64_t;

/// A task may not ask for more time.
inline constexpr duration task_time_max = std::chrono::hours(24);

/// What a coordinator of one rank is made with.
struct coordinator_options {
  namespace_id space;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  /// Of a frame.
  std::uint64_t slot_bytes = 0;
  /// Pages per message to io worker and copy engine.
  std::uint32_t batch_pages = 128;
  /// Tasks under way at once; one more is refused.
  std::uint32_t tasks_max = 256;
  /// How many of the engine's blocks make a page; at least 1.
  std::uint32_t blocks_per_page = 1;
  /// Load: no page of a task moves unless all of them have been found; a task is answered when what was found damaged
  /// is found no more.
  bool all_or_none = false;
  /// The pages of a task that have a slot go to the copy engine in one order, for callers that have one answer for all
  /// of them. A task may not have more than the window, or a message to the io worker, has room for. It is answered
  /// when nothing of it is under way any more, so that what it has given up is free by then.
  bool one_order = false;
  /// The longest that a request waits for frames; less where the task ends before.
  duration frame_patience = task_time_max;
  /// Save: a cancelled task also drops pages that were gathered and are not published yet, for callers that cancel
  /// after their blocks were given away.
  bool cancels_gathered = false;
};

/// What a coordinator learns when its client attaches to a node; see `coordinator_binding` for the message.
struct node_binding {
  owner_id owner = 0;
  /// Keeps the tickets of an owner's coordinators apart, since they count independently.
  std::uint32_t ticket_stream = 0;
  std::uint32_t shard_count = 0;
  std::uint32_t batch_keys_max = 0;
  /// Pages per message to the io worker.
  std::uint32_t batch_pages_max = 0;
  duration reservation_max{};
  duration lease_max{};
  /// Pages that may be pinned at once.
  std::uint32_t window_pages = 0;
  /// Load: pages that are in the rank's slab file may be read there, by this side.
  bool shares_slab = false;
};

/// A task has its answer. It may still have frames pinned, until the copy engine and the io worker are done with them.
struct task_finished {
  task_id task = 0;
  transfer_result result;
};

/// Frames that a call has, or asks for.
struct frame_hold {
  /// 0 while they are asked for.
  pin_number pin = 0;
  /// How many pages of the window are taken for them.
  std::uint32_t pages = 0;
  /// Save: the positions of all pages that frames were asked for, in the order of the request.
  std::vector<std::uint32_t> asked{};
};

/// What load and save coordinators have in common: the table of tasks, the results per block, the window of pages that
/// may be pinned, deadlines, and how everything ends when the node is lost.
///
/// Pages are moved between the blocks of the caller and frames of the node's arena. The io worker pins the frames of a
/// request under a number, and they stay this coordinator's until it says that it is done with them. A page counts
/// towards the window from the request that asks for its frame until its pin has ended.
///
/// A task ends towards its caller when every block has a result, or at its deadline, or when the node is lost. Its
/// record stays until the last call has come back, because until then frames of it may be pinned.
///
/// A block that the copy engine may be writing gets its result from the copy engine only, and its task ends when that
/// is there, be the deadline over or the node lost: the caller gives blocks of a task that has ended to others.
///
/// A task that is cancelled ends as at its deadline, but that what has come so far that its blocks do not matter any
/// more goes on, and ends as it would have.
///
/// Plain state: no thread, no clock. The actor calls an `on_…` function for each event and then sends what it finds
/// in the outbox.
class coordinator_core {
public:
  explicit coordinator_core(const coordinator_options& options) : options_(options) {
    options_.blocks_per_page = std::max(options_.blocks_per_page, 1U);
  }

  bool bound() const noexcept { return binding_.owner != 0; }
  const coordinator_options& options() const noexcept { return options_; }

  /// Tasks without an answer.
  std::size_t open_tasks() const noexcept { return open_; }
  /// Whether something may run out.
  bool needs_ticks() const noexcept { return open_ > 0; }
  /// Calls without an answer; 0 means that nothing of this coordinator is under way anywhere.
  std::size_t calls_under_way() const noexcept { return calls_.size(); }
  /// Pages that may be pinned beside those that are, or that frames were asked for.
  std::uint32_t window_left() const noexcept { return binding_.window_pages - in_window_; }

  /// Earliest deadline of an open task; `timestamp::max()` when there is none. For tests: the actor looks at short
  /// intervals as long as there is one.
  timestamp next_deadline() const noexcept;

protected:
  /// Result of a block that has none yet.
  static constexpr errc unresolved = errc::internal;

  struct page {
    key_digest key;
    slot_ref where;
    errc status = unresolved;
    bool resolved = false;
    /// The copy engine has been told to write the blocks, and has not answered.
    bool being_written = false;
    /// Load: its page was not in memory.
    bool from_disk = false;
    /// Save: all bytes are in a frame. The blocks are not read again.
    bool gathered = false;
  };

  /// Which part of the work a call belongs to, for the timing.
  enum class phase : std::uint8_t { registry, copy, io, finish, file };

  /// The time during which at least one call of a phase was under way.
  struct phase_clock {
    std::size_t under_way = 0;
    timestamp since;
  };

  struct task {
    task_id id = 0;
    troupe::ticket ticket;
    key_digest parent;
    std::uint64_t tag = 0;
    std::uint64_t ready_event = 0;
    page_origin origin = page_origin::client;
    std::vector<page> pages;
    /// Of all pages, one after the other: `blocks_per_page` of each.
    std::vector<std::uint32_t> blocks;
    /// Positions that have a slot and wait for room in the window.
    std::deque<std::uint32_t> ready;
    /// Those that wait for the slots of the others first.
    std::vector<std::uint32_t> held_back;
    std::size_t unresolved = 0;
    std::size_t calls = 0;
    timestamp deadline;
    timestamp waiting_since = timestamp::min();
    /// When the node first had no room for a request of it.
    timestamp refused_since = timestamp::min();
    std::uint64_t bytes = 0;
    std::uint64_t from_disk = 0;
    /// Load: positions that wait to be read from the slab file; and what came of those that were.
    std::deque<std::uint32_t> in_file;
    std::uint64_t from_files = 0;
    std::uint64_t files_stale = 0;
    std::uint64_t files_damaged = 0;
    std::uint64_t files_failed = 0;
    transfer_timing timing;
    /// By `phase`.
    std::array<phase_clock, 5> clocks;
    bool answered = false;
    /// No page starts to be gathered, read or scattered any more.
    bool cancelled = false;
    /// The node that the task was started with is lost: nothing more is asked of it.
    bool node_lost = false;
    /// Load: shards that hold a lease of this task, or may hold one.
    std::vector<std::uint32_t> leased_shards;

    /// Whether a page has ended without having been moved.
    bool is_short() const noexcept { return unresolved < pages.size(); }
  };

  struct call {
    task_id owner = 0;
    phase part = phase::registry;
    std::uint32_t shard = 0;
    std::uint32_t attempt = 0;
    timestamp started;
    /// Positions in the task, parallel to what was sent.
    std::vector<std::uint32_t> positions;
    /// None where the call has nothing to do with frames.
    frame_hold frames;
  };

  /// Starts a task record or says why not; `now + work.deadline` is when it must be answered. Of a node that has come
  /// back with smaller batches, the pages that do not fit in one have their result at once: limit_exceeded.
  result<task*> accept(const transfer_task& work, timestamp now);
  /// The others by shard.
  std::vector<shard_batch<key_digest>> split_taken(const transfer_task& work) const;

  void bind_node(const node_binding& binding);

  call_id begin_call(task& t, phase part, timestamp now, std::vector<std::uint32_t> positions, frame_hold frames = {},
                     std::uint32_t shard = 0, std::uint32_t attempt = 0);

  /// For what is under way for no task.
  call_id new_call() noexcept { return ++last_call_; }

  /// Whether pages wait until it is known of all which have a slot.
  bool waits_for_slots(const task& t) const noexcept {
    return (options_.all_or_none || options_.one_order) &&
           t.clocks[static_cast<std::size_t>(phase::registry)].under_way > 0;
  }

  /// Takes the call out of the table, adds its time to the task's; null task if it is unknown (late, after unbind).
  struct ended_call {
    task* owner = nullptr;
    call what;
  };
  ended_call end_call(call_id id, timestamp now);

  void resolve(task& t, std::uint32_t position, errc status);
  /// All but those that are being written.
  void resolve_unresolved(task& t, errc status);

  /// Batches that the window has room for at least, unless they would be smaller than what takes much longer to copy
  /// than to ask for.
  static constexpr std::uint32_t batches_in_window = 4;
  static constexpr std::uint64_t batch_bytes_enough = std::uint64_t{8} << 20U;
  /// Larger ones are no faster, and what follows the copy begins later.
  static constexpr std::uint64_t batch_bytes_max = std::uint64_t{64} << 20U;
  std::uint32_t batch_pages() const noexcept;

  /// Pages that the window must have room for before a batch of the task goes out: for a whole one, as long as there
  /// are pages in the window that will leave it.
  std::uint32_t room_wanted(const task& t) const noexcept;

  /// Next pages of the oldest task that has some ready, at most `batch_pages`, as far as the window reaches; they are
  /// in it from now on, and `leave_window` gives up their places. Null task when none can go out.
  struct batch {
    task* owner = nullptr;
    std::vector<std::uint32_t> positions;
  };
  batch next_batch(timestamp now);

  /// Of what is held, all but `left` pages have no pin any more.
  void leave_window(frame_hold& what, std::uint32_t left = 0) noexcept;

  /// Asks for frames for these pages, until the deadline of their task.
  frame_request make_frame_request(const task& t, std::span<const std::uint32_t> positions, timestamp now) const;

  /// Why there is no frame for item `i`; ok where there is one. A malformed answer counts as `internal`.
  static errc frame_code(const result<frame_reply>& reply, std::size_t i) noexcept;

  /// What the copy engine is to do for these pages, each in the frame at the same place.
  copy_order make_copy_order(const task& t, std::span<const std::uint32_t> positions,
                             std::span<const std::uint64_t> frame_offsets) const;

  /// Whether an answer of the io worker says that it has as much to do as it takes.
  template <class Reply>
  static bool no_room(const result<Reply>& reply) noexcept {
    return !reply && reply.error().code == errc::limit_exceeded;
  }

  /// After such an answer: the pages wait again, in prefix order, and no more batches go out at once than the node has
  /// taken, until it takes more. False if their task is cancelled or its time is over: then the pages have their
  /// results, and do not wait.
  bool wait_for_room(task& t, call& refused, timestamp now);

  /// The node took a batch: one more than before may be under way.
  void found_room() noexcept;

  /// From the timer: a batch may go out though none is under way whose end would say that there is room.
  void look_for_room() noexcept { batches_max_ = std::max<std::size_t>(batches_max_, 1); }

  /// Adds what the copy engine says of its time, which cannot be more than passed.
  static void add_copy_time(task& t, const call& what, const copy_reply& reply, timestamp now);

  /// Answers the task if all its pages are resolved; the record goes when no call is left.
  void settle(task& t, std::vector<task_finished>& out);

  /// Ends open tasks whose deadline has passed. `on_expired` gets the task and the positions that had a slot but
  /// were not under way, and settles the task.
  template <class OnExpired>
  void expire(timestamp now, OnExpired on_expired) {
    for (const auto id : ids()) {
      auto* t = find(id);
      if (t == nullptr || t->answered || t->deadline > now)
        continue;
      const auto idle = take_idle(*t);
      t->in_file.clear();
      resolve_unresolved(*t, errc::timeout);
      on_expired(*t, idle);
    }
  }

  /// From the caller: gives up what has not come too far of the tasks with these tags. `on_cancelled` gets each of them
  /// and the positions that had a slot but were not under way, and settles the task.
  template <class OnCancelled>
  void cancel_tasks(std::span<const std::uint64_t> tags, OnCancelled on_cancelled) {
    for (const auto id : ids_tagged(tags)) {
      auto& t = *find(id);
      t.cancelled = true;
      const auto idle = take_idle(t);
      t.in_file.clear();
      for (std::uint32_t i = 0; i < t.pages.size(); ++i)
        if (!t.pages[i].being_written && (!t.pages[i].gathered || options_.cancels_gathered))
          resolve(t, i, errc::cancelled);
      on_cancelled(t, idle);
    }
  }

  /// Hands answers on as effects of the coordinator.
  template <class Effect>
  static void report(std::vector<task_finished> done, std::vector<Effect>& outbox) {
    for (auto& x : done)
      outbox.emplace_back(std::move(x));
  }

  /// Ends every task with `status` and forgets all calls: their answers, if any come, find nothing. Except those in
  /// which blocks are being written, and their tasks.
  void drop_all(errc status, std::vector<task_finished>& out);

  /// Positions that have a slot and are not under way.
  static std::vector<std::uint32_t> take_idle(task& t) {
    std::vector<std::uint32_t> out(t.ready.begin(), t.ready.end());
    out.insert(out.end(), t.held_back.begin(), t.held_back.end());
    t.ready.clear();
    t.held_back.clear();
    return out;
  }

  task* find(task_id id);
  std::vector<task_id> ids() const;
  /// In order of arrival; some may be gone.
  const std::deque<task_id>& in_order() const noexcept { return order_; }

  const node_binding& binding() const noexcept { return binding_; }

private:
  void answer(task& t, std::vector<task_finished>& out);
  /// Open tasks with one of these tags, each once.
  std::vector<task_id> ids_tagged(std::span<const std::uint64_t> tags) const;
  static bool moves_pages(phase part) noexcept { return part == phase::copy || part == phase::io; }

  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // What always holds between two calls from outside:
  // - A pin is in the hands of one call, be its task answered long ago or not. The end of that call ends it, or hands
  // it
  //   on to the next call: since only then are device and io worker done with the frames, it is ended exactly once.
  // - `in_window_` is the sum of `frame_hold::pages` over `calls_`, and never more than the window.
  // - A task is here until it is answered and its last call has ended; `task::calls` counts what `calls_` has of it.
  // - The first result of a page stands. `task::unresolved` counts pages without one, and a task is answered when that
  //   becomes 0, which is once.
  // - `open_` counts tasks without an answer, `batches_` calls in `calls_` that have frames, or ask for some.
  // - Between two bindings nothing of the first is left but calls in which blocks are being written. Their pins are not
  //   ended by this coordinator any more, but with their attachment, when the copy engine is done with it.

  coordinator_options options_;
  node_binding binding_;
  /// Keys of the largest batch that the node has taken since this was made: callers split their tasks by what it took
  /// when they attached.
  std::uint32_t keys_max_ = 0;
  std::unordered_map<task_id, task> tasks_;
  /// Tasks in order of arrival, for fairness; ids that are gone are skipped and dropped.
  std::deque<task_id> order_;
  std::unordered_map<call_id, call> calls_;
  /// Pages that count towards the window.
  std::uint32_t in_window_ = 0;
  /// Calls with frames that are under way, and how many may be. Grows by one with each that the node takes, and falls
  /// to what it has taken when it refuses one.
  std::size_t batches_ = 0;
  std::size_t batches_max_ = unlimited;
  std::size_t open_ = 0;
  std::uint64_t last_task_ = 0;
  std::uint64_t last_call_ = 0;
  std::uint64_t last_ticket_ = 0;
};

} // namespace troupe::transfer
