#pragma once

#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "actors/cluster/arrivals.hpp"
#include "actors/cluster/in_turn.hpp"
#include "actors/cluster/passing_memory.hpp"
#include "actors/support/actor_support.hpp"
#include "messages/messages.hpp"

#include <caf/all.hpp>

#include <functional>
#include <memory>

namespace troupe::cluster {

using passing_copier_base = copy_engine_actor::extend<caf::reacts_to<in_turn>>;

/// The copy engine of the client that saves what comes from other nodes. For it, to gather pages is to have them sent:
/// while their frames are pinned these stand in for the blocks of the order, so that what the other node has is copied
/// once, from its frame to the one of this node. `copy_order::ready_event` is the number under which `arrivals` knows
/// who sends them.
///
/// What lies in a block and not in the frame when it has been sent, as from a file, is gathered by a `copy_engine`, as
/// everything else is that one does; it ends with this. Behind a page that has not come no other is kept: its key would
/// not be found.
class passing_copier : public passing_copier_base::base {
public:
  passing_copier(caf::actor_config& config, std::shared_ptr<copy_engine_state> state,
                 std::shared_ptr<arrivals> expected, std::shared_ptr<passing_memory> memory, copy_engine_actor copier);

  const char* name() const override { return "passing_copier"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  class passage;

  caf::result<copy_reply> gather(const copy_order& order);
  void on_sent(open_promises::number request, const std::shared_ptr<passage>& what,
               const result<transfer_result>& outcome);

  std::shared_ptr<copy_engine_state> state_;
  std::shared_ptr<arrivals> expected_;
  std::shared_ptr<passing_memory> memory_;
  copy_engine_actor copier_;
  open_promises promises_;
};

} // namespace troupe::cluster
