#include "actors/node/reception/reception.hpp"

#include "actors/node/reception/client_front.hpp"

#include <utility>

namespace troupe {

reception::reception(caf::actor_config& config, node_actor node)
    : reception_actor::base(config), node_(std::move(node)) {
  listen_to_nobody_but(*this, node_.address());
  set_down_handler([this](caf::down_msg& x) {
    if (node_ && x.source == node_.address())
      quit(std::move(x.reason));
  });
}

reception::behavior_type reception::make_behavior() {
  monitor(node_);
  return {
      [this](attach_request& wanted, const caf::actor& link) -> caf::result<attach_reply> {
        return hand_on(*this, node_, nullptr, caf::make_message(std::move(wanted), link));
      },
      [this](caf::leave_atom verb, owner_id owner) -> caf::result<void> {
        const auto link = caf::actor_cast<caf::actor>(current_sender());
        if (!link)
          return to_caf(error{errc::invalid_argument, "only a client itself can leave"});
        return hand_on(*this, node_, nullptr, caf::make_message(verb, owner, link));
      },
  };
}

} // namespace troupe
