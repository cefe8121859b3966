#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <memory>

namespace troupe {

/// A proxy for a registry shard with the rights of one attached client: it forwards permitted requests, and rejects the
/// rest. Only an exit message of the node ends it.
class client_shard : public client_shard_actor::base {
public:
  /// `home`: the client's process; requests from elsewhere are rejected.
  client_shard(caf::actor_config& config, std::shared_ptr<client_rights> rights, registry_actor shard,
               caf::actor_addr node, caf::node_id home);

  const char* name() const override { return "client_shard"; }
  void on_exit() override { shard_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  /// `verb`: an optional atom before the request.
  template <class Reply, class Request, class... Verb>
  caf::result<Reply> serve(Request& x, std::function<void(const caf::message&)> at_answer, Verb... verb);

  std::shared_ptr<client_rights> rights_;
  registry_actor shard_;
  caf::node_id home_;
};

} // namespace troupe
