#include "actors/client/copy_engine/copy_engine.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/log.hpp"

#include <utility>

namespace troupe {

namespace {

void end_lanes(copy_lanes& lanes) {
  for (auto* all : {&lanes.gathering, &lanes.scattering})
    for (const auto& lane : std::exchange(*all, {}))
      caf::anon_send_exit(lane, caf::exit_reason::user_shutdown);
}

} // namespace

result<copy_engine_actor> spawn_copy_engine(caf::actor_system& system, std::shared_ptr<copy_engine_state> state,
                                            lane_threads threads) {
  copy_lanes lanes;
  for (const auto which : {move_direction::gather, move_direction::scatter})
    for (std::uint32_t i = 0; i < state->orders_at_once(which); ++i) {
      auto& all = which == move_direction::gather ? lanes.gathering : lanes.scattering;
      if (threads != lane_threads::own) {
        all.push_back(spawn_actor<copy_lane>(system, state, threads));
        continue;
      }
      auto lane = spawn_with_thread<copy_lane>(system, thread_name("troupe-copy"), "the thread that copies pages",
                                               state, threads);
      if (lane) {
        all.push_back(std::move(*lane));
        continue;
      }
      if (all.empty()) {
        end_lanes(lanes);
        return tl::unexpected<error>(lane.error());
      }
      // With fewer threads than wanted it is slower, and nothing else.
      log::get("copy_engine")
          ->warn("{}; {} of {} threads copy pages", lane.error().text, all.size(), state->orders_at_once(which));
      break;
    }
  return spawn_actor<copy_engine>(system, std::move(state), std::move(lanes));
}

copy_engine::copy_engine(caf::actor_config& config, std::shared_ptr<copy_engine_state> state, copy_lanes lanes)
    : copy_engine_actor::base(config), state_(std::move(state)), lanes_(std::move(lanes)) {}

void copy_engine::on_exit() {
  end_lanes(lanes_);
  state_.reset();
}

void copy_engine::lane_ended(const caf::down_msg& down) {
  if (const auto failure = state_->failure())
    log::get("copy_engine")->error("device failed, copies on it have stopped: {}", to_string(*failure));
  quit(down.reason);
}

copy_engine::behavior_type copy_engine::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { lane_ended(down); });
  for (const auto* all : {&lanes_.gathering, &lanes_.scattering})
    for (const auto& lane : *all)
      monitor(lane);
  return {
      // Unregistering the memory of the attachment before takes as long as a large order. Orders that follow a bind are
      // sent after its answer, so other lanes may overtake it.
      [this](bind_atom x, owner_id owner, const arena_info& arena) {
        return delegate(lanes_.scattering.front(), x, owner, arena);
      },
      [this](lend_atom x, owner_id owner, const arena_info& arena) {
        return delegate(lanes_.scattering.front(), x, owner, arena);
      },
      // Runs after the binds that came before it.
      [this](unbind_atom x, owner_id owner) { return delegate(lanes_.scattering.front(), x, owner); },
      [this](gather_atom x, const copy_order& order) {
        return delegate(lanes_.gathering[gathers_++ % lanes_.gathering.size()], x, order);
      },
      [this](scatter_atom x, const copy_order& order) {
        return delegate(lanes_.scattering[scatters_++ % lanes_.scattering.size()], x, order);
      },
  };
}

} // namespace troupe
