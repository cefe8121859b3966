#pragma once

#include "actors/node/reception/client_front.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/doors/outgoing_budget.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// What others see of the directory of handshakes: stands between it and those who come through the node's doors, since
/// a handle that has left the process can be sent anything. One for all of them; ends with the node.
class directory_door : public handshake_door_actor::base {
public:
  /// `outgoing` may be null: then answers have no bound.
  directory_door(caf::actor_config& config, directory_actor behind, caf::actor_addr node,
                 std::shared_ptr<outgoing_budget> outgoing = nullptr);

  const char* name() const override { return "directory_door"; }
  void on_exit() override { behind_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  /// For the answer to who asks now.
  answer_relay::look bound();

  directory_actor behind_;
  std::shared_ptr<outgoing_budget> outgoing_;
};

} // namespace troupe
