#pragma once

#include "actors/client/copy_engine/copy_lane.hpp"
#include "messages/messages.hpp"

#include <caf/all.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The lanes of a copy engine, by direction.
struct copy_lanes {
  std::vector<copy_engine_actor> gathering;
  std::vector<copy_engine_actor> scattering;
};

/// The copy engine of one device. Lanes, each with a thread of its own, carry out its orders, so that no thread of the
/// scheduler waits for a device or for memory. Loads and saves have different lanes, so neither waits for the other.
/// There are as many lanes per direction as the device carries out orders at once.
///
/// It serves one attachment of the client to a node at a time, by its owner id. An unbind is answered as soon as no
/// order of the attachment is in progress: from then on this device does not access the frames that it had pinned.
///
/// It only passes orders on, which costs a turn of the scheduler for each. For that the coordinators have one handle,
/// which monitors all lanes and fails as a whole when one of them does, whichever lane an order was meant for.
///
/// It ends with an error when the device has become unusable; orders in progress are answered before. Use
/// `spawn_copy_engine` to spawn it.
class copy_engine : public copy_engine_actor::base {
public:
  copy_engine(caf::actor_config& config, std::shared_ptr<copy_engine_state> state, copy_lanes lanes);

  const char* name() const override { return "copy_engine"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  void lane_ended(const caf::down_msg& down);

  std::shared_ptr<copy_engine_state> state_;
  copy_lanes lanes_;
  std::size_t gathers_ = 0;
  std::size_t scatters_ = 0;
};

/// Spawns a copy engine with its lanes. Errors: `io_error` where no more threads can be created.
result<copy_engine_actor> spawn_copy_engine(caf::actor_system& system, std::shared_ptr<copy_engine_state> state,
                                            lane_threads threads = lane_threads::own);

} // namespace troupe
