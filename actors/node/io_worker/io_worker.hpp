#pragma once

#include "actors/node/io_worker/completion_target.hpp"
#include "actors/node/io_worker/io_worker_state.hpp"
#include "actors/support/latency_collector.hpp"
#include "base/next_tick.hpp"
#include "base/node_condition.hpp"
#include "io/extent_source.hpp"
#include "io/page_store.hpp"
#include "messages/messages.hpp"

#include <deque>
#include <memory>
#include <optional>

namespace troupe {

/// Everything an io worker owns. Made by the node before the actor, because opening a store of pages can fail.
struct io_worker_parts {
  /// Whose pages they are.
  slab_name name;
  std::uint64_t page_bytes = 0;
  /// Gives its completions to `target`. Null where pages live in memory only.
  std::unique_ptr<io::page_store> store;
  /// Lends the memory for pages; outlives the worker.
  std::shared_ptr<io::extent_source> extents;
  /// Where that had better lie.
  std::optional<io::numa_node> numa_node{};
  std::shared_ptr<completion_target> target;
  io_worker_options options;
  metrics_actor metrics;
  /// Is told when the slab is damaged; null if nobody asks.
  std::shared_ptr<node_condition> condition;
  /// Who finds memory when the arena has none left; null if nobody does.
  memory_broker_actor broker;
  /// Its namespace may be closed while the node goes on: then its memory is others' when it ends.
  bool returns_memory = false;
};

/// Keeps the pages of one rank, the only one to do so: in memory that it borrows from the arena, and in the store, the
/// slab file with its lock and the engine with its thread. Ends by an exit message, after which the engine has stopped;
/// until then, `drain` refuses new requests and answers when all is written and at rest.
class io_worker : public io_worker_actor::base {
public:
  io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts);

  const char* name() const override { return "io_worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// Of a request for frames, or of a fill.
  struct waiting_request {
    caf::response_promise promise;
    timestamp started;
  };

  /// Of the allocator, which wants this many frames.
  struct waiting_grower {
    caf::response_promise promise;
    std::uint64_t frames = 0;
    /// It is told by then what there is.
    timestamp until;
  };

  timestamp now() const;
  /// Answered by `flush`, if the state has taken it.
  template <class Reply>
  caf::result<Reply> wait_for(const result<io_worker_state::request_id>& begun);
  void flush();
  /// An extent of the arena, known to the store. Errors: those of `extent_source::lend` and `page_store::add_buffer`.
  result<frame_table::extent> lend();
  void borrow();
  /// Of the allocator, until it has as much as it wants.
  bool grown(const waiting_grower& x);
  /// The same for one that this rank was given.
  result<frame_table::extent> make_known(const io::extent& x);
  bool take_loan(std::uint32_t number);
  /// If the extent is empty that is to go back, or stays.
  void give_back();
  /// Where slots are as many as frames: how many there are from now on.
  void tell_allocator();
  /// What this rank has and wants, if that is news.
  void report();
  void send_checks();
  void answer(io_worker_state::answered_frames& x);
  void answer(io_worker_state::answered_fill& x);
  /// Where it is asked for (io_worker_scrubbing.cpp).
  void begin_scrub();
  void ask_what_to_scrub();
  void check_scrubbed();
  void tell_of_scrub();
  void tell_of_damage();
  void tell_of_given_up();
  void send_samples();
  void check_slab();
  /// Tells the node's condition when writes begin to fail, and when they work again.
  void tell_of_writes();
  void wind_clock();

  std::shared_ptr<io_worker_parts> parts_;
  io_worker_state state_;
  page_checker_actor checker_;
  page_checker_actor scrub_checker_;
  /// Alive at least until the store has stopped.
  std::shared_ptr<std::byte> scrub_memory_;
  std::uint64_t told_passes_ = 0;
  std::vector<registry_actor> shards_;
  bool bound_ = false;
  std::unordered_map<io_worker_state::request_id, waiting_request> requests_;
  std::unordered_map<io_worker_state::fence_id, caf::response_promise> fences_;
  std::vector<caf::response_promise> drains_;
  /// Words to shards that a drain waits for: what was given up is listed by nobody then.
  std::size_t untold_ = 0;
  std::deque<waiting_grower> growers_;
  /// Whoever wants an extent back.
  std::optional<caf::response_promise> giving_;
  /// Of a rank in memory only.
  allocator_actor allocator_;
  std::uint64_t told_frames_ = 0;
  /// A moment ago the arena had no extent for this rank, and until then it says so; and what was reported.
  timestamp wants_until_ = timestamp::min();
  memory_report reported_;
  timestamp reported_oldest_{};
  timestamp next_wish_ = timestamp::min();
  latency_collector samples_;
  timestamp next_look_at_slab_ = timestamp::min();
  /// The next tick that is on its way.
  next_tick tick_;
  /// What the node's condition knows of them.
  errc told_write_trouble_ = errc::ok;
};

} // namespace troupe
