#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// A proxy for the cluster actor with the rights of one attached client: it forwards permitted requests. Only an exit
/// message of the node ends it.
class client_cluster : public client_cluster_actor::base {
public:
  /// `home` as for `client_shard`.
  client_cluster(caf::actor_config& config, std::shared_ptr<client_rights> rights, cluster_actor peers,
                 caf::actor_addr node, caf::node_id home);

  const char* name() const override { return "client_cluster"; }
  void on_exit() override { peers_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  template <class Reply, class Request>
  caf::result<Reply> serve(Request& x);

  std::shared_ptr<client_rights> rights_;
  cluster_actor peers_;
  caf::node_id home_;
};

} // namespace troupe
