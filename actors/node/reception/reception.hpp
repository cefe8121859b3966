#pragma once

#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/node_roles.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// The actor to which clients attach, and the only actor of a node that others can reach before they attach. It
/// forwards attachments and disconnections to the node. It ends only with the node.
class reception : public reception_actor::base {
public:
  /// `handshakes` and `outgoing` may be null, and so may `roles`: then every peer may act as a node.
  reception(caf::actor_config& config, node_actor node, directory_actor handshakes = {},
            std::shared_ptr<const node_roles> roles = {}, std::shared_ptr<outgoing_budget> outgoing = {});

  const char* name() const override { return "reception"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// Whether the current requester may attach as a node.
  result<void> check_role();

  node_actor node_;
  /// Kept until a client first asks for access to the directory.
  directory_actor handshakes_;
  handshake_proxy_actor proxy_;
  std::shared_ptr<const node_roles> roles_;
  std::shared_ptr<outgoing_budget> outgoing_;
};

} // namespace troupe
