#pragma once

#include "actors/support/actor_support.hpp"
#include "actors/support/doors/node_roles.hpp"
#include "actors/support/doors/outgoing_budget.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// Where clients attach: the only actor of a node that others can reach without having attached. Passes on to the node
/// who comes and who leaves. Ends with the node and by nothing else.
class reception : public reception_actor::base {
public:
  /// `handshakes` may be null, and so may `roles`: then whoever reaches it may be a node; and `outgoing`.
  reception(caf::actor_config& config, node_actor node, directory_actor handshakes = {},
            std::shared_ptr<const node_roles> roles = {}, std::shared_ptr<outgoing_budget> outgoing = {});

  const char* name() const override { return "reception"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// Whether who asks now may say that it is a node.
  result<void> check_role();

  node_actor node_;
  /// Until somebody asks for a door to it.
  directory_actor handshakes_;
  handshake_door_actor door_;
  std::shared_ptr<const node_roles> roles_;
  std::shared_ptr<outgoing_budget> outgoing_;
};

} // namespace troupe
