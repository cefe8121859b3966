#include "actors/client/copy_engine/copy_engine.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <utility>

namespace troupe {

copy_engine::copy_engine(caf::actor_config& config, std::shared_ptr<copy_engine_state> state, lane_threads threads)
    : copy_engine_actor::base(config), state_(std::move(state)), threads_(threads) {}

void copy_engine::on_exit() {
  for (auto* lanes : {&gathering_, &scattering_})
    for (const auto& lane : std::exchange(*lanes, {}))
      send_exit(lane, caf::exit_reason::user_shutdown);
  state_.reset();
}

void copy_engine::lane_ended(const caf::down_msg& down) {
  if (const auto failure = state_->failure())
    log::get("copy_engine")->error("the device can no longer be used: {}", to_string(*failure));
  quit(down.reason);
}

copy_engine::behavior_type copy_engine::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { lane_ended(down); });
  for (const auto which : {move_direction::gather, move_direction::scatter})
    for (std::uint32_t i = 0; i < state_->orders_at_once(which); ++i) {
      auto& lanes = which == move_direction::gather ? gathering_ : scattering_;
      lanes.push_back(threads_ == lane_threads::own ? spawn_actor<copy_lane, caf::detached>(system(), state_, threads_)
                                                    : spawn_actor<copy_lane>(system(), state_, threads_));
      monitor(lanes.back());
    }
  return {
      // Unlocking the memory of before takes as long as a large order does. The orders that follow a bind are sent when
      // it is answered, so it does not matter that other lanes overtake it.
      [this](bind_atom x, owner_id owner, const arena_info& arena) {
        return delegate(scattering_.front(), x, owner, arena);
      },
      [this](lend_atom x, owner_id owner, const arena_info& arena) {
        return delegate(scattering_.front(), x, owner, arena);
      },
      // Behind the binds that came before it.
      [this](unbind_atom x, owner_id owner) { return delegate(scattering_.front(), x, owner); },
      [this](gather_atom x, const copy_order& order) {
        return delegate(gathering_[gathers_++ % gathering_.size()], x, order);
      },
      [this](scatter_atom x, const copy_order& order) {
        return delegate(scattering_[scatters_++ % scattering_.size()], x, order);
      },
  };
}

} // namespace troupe
