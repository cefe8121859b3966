#pragma once

#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "actors/cluster/pages/inbound_transfers.hpp"
#include "actors/cluster/pages/staging_buffer.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <caf/all.hpp>

#include <memory>

namespace troupe::cluster {

/// The pages of one order while they are transferred into their frames.
class staging_passage;

/// The sender has answered a copier's request for pages. Never leaves the process.
struct pages_sent {
  open_promises::number request = 0;
  std::shared_ptr<staging_passage> what;
  result<transfer_result> outcome;
};

using staging_copier_base = copy_engine_actor::extend<caf::reacts_to<pages_sent>>;

/// The copy engine of the client that saves pages of other nodes. Its gather requests the pages from their sender.
/// While their frames are pinned, these stand in for the blocks of the order, so that a page is copied once, from the
/// other node's frame to the one of this node. `copy_order::ready_event` is the number under which `inbound_transfers`
/// knows the sender.
///
/// A `copy_engine`, which ends with this actor, gathers everything else, and pages that arrived in a block instead of
/// the frame, as from a file. After a missing page no later one is kept, because its key would not be found.
class staging_copier : public staging_copier_base::base {
public:
  staging_copier(caf::actor_config& config, std::shared_ptr<copy_engine_state> state,
                 std::shared_ptr<inbound_transfers> expected, std::shared_ptr<staging_buffer> memory,
                 copy_engine_actor copier);

  const char* name() const override { return "staging_copier"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  caf::result<copy_reply> gather(const copy_order& order);
  void on_sent(const pages_sent& x);

  std::shared_ptr<copy_engine_state> state_;
  std::shared_ptr<inbound_transfers> expected_;
  std::shared_ptr<staging_buffer> memory_;
  copy_engine_actor copier_;
  open_promises promises_;
};

} // namespace troupe::cluster

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::cluster::pages_sent)
