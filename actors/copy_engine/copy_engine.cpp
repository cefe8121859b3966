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
    [this](gather_atom, const copy_order& order) { return to_caf(state_->gather(order)); },
    [this](scatter_atom, const copy_order& order) { return to_caf(state_->scatter(order)); },
  };
}

} // namespace troupe
