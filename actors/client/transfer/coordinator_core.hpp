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

/// The number of a request to another actor. Never reused, so that a late answer is ignored.
using call_id = std::uint64_t;

/// The longest deadline of a task.
inline constexpr duration task_time_max = std::chrono::hours(24);

/// The options of a coordinator of one rank.
struct coordinator_options {
  namespace_id ns;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  /// The size of a frame.
  std::uint64_t slot_bytes = 0;
  /// Pages per message to io worker and copy engine.
  std::uint32_t batch_pages = 128;
  /// The most tasks in progress; one more is refused.
  std::uint32_t tasks_max = 256;
  /// The window has room for at least this number of batches, unless they would be so small that requests take longer
  /// than the copy. At least 1.
  std::uint32_t batches_in_window = 4;
  /// How many of the engine's blocks make a page; at least 1.
  std::uint32_t blocks_per_page = 1;
  /// Load: no page of a task moves unless all of them have been found, and a task is answered only after its damaged
  /// pages are unpublished.
  bool all_or_none = false;
  /// The pages of a task that have a slot go to the copy engine in one order, for callers that get one answer for all
  /// of them. A task may not have more pages than fit into the window or into a message to the io worker. It is
  /// answered when nothing of it is in progress any more, so that all it held is free by then.
  bool one_order = false;
  /// The longest wait of a request for frames; shorter where the task ends before.
  duration frame_patience = task_time_max;
  /// Save: pages may be placed in frames for encoded pages, where the copy engine stores them encoded.
  bool encoded_frames = false;
  /// With that: nearly all pages are expected to have an encoding.
  bool expects_encoding = false;
  /// Save: a cancelled task also drops pages that are gathered and not published yet, for callers that cancel after
  /// they have reused their blocks.
  bool cancels_gathered = false;
};

/// What a coordinator needs of a node that its client has attached to; see `coordinator_binding` for the message.
struct node_binding {
  owner_id owner = 0;
  /// Distinguishes the tickets of an owner's coordinators, since they count independently.
  std::uint32_t ticket_stream = 0;
  std::uint32_t shard_count = 0;
  std::uint32_t batch_keys_max = 0;
  /// Pages per message to the io worker.
  std::uint32_t batch_pages_max = 0;
  duration reservation_max{};
  duration lease_max{};
  /// The most pages that may be pinned at once.
  std::uint32_t window_pages = 0;
  /// Load: whether this side may read pages in the rank's slab file.
  bool shares_slab = false;
};

/// A task is answered. It may still have frames pinned, until the copy engine and the io worker have finished with
/// them.
struct task_finished {
  task_id task = 0;
  transfer_result result;
};

/// Frames that a call has or has requested.
struct frame_hold {
  /// 0 while they are requested.
  pin_number pin = 0;
  /// The pages of the window that they take.
  std::uint32_t pages = 0;
  /// Save: the positions of all pages for which frames were requested, in the order of the request.
  std::vector<std::uint32_t> asked{};
};

/// The common part of load and save coordinators: the table of tasks, the results per block, the window of pages that
/// may be pinned, deadlines, and the end of everything when the node is lost.
///
/// Pages are moved between the blocks of the caller and frames of the node's arena. The io worker pins the frames of a
/// request under a number, and they belong to this coordinator until it reports that it has finished with them. A page
/// counts towards the window from the request for its frame until its pin has ended.
///
/// A task is answered when every block has a result, at its deadline, or when the node is lost. Its record stays until
/// the last call has returned, because frames of it may be pinned until then.
///
/// A block that the copy engine may be writing gets its result from the copy engine only. Its task ends after that,
/// even past the deadline or the loss of the node, because the caller reuses the blocks of an ended task.
///
/// A cancelled task ends as at its deadline. Pages that do not need their blocks any more continue, and end as they
/// would have.
///
/// Plain state: no thread, no clock. The actor calls an `on_…` function for each event, and then sends the effects in
/// the outbox.
class coordinator_core {
public:
  explicit coordinator_core(const coordinator_options& options) : options_(options) {
    options_.blocks_per_page = std::max(options_.blocks_per_page, 1U);
  }

  bool bound() const noexcept { return binding_.owner != 0; }
  const coordinator_options& options() const noexcept { return options_; }

  /// Tasks without an answer.
  std::size_t open_tasks() const noexcept { return open_; }
  /// Whether there is a deadline.
  bool needs_ticks() const noexcept { return open_ > 0; }
  /// Calls without an answer; 0 means that nothing of this coordinator is in progress anywhere.
  std::size_t calls_under_way() const noexcept { return calls_.size(); }
  /// The pages of the window that are neither pinned nor requested.
  std::uint32_t window_left() const noexcept { return binding_.window_pages - in_window_; }

  /// The earliest deadline of an open task; `timestamp::max()` when there is none. For tests: the actor checks at short
  /// intervals as long as there is one.
  timestamp next_deadline() const noexcept;

protected:
  /// The result of a block that has none yet.
  static constexpr errc unresolved = errc::internal;

  struct page {
    key_digest key;
    slot_ref where;
    errc status = unresolved;
    bool resolved = false;
    /// Whether the copy engine was ordered to write the blocks, and has not answered.
    bool being_written = false;
    /// Load: whether the page was not in memory.
    bool from_disk = false;
    /// Save: whether all bytes are in a frame. Then the blocks are not read again.
    bool gathered = false;
    /// Save: whether the last frame was one for encoded pages; and whether the page has no encoding, and so needs a
    /// whole frame. If both are true it has to be placed again, when its frame has been given back.
    bool in_encoded_frame = false;
    bool needs_whole = false;
  };

  /// The part of the work that a call belongs to, for the timing.
  enum class phase : std::uint8_t { registry, copy, io, finish, file };

  /// The time during which at least one call of a phase was in progress.
  struct phase_clock {
    std::size_t under_way = 0;
    timestamp since;
  };

  struct task {
    task_id id = 0;
    troupe::ticket ticket;
    key_digest parent;
    bool chained = true;
    std::uint64_t tag = 0;
    std::uint64_t ready_event = 0;
    page_origin origin = page_origin::client;
    std::vector<page> pages;
    /// The blocks of all pages, one page after the other: `blocks_per_page` of each.
    std::vector<std::uint32_t> blocks;
    /// Positions that have a slot and wait for room in the window.
    std::deque<std::uint32_t> ready;
    /// Positions that wait until the slots of the others are known.
    std::vector<std::uint32_t> held_back;
    std::size_t unresolved = 0;
    std::size_t calls = 0;
    timestamp deadline;
    timestamp waiting_since = timestamp::min();
    /// When the node first refused a request of the task for lack of room.
    timestamp refused_since = timestamp::min();
    std::uint64_t bytes = 0;
    std::uint64_t from_disk = 0;
    /// Load: positions that wait to be read from the slab file; then the results of those that were.
    std::deque<std::uint32_t> in_file;
    std::uint64_t from_files = 0;
    std::uint64_t files_stale = 0;
    std::uint64_t files_damaged = 0;
    std::uint64_t files_failed = 0;
    transfer_timing timing;
    /// By `phase`.
    std::array<phase_clock, 5> clocks;
    bool answered = false;
    /// Whether no more pages are gathered, read or scattered.
    bool cancelled = false;
    /// Whether the node that the task was started with is lost. Then no more requests are sent for it.
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
    /// Empty for a call that does not concern frames.
    frame_hold frames;
  };

  /// Starts a task record or returns why not; it must be answered by `now + work.deadline`. If the node has come back
  /// with smaller batches, the pages that do not fit in one get their result at once: limit_exceeded.
  result<task*> accept(const transfer_task& work, timestamp now);
  /// Splits the other keys by shard.
  std::vector<shard_batch<key_digest>> split_taken(const transfer_task& work) const;

  void bind_node(const node_binding& binding);

  call_id begin_call(task& t, phase part, timestamp now, std::vector<std::uint32_t> positions, frame_hold frames = {},
                     std::uint32_t shard = 0, std::uint32_t attempt = 0);

  /// A call that belongs to no task.
  call_id new_call() noexcept { return ++last_call_; }

  /// Whether pages wait until it is known which of them have a slot.
  bool waits_for_slots(const task& t) const noexcept {
    return (options_.all_or_none || options_.one_order) &&
           t.clocks[static_cast<std::size_t>(phase::registry)].under_way > 0;
  }

  /// Takes the call out of the table and adds its time to the task's. Null task if it is unknown: late, after an
  /// unbind.
  struct ended_call {
    task* owner = nullptr;
    call what;
  };
  ended_call end_call(call_id id, timestamp now);

  void resolve(task& t, std::uint32_t position, errc status);
  /// Resolves all pages but those that are being written.
  void resolve_unresolved(task& t, errc status);

  /// The size of a batch of which requests take no longer than the copy.
  static constexpr std::uint64_t batch_bytes_enough = std::uint64_t{8} << 20U;
  /// Larger batches are no faster, and delay what follows the copy.
  static constexpr std::uint64_t batch_bytes_max = std::uint64_t{64} << 20U;
  std::uint32_t batch_pages() const noexcept;

  /// The free pages of the window that are needed before a batch of the task goes out: a whole batch, as long as there
  /// are pages in the window that will leave it.
  std::uint32_t room_wanted(const task& t) const noexcept;

  /// The next pages of the oldest task with ready pages, at most `batch_pages`, as far as the window has room. They
  /// count towards the window from now on, until `leave_window`. Null task when none can go out.
  struct batch {
    task* owner = nullptr;
    std::vector<std::uint32_t> positions;
  };
  batch next_batch(timestamp now);

  /// All but `left` of these pages have no pin any more.
  void leave_window(frame_hold& what, std::uint32_t left = 0) noexcept;

  /// Requests frames for these pages, until the deadline of their task.
  frame_request make_frame_request(const task& t, std::span<const std::uint32_t> positions, timestamp now) const;

  /// Why there is no frame for item `i`; ok where there is one. A malformed answer counts as `internal`.
  static errc frame_code(const result<frame_reply>& reply, std::size_t i) noexcept;

  /// The order to the copy engine for these pages, each in the frame at the same position.
  copy_order make_copy_order(const task& t, std::span<const std::uint32_t> positions,
                             std::span<const page_frame> frames) const;

  /// Whether the answer of the io worker is that it accepts no more work now.
  template <class Reply>
  static bool no_room(const result<Reply>& reply) noexcept {
    return !reply && reply.error().code == errc::limit_exceeded;
  }

  /// Handles such an answer: the pages wait again, in prefix order, and no more batches go out at once than the node
  /// has accepted, until it accepts more. False if their task is cancelled or timed out: then the pages get their
  /// results, and do not wait.
  bool wait_for_room(task& t, call& refused, timestamp now);

  /// The node has accepted a batch, so one more may be in progress.
  void found_room() noexcept;

  /// From the timer: allows one batch when none is in progress whose end would signal free room.
  void look_for_room() noexcept { batches_max_ = std::max<std::size_t>(batches_max_, 1); }

  /// Adds the copy engine's own time, which cannot exceed the time that has passed.
  static void add_copy_time(task& t, const call& what, const copy_reply& reply, timestamp now);

  /// Answers the task if all its pages are resolved; its record ends with its last call.
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

  /// Cancels the tasks with these tags, as far as their pages can be. `on_cancelled` gets each of them and the
  /// positions that had a slot but were not in progress, and settles the task.
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

  /// Passes answers on as effects of the coordinator.
  template <class Effect>
  static void report(std::vector<task_finished> done, std::vector<Effect>& outbox) {
    for (auto& x : done)
      outbox.emplace_back(std::move(x));
  }

  /// Ends every task with `status` and forgets all calls, so that late answers are ignored. Calls in which blocks are
  /// being written, and their tasks, stay.
  void drop_all(errc status, std::vector<task_finished>& out);

  /// Positions that have a slot and are not in progress.
  static std::vector<std::uint32_t> take_idle(task& t) {
    std::vector<std::uint32_t> out(t.ready.begin(), t.ready.end());
    out.insert(out.end(), t.held_back.begin(), t.held_back.end());
    t.ready.clear();
    t.held_back.clear();
    return out;
  }

  task* find(task_id id);
  std::vector<task_id> ids() const;
  /// In order of arrival; some may have ended.
  const std::deque<task_id>& in_order() const noexcept { return order_; }

  const node_binding& binding() const noexcept { return binding_; }

private:
  void answer(task& t, std::vector<task_finished>& out);
  /// Open tasks with one of these tags, each once.
  std::vector<task_id> ids_tagged(std::span<const std::uint64_t> tags) const;
  static bool moves_pages(phase part) noexcept { return part == phase::copy || part == phase::io; }

  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // Invariants between two calls from outside:
  // - A pin belongs to one call, even if its task was answered long ago. The end of that call ends the pin, or passes
  //   it on to the next call. Device and io worker are done with the frames only then, so it is ended exactly once.
  // - `in_window_` is the sum of `frame_hold::pages` over `calls_`, and never more than the window.
  // - A task exists until it is answered and its last call has ended; `task::calls` counts its calls in `calls_`.
  // - The first result of a page stands. `task::unresolved` counts pages without one, and a task is answered once, when
  //   that becomes 0.
  // - `open_` counts tasks without an answer, `batches_` calls in `calls_` that have or have requested frames.
  // - After an unbind only calls are left in which blocks are being written. This coordinator does not end their pins:
  //   they end with their attachment, when the copy engine is done with it.

  coordinator_options options_;
  node_binding binding_;
  /// The size of the largest batch that a node has accepted so far. Callers split their tasks by the limit at their
  /// attachment.
  std::uint32_t keys_max_ = 0;
  std::unordered_map<task_id, task> tasks_;
  /// Tasks in order of arrival, for fairness; ended ones are skipped and removed.
  std::deque<task_id> order_;
  std::unordered_map<call_id, call> calls_;
  /// Pages that count towards the window.
  std::uint32_t in_window_ = 0;
  /// Calls with frames in progress, and their limit. The limit grows by one with each that the node accepts, and falls
  /// to the accepted ones when it refuses one.
  std::size_t batches_ = 0;
  std::size_t batches_max_ = unlimited;
  std::size_t open_ = 0;
  std::uint64_t last_task_ = 0;
  std::uint64_t last_call_ = 0;
  std::uint64_t last_ticket_ = 0;
};

} // namespace troupe::transfer
