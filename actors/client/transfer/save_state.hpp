#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "actors/client/transfer/frame_choice.hpp"

#include <variant>

namespace troupe::transfer {

/// Effects for the actor of the save coordinator; every call is answered through the `on_…` of the same name.
struct save_reserve {
  call_id call = 0;
  std::uint32_t shard = 0;
  reserve_request request;
};
/// Requests frames from the io worker.
struct save_place {
  call_id call = 0;
  frame_request request;
};
struct save_gather {
  call_id call = 0;
  copy_order order;
};
/// Ends the pin of a place, and reports which pages were gathered.
struct save_fill {
  call_id call = 0;
  fill_request request;
};
struct save_commit {
  call_id call = 0;
  std::uint32_t shard = 0;
  finish_request request;
};
/// Gives back slots that will not be committed.
struct save_abort {
  call_id call = 0;
  std::uint32_t shard = 0;
  finish_request request;
};

using save_effect =
    std::variant<save_reserve, save_place, save_gather, save_fill, save_commit, save_abort, task_finished>;

/// Saves blocks of one rank. The steps: reserve at the registry; place, for which the io worker provides frames; gather
/// into these; fill, with which the io worker takes over the pages; commit. Batches of a task overlap: while one is
/// filled, the next is gathered.
///
/// Errors, per block: it is already stored (exists), another client is writing it (busy), no slot or no frame (full),
/// gather or fill failed (that error; the slot is given back), the reservation expired before the commit (expired), the
/// deadline passed (timeout), the node is lost (unreachable). Only pages that the io worker has taken over are
/// committed, and a block is reported as saved only after the registry has confirmed the commit. If an answer is lost,
/// the request is repeated with the same ticket until the deadline; so are requests that the node refuses for lack of
/// room.
///
/// Frames are given back, filled or not, as soon as nothing is to be gathered into them any more.
///
/// Where pages are encoded, they are placed in frames that have room for that only (`frame_choice`). A page whose bytes
/// have no encoding is then placed again, in a whole frame.
///
/// A task may be cancelled, because its blocks will be reused: pages that are not in frames completely by then are
/// never published. The others continue to their own result.
class save_state : public coordinator_core {
public:
  using coordinator_core::coordinator_core;

  void bind(const node_binding& binding) { bind_node(binding); }

  bool needs_ticks() const noexcept { return coordinator_core::needs_ticks() || !postponed_.empty(); }

  /// The node is lost, or the coordinator ends: every open task ends with `status`.
  void unbind(errc status);

  /// Starts a task; the answer comes as `task_finished`, at once for a task without blocks.
  result<task_id> start(const transfer_task& work, timestamp now);

  void on_reserve(call_id id, result<reserve_reply> reply, timestamp now);
  void on_place(call_id id, result<frame_reply> reply, timestamp now);
  void on_gather(call_id id, result<copy_reply> reply, timestamp now);
  void on_fill(call_id id, result<io_reply> reply, timestamp now);
  void on_commit(call_id id, result<finish_reply> reply, timestamp now);
  void on_abort(call_id id, result<finish_reply> reply, timestamp now);
  void on_tick(timestamp now);

  /// Cancels the tasks with these tags. Every page that was not gathered completely has ended as `cancelled`, and its
  /// slot is given back as soon as nothing is in progress for it. Unknown tags are ignored.
  void cancel(std::span<const std::uint64_t> tags, timestamp now);

  std::vector<save_effect> take_outbox();

private:
  void send_reserve(task& t, std::vector<std::uint32_t> positions, std::uint32_t shard, std::uint32_t attempt,
                    timestamp now);
  void send_finish(task& t, const std::vector<std::uint32_t>& positions, bool commit, timestamp now,
                   std::uint32_t attempt = 0);
  /// Requests frames for as many ready pages as the window has room for.
  void pump(timestamp now);
  /// Ends a pin: reports for each page of the place whether it was gathered, or why not.
  void send_fill(task& t, frame_hold frames, timestamp now);
  save_fill make_fill(task& t, frame_hold frames, timestamp now);
  /// Gives back the slots of pages that have one and are not in progress.
  void abandon(task& t, const std::vector<std::uint32_t>& positions, timestamp now);
  void settle_all(task& t);

  std::vector<save_effect> outbox_;
  frame_choice frames_{options().expects_encoding};
  /// Fills that the node has refused for lack of room: the timer repeats them.
  std::vector<save_fill> postponed_;
};

} // namespace troupe::transfer
