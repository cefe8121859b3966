#include "actors/client/copy_engine/copy_lane.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/log.hpp"

#include <chrono>
#include <utility>

namespace troupe {

namespace {

/// How often to check whether the arena of a node that has ended is released. Until then its memory is not free for a
/// node that starts again, which waits only a few seconds.
constexpr auto look_interval = std::chrono::milliseconds(200);

/// Waits for the orders of an attachment that has ended, and answers; meanwhile the lanes carry out orders of the next
/// one. Lives until the arena is released or bound again, and not longer than the lane.
class quiesce_watch : public quiesce_watch_actor::base {
public:
  quiesce_watch(caf::actor_config& config, std::shared_ptr<copy_engine_state> state, const caf::actor_addr& lane)
      : quiesce_watch_actor::base(config), state_(std::move(state)) {
    set_down_handler([this](const caf::down_msg&) { quit(); });
    monitor(lane);
  }

  const char* name() const override { return "quiesce_watch"; }
  void on_exit() override { state_.reset(); }

protected:
  behavior_type make_behavior() override {
    return {
        [this](unbind_atom, owner_id owner) -> caf::result<void> {
          state_->wait_for_quiesce(owner);
          look();
          return caf::unit;
        },
        [this](caf::tick_atom) { look(); },
    };
  }

private:
  void look() {
    if (state_->drop_lost_arena())
      delayed_send(this, look_interval, caf::tick_atom_v);
    else
      quit();
  }

  std::shared_ptr<copy_engine_state> state_;
};

} // namespace

copy_lane::copy_lane(caf::actor_config& config, std::shared_ptr<copy_engine_state> state, lane_threads threads)
    : copy_engine_actor::base(config), state_(std::move(state)), threads_(threads) {}

caf::result<copy_reply> copy_lane::carry_out(order_call call, const copy_order& order) {
  const auto started = clock().now();
  auto reply = ((*state_).*call)(order);
  if (reply) {
    reply->move = clock().now() - started;
    if (const auto trouble = state_->take_trouble())
      log::get("copy_engine")
          ->warn("cannot register a part of the node's memory with the device; its pages cannot be moved: {}",
                 to_string(*trouble));
    return std::move(*reply);
  }
  if (const auto failure = state_->failure())
    quit(to_caf(*failure));
  return to_caf(reply.error());
}

quiesce_watch_actor copy_lane::spawn_watch() {
  if (threads_ == lane_threads::own) {
    // Without a thread of its own it blocks one of the scheduler's, for as long as the orders in progress take.
    if (auto made = spawn_with_thread<quiesce_watch>(system(), thread_name("troupe-quiesce"),
                                                     "the thread that waits for copies", state_, address()))
      return *made;
  }
  return spawn_actor<quiesce_watch>(system(), state_, address());
}

copy_lane::behavior_type copy_lane::make_behavior() {
  return {
      [this](bind_atom, owner_id owner, const arena_info& arena) -> caf::result<void> {
        return to_caf(state_->bind(owner, arena));
      },
      [this](lend_atom, owner_id owner, const arena_info& arena) -> caf::result<remote_offer> {
        return to_caf(state_->expose(owner, arena));
      },
      [this](unbind_atom x, owner_id owner) {
        state_->end(owner);
        return delegate(spawn_watch(), x, owner);
      },
      [this](gather_atom, const copy_order& order) { return carry_out(&copy_engine_state::gather, order); },
      [this](scatter_atom, const copy_order& order) { return carry_out(&copy_engine_state::scatter, order); },
  };
}

} // namespace troupe
