#pragma once

#include "actors/copy_engine/copy_engine_state.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// Moves bytes for one device. The host implementation copies on its own thread: spawn it detached, so that no thread
/// of the scheduler is held up by a memcpy.
class copy_engine : public copy_engine_actor::base {
public:
  copy_engine(caf::actor_config& config, std::shared_ptr<copy_engine_state> state);

  const char* name() const override { return "copy_engine"; }
  void on_exit() override { state_.reset(); }

protected:
  behavior_type make_behavior() override;

private:
  std::shared_ptr<copy_engine_state> state_;
};

} // namespace troupe
