#pragma once

#include "actors/client/transfer/coordinator_core.hpp"

#include <variant>

namespace troupe::transfer {

/// What the actor has to do for the save coordinator; every call is answered through the `on_…` of the same name.
struct save_reserve {
  call_id call = 0;
  std::uint32_t shard = 0;
  reserve_request request;
};
/// Asks the io worker for frames.
struct save_place {
  call_id call = 0;
  frame_request request;
};
struct save_gather {
  call_id call = 0;
  copy_order order;
};
/// Ends the pin of a place: says what was gathered.
struct save_fill {
  call_id call = 0;
  fill_request request;
};
struct save_commit {
  call_id call = 0;
  std::uint32_t shard = 0;
  finish_request request;
};
/// Gives slots back that will not be committed.
struct save_abort {
  call_id call = 0;
  std::uint32_t shard = 0;
  finish_request request;
};

using save_effect =
    std::variant<save_reserve, save_place, save_gather, save_fill, save_commit, save_abort, task_finished>;

/// Saves blocks of one rank: reserve at the registry, place (the io worker gives frames), gather into these, fill (the
/// io worker takes the pages over), commit. Batches of a task overlap: while one is filled the next is gathered.
///
/// What can go wrong, per block: it is already stored (exists), somebody else is writing it (busy), no slot or no frame
/// (full), gather or fill failed (that error; the slot is given back), the reservation ran out before the commit
/// (expired), the deadline passed (timeout), the node is gone (unreachable). Only what the io worker has taken over is
/// committed, and only after a positive answer of the registry to the commit is a block reported as saved. A lost
/// answer is asked for again with the same ticket until the deadline, and so is a node that takes no more for now.
///
/// Frames that were given are given back, filled or not: as soon as nothing of them is to be gathered any more.
///
/// A task may be cancelled, because its blocks will hold something else: what is not in frames completely by then is
/// never published. What is goes on to its own result.
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

  /// Gives up the tasks with these tags. Every page that was not gathered completely has ended as `cancelled`, and its
  /// slot is given back as soon as nothing is under way for it. Tags that no task has are ignored.
  void cancel(std::span<const std::uint64_t> tags, timestamp now);

  std::vector<save_effect> take_outbox();

private:
  void send_reserve(task& t, std::vector<std::uint32_t> positions, std::uint32_t shard, std::uint32_t attempt,
                    timestamp now);
  void send_finish(task& t, const std::vector<std::uint32_t>& positions, bool commit, timestamp now,
                   std::uint32_t attempt = 0);
  /// Asks for frames for as many ready pages as there is room for in the window.
  void pump(timestamp now);
  /// Ends a pin: says of each page of the place whether it was gathered, or why not.
  void send_fill(task& t, frame_hold frames, timestamp now);
  save_fill make_fill(task& t, frame_hold frames, timestamp now);
  /// For pages that have a slot, and nothing under way.
  void give_up(task& t, const std::vector<std::uint32_t>& positions, timestamp now);
  void settle_all(task& t);

  std::vector<save_effect> outbox_;
  /// Fills that the node has had no room for: they go out again with the timer.
  std::vector<save_fill> postponed_;
};

} // namespace troupe::transfer
