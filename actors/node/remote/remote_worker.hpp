#pragma once

#include "actors/node/remote/remote_state.hpp"
#include "actors/node/remote/remote_totals.hpp"
#include "base/process_watch.hpp"
#include "io/memory/extent_source.hpp"
#include "io/memory/remote_memory.hpp"
#include "messages/messages.hpp"

#include <atomic>
#include <memory>
#include <unordered_map>

namespace troupe {

/// The number of workers of one attachment that may still access the arena. Each counts it down once.
using remote_presence = std::shared_ptr<std::atomic<std::uint32_t>>;

/// A stand-in for the process of a remote client. It counts as ended when nothing moves between the client's memory and
/// the arena any more, whether or not the process still runs.
class remote_watch final : public watched_process {
public:
  explicit remote_watch(remote_presence presence) : presence_(std::move(presence)) {}
  bool gone() override { return presence_->load() == 0; }

private:
  remote_presence presence_;
};

/// The constructor arguments of a remote worker.
struct remote_worker_parts {
  owner_id owner = 0;
  namespace_id ns;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  io_worker_actor worker;
  /// Notified when the client is lost.
  node_actor node;
  std::shared_ptr<io::extent_source> extents;
  /// Null where pages do not move between hosts; then requests are rejected with that reason.
  std::shared_ptr<io::remote_mover> mover;
  remote_presence presence;
  remote_options options;
  /// Counts what moves; may be null.
  std::shared_ptr<remote_totals> totals{};
};

/// An actor that serves one rank of one client on another host, in place of the io worker: it moves pages between the
/// arena and memory that the client has offered. The rules are in `remote_state`. It never blocks: the thread of the
/// transport moves the bytes.
class remote_worker : public remote_worker_actor::base {
public:
  remote_worker(caf::actor_config& config, remote_worker_parts parts);

  const char* name() const override { return "remote_worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }
  template <class Reply>
  caf::result<Reply> wait_for(const result<remote_job>& begun);
  template <class Reply>
  void answer(remote_job job, const result<Reply>& reply);
  void flush();
  void perform(const remote_ask& x);
  void perform(const remote_order& x);
  void perform(const remote_probe& x);
  void perform(const remote_check& x);
  void perform(const remote_fill& x);
  void perform(const remote_unpin& x);
  void perform(const remote_answer_bind& x);
  void perform(const remote_answer_frames& x) { answer(x.job, x.reply); }
  void perform(const remote_answer_fill& x) { answer(x.job, x.reply); }
  void perform(const remote_lost& x);
  void perform(const remote_close& x);
  void perform(const remote_quiesced& x);
  void on_news(const remote_news& x);
  /// A callback for threads of the transport; it notifies this actor if it still exists.
  std::function<void(result<void>)> teller(remote_news::kind what, remote_job job);
  void probe(io::remote_direction direction);

  remote_worker_parts parts_;
  remote_state state_;
  std::shared_ptr<io::remote_peer> peer_;
  page_checker_actor checker_;
  /// The proof of the offered memory, and the buffer into which it is read back.
  std::vector<std::byte> proof_;
  std::shared_ptr<std::vector<std::byte>> proof_seen_;
  bool proof_got_ = false;
  caf::response_promise binding_;
  std::unordered_map<remote_job, caf::response_promise> promises_;
  bool ticking_ = false;
};

} // namespace troupe
