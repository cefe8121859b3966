#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// What one attached client has in place of an io worker: opens page buffers for it, and lets it transfer between these
/// and the slab. Ends by an exit message of the node only, which also closes the buffers.
class client_worker : public client_worker_actor::base {
public:
  /// `home` as for `client_shard`.
  client_worker(caf::actor_config& config, std::shared_ptr<client_rights> rights, rank_number rank,
                io_worker_actor worker, caf::actor_addr node, caf::node_id home);

  const char* name() const override { return "client_worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  caf::result<segment_info> open(std::uint64_t bytes, std::int32_t memory_node);

  std::shared_ptr<client_rights> rights_;
  rank_number rank_ = 0;
  io_worker_actor worker_;
  caf::node_id home_;
  open_promises opening_;
};

} // namespace troupe
