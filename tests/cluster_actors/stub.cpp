#include "tests/cluster_actors/stub.hpp"

#include <utility>

namespace troupe::cluster_actors {

stub::stub(caf::actor_config& config, handler takes) : caf::monitorable_actor(config), takes_(std::move(takes)) {}

void stub::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  // The handler may forget itself.
  if (const auto takes = takes_)
    takes({element->sender, element->mid, element->move_content_to_message()});
}

void stub::lose() {
  forget();
  cleanup(caf::make_error(caf::exit_reason::remote_link_unreachable), nullptr);
}

caf::strong_actor_ptr make_stub(caf::actor_system& system, const caf::node_id& node, stub::handler takes) {
  caf::actor_config config;
  return caf::make_actor<stub, caf::strong_actor_ptr>(system.next_actor_id(), node, &system, config, std::move(takes));
}

} // namespace troupe::cluster_actors
