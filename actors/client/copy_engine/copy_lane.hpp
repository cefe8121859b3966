#pragma once

#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// The threads on which lanes wait for a device and for memory.
enum class lane_threads : std::uint8_t {
  /// Each on a thread of its own.
  own,
  /// On those of the scheduler: for simulations, whose scheduler has no threads.
  none,
};

/// Waits for the orders of an attachment that has ended.
using quiesce_watch_actor =
    caf::typed_actor<caf::replies_to<unbind_atom, owner_id>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// Carries out orders of a copy engine, one after the other, and waits for each: spawn it detached. Ends with the error
/// of the device when that has become unusable.
class copy_lane : public copy_engine_actor::base {
public:
  copy_lane(caf::actor_config& config, std::shared_ptr<copy_engine_state> state,
            lane_threads threads = lane_threads::none);

  const char* name() const override { return "copy_lane"; }
  void on_exit() override { state_.reset(); }

protected:
  behavior_type make_behavior() override;

private:
  quiesce_watch_actor spawn_watch();

  using order_call = result<copy_reply> (copy_engine_state::*)(const copy_order&);
  caf::result<copy_reply> carry_out(order_call call, const copy_order& order);

  std::shared_ptr<copy_engine_state> state_;
  lane_threads threads_;
};

} // namespace troupe
