#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// What one attached client has in place of an io worker: gets it frames, in its own name, for pages that are its to
/// write or stored. Ends by an exit message of the node only.
class client_worker : public client_worker_actor::base {
public:
  /// `home` as for `client_shard`. `remote`: asked in place of the io worker, for a client that cannot map the arena;
  /// else null.
  client_worker(caf::actor_config& config, std::shared_ptr<client_rights> rights, rank_number rank,
                io_worker_actor worker, caf::actor_addr node, caf::node_id home, remote_worker_actor remote = {});

  const char* name() const override { return "client_worker"; }
  void on_exit() override {
    worker_ = nullptr;
    remote_ = nullptr;
  }

protected:
  behavior_type make_behavior() override;

private:
  /// Hands the request on if the client may make it: `allowed` says so.
  template <class Reply, class... Ts>
  caf::result<Reply> pass_on(const result<void>& allowed, Ts&&... request);

  std::shared_ptr<client_rights> rights_;
  rank_number rank_ = 0;
  io_worker_actor worker_;
  remote_worker_actor remote_;
  caf::node_id home_;
};

} // namespace troupe
