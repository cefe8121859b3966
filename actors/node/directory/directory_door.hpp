#pragma once

#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// What others see of the directory of handshakes: stands between it and those who come through the node's doors, since
/// a handle that has left the process can be sent anything. One for all of them; ends with the node.
class directory_door : public handshake_door_actor::base {
public:
  directory_door(caf::actor_config& config, directory_actor behind, caf::actor_addr node);

  const char* name() const override { return "directory_door"; }
  void on_exit() override { behind_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  directory_actor behind_;
};

} // namespace troupe
