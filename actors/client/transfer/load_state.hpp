#pragma once

#include "actors/client/transfer/coordinator_core.hpp"

#include <variant>

namespace troupe::transfer {

/// What the actor has to do for the load coordinator; every call is answered through the `on_…` of the same name.
struct load_locate {
  call_id call = 0;
  std::uint32_t shard = 0;
  locate_request request;
};
/// Asks the io worker for frames that hold the pages.
struct load_fetch {
  call_id call = 0;
  frame_request request;
};
/// Reads pages from the rank's slab file, and puts those that verify into their blocks.
struct load_read {
  call_id call = 0;
  packed<read_item> items;
  duration patience{};
};
struct load_scatter {
  call_id call = 0;
  copy_order order;
};
/// Ends the pin of a fetch. Nothing waits for its answer, but a node that had no room for it is asked again.
struct load_unpin {
  call_id call = 0;
  pin_number pin = 0;
};
/// The page does not hold what the registry says: unpublish it, so that the next request is a miss and not a failure.
struct load_invalidate {
  call_id call = 0;
  std::uint32_t shard = 0;
  invalidate_request request;
};
struct load_release {
  call_id call = 0;
  std::uint32_t shard = 0;
  release_request request;
};

using load_effect = std::variant<load_locate, load_fetch, load_scatter, load_unpin, load_invalidate, load_release,
                                 load_read, task_finished>;

/// Loads blocks of one rank: locate at the registry with a lease of its own, fetch (the io worker pins the frames that
/// hold the pages, and reads into some those that were only on disk), verify and scatter out of these, unpin, give the
/// lease back. Batches of a task overlap.
///
/// What can go wrong, per block: no page (not_found: a miss), the slot was given away because the lease ran out
/// (stale), reading failed (io_error, slab_damaged), memory is short (full), the page is not what was saved (corrupt,
/// identity_mismatch), the deadline passed (timeout), the node is gone (unreachable). A block is reported as loaded
/// only when its bytes were verified and scattered, and as failed only when nobody writes it any more. Frames stay
/// pinned until nothing of them is wanted any more, or the copy engine has answered; the lease is kept until the last
/// pin has ended. A node that takes no more fetches for now is asked again until the deadline. When a task is
/// cancelled, only what is being scattered still gets a result of its own.
///
/// Where the node's slab file can be read by this side (`node_binding::shares_slab`), pages that are in it, by what the
/// node says, are read there, under the same lease and verified in the same way. What is not found sound there is
/// fetched from the node, page by page, so a file that is damaged, or another one, costs time and nothing else. Nobody
/// is told to unpublish anything for it: the node finds out when it reads the page itself. After an order of which
/// nothing came but failures, files are left alone for a while. The file is that of the binding: when this coordinator
/// is bound anew, nothing is read from a file of before.
class load_state : public coordinator_core {
public:
  using coordinator_core::coordinator_core;

  void bind(const node_binding& binding) {
    bind_node(binding);
    no_files_until_ = timestamp::min();
  }

  bool needs_ticks() const noexcept { return coordinator_core::needs_ticks() || !postponed_.empty(); }

  /// The node is lost, or the coordinator ends: every open task ends with `status`, at once or, where blocks are being
  /// filled, when the copy engine has answered.
  void unbind(errc status);

  /// Starts a task; the answer comes as `task_finished`, at once for a task without blocks.
  result<task_id> start(const transfer_task& work, timestamp now);

  void on_locate(call_id id, result<locate_reply> reply, timestamp now);
  void on_fetch(call_id id, result<frame_reply> reply, timestamp now);
  void on_unpin(call_id id, result<void> reply, timestamp now);
  void on_scatter(call_id id, result<copy_reply> reply, timestamp now);
  void on_read(call_id id, result<read_reply> reply, timestamp now);
  void on_invalidate(call_id id, result<finish_reply> reply, timestamp now);
  void on_release(call_id id, result<void> reply, timestamp now);
  void on_tick(timestamp now);

  /// Gives up the tasks with these tags. Every page that is not being scattered has ended as `cancelled`, and its
  /// blocks are not written. Tags that no task has are ignored.
  void cancel(std::span<const std::uint64_t> tags, timestamp now);

  std::vector<load_effect> take_outbox();

private:
  void send_locate(task& t, std::vector<std::uint32_t> positions, std::uint32_t shard, std::uint32_t attempt,
                   timestamp now);
  struct bad_page {
    std::uint32_t position = 0;
    errc why = errc::ok;
  };
  void send_invalidate(task& t, const std::vector<bad_page>& bad, timestamp now);
  /// Ends a pin, if there is one.
  void unpin(frame_hold& frames);
  /// Gives the lease back once every block has a result and nothing is pinned any more, then lets the task go.
  void conclude(task& t, timestamp now);
  /// Asks for frames for as many ready pages as there is room for in the window.
  void pump(timestamp now);
  /// Has pages read from the slab file, two orders at once.
  void pump_files(timestamp now);
  void read_some(task& t, timestamp now);
  /// Counts what has come of a page that was to be read from the file.
  static void count(task& t, errc code);

  std::vector<load_effect> outbox_;
  /// Unpins under way, and those that the node has had no room for: they go out again with the timer.
  std::unordered_map<call_id, pin_number> unpins_;
  std::vector<load_unpin> postponed_;
  /// Orders to read from the file that are under way; no file is read before that time.
  std::size_t reads_ = 0;
  timestamp no_files_until_ = timestamp::min();
};

} // namespace troupe::transfer
