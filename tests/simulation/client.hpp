#pragma once

#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "actors/client/link/reconnect_backoff.hpp"
#include "actors/client/transfer/load_state.hpp"
#include "actors/client/transfer/lookup_state.hpp"
#include "actors/client/transfer/save_state.hpp"
#include "tests/simulation/client_watch.hpp"
#include "tests/simulation/engine_host.hpp"
#include "tests/simulation/node.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

namespace troupe::simulation {

/// A client process: the states of its lookup, load and save coordinators and of its copy engines, and what their
/// actors and the link do around them (actors/transfer/*.cpp, actors/client/copy_engine/copy_engine.cpp,
/// actors/client/link/link.cpp).
class client final : public engine_host {
public:
  client(environment& world, network& net, node& serving, process_number process);

  void start();
  /// kill -9.
  void kill();
  /// Detaches and attaches again, as one who ends and begins does; what is under way is given up.
  void leave();
  bool running() const noexcept { return parts_ != nullptr; }
  bool attached() const noexcept override;
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::uint32_t number() const noexcept override { return process_; }
  duration paused() const override { return net_.paused(process_); }
  void after(duration time, std::function<void()> run) override { net_.after(process_, time, std::move(run)); }
  /// 0: not attached.
  owner_id owner() const noexcept { return owner_; }
  connection_id connection() const noexcept { return connection_; }
  process_number process() const noexcept { return process_; }
  /// Ends the attachment for good.
  void retire();

  device& device_of(rank_number rank) override { return *parts_->ranks[rank].memory; }

  // -- what an engine asks -------------------------------------------------------------------------------------------

  void lookup(const lookup_task& work, std::function<void(result<lookup_result>)> done) override;
  void release(const ticket& lease) override;
  void save(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) override;
  void load(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) override;
  void cancel_save(rank_number rank, std::uint64_t tag, std::function<void()> done) override;
  void cancel_load(rank_number rank, std::uint64_t tag, std::function<void()> done) override;

  /// Cheap; after every step.
  std::string check_counts() const;
  /// Nothing is under way.
  std::string check_at_rest() const;

private:
  template <class State>
  struct coordinator {
    template <class... Args>
    explicit coordinator(address self_, Args&&... args) : self(self_), state(std::forward<Args>(args)...) {}

    address self;
    State state;
    std::conditional_t<std::is_same_v<State, transfer::load_state>, load_watch, save_watch> watch;
    /// While the first messages of a task are sent: which one, and when it is due.
    transfer::task_id starting = 0;
    timestamp due = timestamp::min();
    connection_id via = local;
    bool ticking = false;
    std::map<std::uint64_t, promise<transfer_result>> promises;
  };
  using loads = coordinator<transfer::load_state>;
  using saves = coordinator<transfer::save_state>;

  struct rank_parts {
    std::unique_ptr<device> memory;
    std::unique_ptr<copy_engine_state> copier;
    std::uint64_t segment = 0;
    std::shared_ptr<io::segment> buffers;
    std::unique_ptr<loads> load;
    std::unique_ptr<saves> save;
  };

  struct parts {
    std::vector<rank_parts> ranks;
    std::unique_ptr<transfer::lookup_state> lookup;
    connection_id lookup_via = local;
    bool lookup_ticking = false;
    std::map<transfer::lookup_id, promise<lookup_result>> lookups;
    lookup_watch watch;
    /// While the first messages of a lookup are sent: which one, and what it asks for.
    transfer::lookup_id starting = 0;
    std::vector<key_digest> starting_path;
  };

  address at(role what, rank_number rank = 0) const { return {process_, what, rank}; }
  void make_parts();

  // -- link ----------------------------------------------------------------------------------------------------------

  void connect();
  void retry();
  void attached_as(owner_id owner);
  void open_segment(rank_number rank, std::uint64_t epoch);
  void bind_rank(rank_number rank, const opened_segment& segment, std::uint64_t epoch);
  void lost();
  void detach();

  // -- coordinators --------------------------------------------------------------------------------------------------

  template <class State>
  void start_task(coordinator<State>& c, const transfer_task& work, const promise<transfer_result>& answer);
  template <class State>
  void cancel(coordinator<State>& c, std::uint64_t tag, std::function<void()> done);
  template <class State>
  void flush(coordinator<State>& c);
  template <class State>
  void unbind(coordinator<State>& c);
  /// A request of a coordinator whose answer goes back into its state.
  template <class State, class Reply>
  void ask(coordinator<State>& c, const address& to, duration timeout, std::string_view what, transfer::call_id call,
           void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp),
           std::function<void(const promise<Reply>&)> serve, std::function<void(const result<Reply>&)> seen = {});
  /// Fails if `wrong` says anything.
  void judge(std::string_view property, const address& who, const std::string& wrong);

  void perform(loads& c, transfer::load_locate& x);
  void perform(loads& c, transfer::load_read& x);
  void perform(loads& c, transfer::load_scatter& x);
  void perform(loads& c, transfer::load_invalidate& x);
  void perform(loads& c, transfer::load_release& x);
  void perform(saves& c, transfer::save_reserve& x);
  void perform(saves& c, transfer::save_gather& x);
  void perform(saves& c, transfer::save_write& x);
  void perform(saves& c, transfer::save_commit& x);
  void perform(saves& c, transfer::save_abort& x);
  template <class State>
  void perform(coordinator<State>& c, transfer::task_finished& x);

  void flush_lookup();
  void perform(transfer::lookup_match& x);
  void perform(transfer::lookup_release& x);
  void perform(transfer::lookup_finished& x);

  // -- copy engine ---------------------------------------------------------------------------------------------------

  result<copy_reply> gather(rank_number rank, const copy_order& order);
  result<copy_reply> scatter(rank_number rank, const copy_order& order);
  void check_buffers(rank_number rank, const copy_order& order);
  duration io_patience() const;

  environment& world_;
  network& net_;
  node& node_;
  process_number process_;
  random_source random_;
  namespace_id space_;
  std::uint64_t slot_bytes_;
  std::unique_ptr<parts> parts_;
  std::unique_ptr<reconnect_backoff> backoff_;
  connection_id connection_ = local;
  owner_id owner_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint32_t unbound_ = 0;
  bool retired_ = false;
};

} // namespace troupe::simulation
