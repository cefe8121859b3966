#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// A proxy for an io worker with the rights of one attached client: it provides frames, in the client's name, for
/// stored pages and for pages that the client may write. Only an exit message of the node ends it.
class client_worker : public client_worker_actor::base {
public:
  /// `home`: as for `client_shard`. `remote`: receives the requests instead of the io worker for a client that cannot
  /// map the arena; else null.
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
  /// Forwards the request if `allowed` has no error.
  template <class Reply, class... Ts>
  caf::result<Reply> pass_on(const result<void>& allowed, Ts&&... request);

  std::shared_ptr<client_rights> rights_;
  rank_number rank_ = 0;
  io_worker_actor worker_;
  remote_worker_actor remote_;
  caf::node_id home_;
};

} // namespace troupe
