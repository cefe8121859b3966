#pragma once

#include "actors/client/transfer/coordinator_core.hpp"

#include <variant>

namespace troupe::transfer {

/// Effects for the actor of the load coordinator; every call is answered through the `on_…` of the same name.
struct load_locate {
  call_id call = 0;
  std::uint32_t shard = 0;
  locate_request request;
};
/// Requests frames with the pages from the io worker.
struct load_fetch {
  call_id call = 0;
  frame_request request;
};
/// Reads pages from the rank's slab file, and copies those that verify into their blocks.
struct load_read {
  call_id call = 0;
  packed<read_item> items;
  duration patience{};
};
struct load_scatter {
  call_id call = 0;
  copy_order order;
};
/// Ends the pin of a fetch. Its answer is not waited for, but it is repeated when the node had no room for it.
struct load_unpin {
  call_id call = 0;
  pin_number pin = 0;
};
/// Unpublishes a page that does not hold what the registry says, so that the next request is a miss and not a failure.
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

/// Loads blocks of one rank. The steps: locate at the registry with a lease of its own; fetch, for which the io worker
/// pins the frames of the pages and reads those that are only on disk; verify and scatter; unpin; release the lease.
/// Batches of a task overlap.
///
/// Errors, per block: no page (not_found: a miss), the lease expired and the slot was given away (stale), reading
/// failed (io_error, slab_damaged), memory is short (full), the page is not what was saved (corrupt,
/// identity_mismatch), the deadline passed (timeout), the node is lost (unreachable). A block is reported as loaded
/// only when its bytes were verified and scattered, and as failed only when it is not written any more. Frames stay
/// pinned until they are not needed any more, or the copy engine has answered; the lease is kept until the last pin has
/// ended. If a node accepts no more fetches for now, they are repeated until the deadline. When a task is cancelled,
/// only pages that are being scattered still get a result of their own.
///
/// Where this side can read the node's slab file (`node_binding::shares_slab`), pages that the node reports in it are
/// read there, under the same lease and with the same verification. Pages that do not verify there are fetched from the
/// node, page by page, so a damaged or wrong file only costs time. Nothing is unpublished because of that: the node
/// detects the damage when it reads the page itself. After an order of which every page failed, files are not read for
/// a while. The file belongs to the binding: after a new binding the earlier file is not read any more.
class load_state : public coordinator_core {
public:
  using coordinator_core::coordinator_core;

  void bind(const node_binding& binding) {
    bind_node(binding);
    no_files_until_ = timestamp::min();
  }

  bool needs_ticks() const noexcept { return coordinator_core::needs_ticks() || !postponed_.empty(); }

  /// The node is lost, or the coordinator ends: every open task ends with `status`, at once or, where blocks are being
  /// written, when the copy engine has answered.
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

  /// Cancels the tasks with these tags. Every page that is not being scattered has ended as `cancelled`, and its blocks
  /// are not written. Unknown tags are ignored.
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
  /// Releases the lease once every block has a result and nothing is pinned any more, then ends the task.
  void conclude(task& t, timestamp now);
  /// Requests frames for as many ready pages as the window has room for.
  void pump(timestamp now);
  /// Orders reads of pages from the slab file, two orders at once.
  void pump_files(timestamp now);
  void read_some(task& t, timestamp now);
  /// Counts the result of a page that was to be read from the file.
  static void count(task& t, errc code);

  std::vector<load_effect> outbox_;
  /// Unpins in progress, then those that the node has refused: the timer repeats them.
  std::unordered_map<call_id, pin_number> unpins_;
  std::vector<load_unpin> postponed_;
  /// Read orders in progress, then the time before which no file is read.
  std::size_t reads_ = 0;
  timestamp no_files_until_ = timestamp::min();
};

} // namespace troupe::transfer
