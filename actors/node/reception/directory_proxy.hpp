#pragma once

#include "actors/node/reception/client_proxy.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// A proxy of the directory of handshakes for callers that come through the node's listeners, because a handle that has
/// left the process can be sent any message. There is one for all of them; it ends with the node.
class directory_proxy : public handshake_proxy_actor::base {
public:
  /// `outgoing` may be null: then answers have no limit.
  directory_proxy(caf::actor_config& config, directory_actor behind, caf::actor_addr node,
                  std::shared_ptr<outgoing_budget> outgoing = nullptr);

  const char* name() const override { return "directory_proxy"; }
  void on_exit() override { behind_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  /// The bound on the answer to the present requester.
  answer_relay::look bound();

  directory_actor behind_;
  std::shared_ptr<outgoing_budget> outgoing_;
};

} // namespace troupe
