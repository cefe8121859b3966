#include "actors/copy_engine/copy_engine.hpp"

#include "actors/actor_support.hpp"

namespace troupe {

copy_engine::copy_engine(caf::actor_config& config, std::shared_ptr<copy_engine_state> state)
    : copy_engine_actor::base(config), state_(std::move(state)) {}

copy_engine::behavior_type copy_engine::make_behavior() {
  return {
      [this](bind_atom, const segment_info& info) -> caf::result<void> {
        auto memory = io::segment::map(info.process, info.descriptor, info.bytes);
        if (!memory)
          return to_caf(memory.error());
        state_->bind(info.segment, std::move(*memory));
        return caf::unit;
      },
      [this](gather_atom, const copy_order& order) -> caf::result<copy_reply> {
        auto reply = state_->begin(order);
        if (!reply)
          return to_caf(reply.error());
        const auto started = clock().now();
        state_->gather(order, *reply);
        const auto gathered = clock().now();
        state_->seal(order, *reply);
        reply->move = gathered - started;
        reply->check = clock().now() - gathered;
        return std::move(*reply);
      },
      [this](scatter_atom, const copy_order& order) -> caf::result<copy_reply> {
        auto reply = state_->begin(order);
        if (!reply)
          return to_caf(reply.error());
        const auto started = clock().now();
        state_->verify(order, *reply);
        const auto verified = clock().now();
        state_->scatter(order, *reply);
        reply->check = verified - started;
        reply->move = clock().now() - verified;
        return std::move(*reply);
      },
  };
}

} // namespace troupe
