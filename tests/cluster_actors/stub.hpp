#pragma once

#include "tests/simulation/tap.hpp"

#include <caf/all.hpp>

#include <functional>

namespace troupe::cluster_actors {

/// Stands for an actor of the world that a `cluster` sends messages to: they are handled in the turn in which they are
/// sent. Has no mailbox, and so takes no turn.
class stub final : public caf::monitorable_actor {
public:
  using handler = std::function<void(const simulation::passing&)>;

  stub(caf::actor_config& config, handler takes);

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override;
  const char* name() const override { return "stub"; }

  /// It takes no more messages; its monitors are not notified.
  void forget() { takes_ = {}; }
  /// As the middleman ends a proxy when its connection is lost: its monitors are notified, requests are not answered.
  void lose();

private:
  handler takes_;
};

/// `node`: the process that the actor seems to be in.
caf::strong_actor_ptr make_stub(caf::actor_system& system, const caf::node_id& node, stub::handler takes);

template <class Handle>
Handle stub_as(caf::actor_system& system, stub::handler takes) {
  return caf::actor_cast<Handle>(make_stub(system, system.node(), std::move(takes)));
}

template <class Handle>
stub& stub_of(const Handle& handle) {
  return *caf::actor_cast<stub*>(handle);
}

template <class... Ts>
void answer(const simulation::passing& request, Ts&&... xs) {
  simulation::tap::answer(request, caf::make_message(std::forward<Ts>(xs)...));
}

} // namespace troupe::cluster_actors
