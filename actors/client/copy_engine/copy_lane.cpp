#include "actors/client/copy_engine/copy_lane.hpp"

#include "actors/support/actor_support.hpp"

#include <utility>

namespace troupe {

copy_lane::copy_lane(caf::actor_config& config, std::shared_ptr<copy_engine_state> state)
    : copy_engine_actor::base(config), state_(std::move(state)) {}

caf::result<copy_reply> copy_lane::carry_out(order_call call, const copy_order& order) {
  const auto started = clock().now();
  auto reply = ((*state_).*call)(order);
  if (reply) {
    reply->move = clock().now() - started;
    return std::move(*reply);
  }
  if (const auto failure = state_->failure())
    quit(to_caf(*failure));
  return to_caf(reply.error());
}

copy_lane::behavior_type copy_lane::make_behavior() {
  return {
      [this](bind_atom, const segment_info& lent) -> caf::result<void> { return to_caf(state_->bind(lent)); },
      [this](gather_atom, const copy_order& order) { return carry_out(&copy_engine_state::gather, order); },
      [this](scatter_atom, const copy_order& order) { return carry_out(&copy_engine_state::scatter, order); },
  };
}

} // namespace troupe
