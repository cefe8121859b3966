#pragma once

#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// Where clients attach: the only actor of a node that others can reach without having attached. Passes on to the node
/// who comes and who leaves. Ends with the node and by nothing else.
class reception : public reception_actor::base {
public:
  /// `handshakes` may be null.
  reception(caf::actor_config& config, node_actor node, directory_actor handshakes = {});

  const char* name() const override { return "reception"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  node_actor node_;
  /// Until somebody asks for a door to it.
  directory_actor handshakes_;
  handshake_door_actor door_;
};

} // namespace troupe
