#include "actors/node/directory/directory_door.hpp"

#include "actors/node/reception/client_front.hpp"

#include <utility>

namespace troupe {

directory_door::directory_door(caf::actor_config& config, directory_actor behind, caf::actor_addr node)
    : handshake_door_actor::base(config), behind_(std::move(behind)) {
  listen_to_nobody_but(*this, std::move(node));
}

directory_door::behavior_type directory_door::make_behavior() {
  return {
      [this](handshake_publish_request& x) -> caf::result<handshake_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_heartbeat_request& x) -> caf::result<handshake_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_withdraw_request& x) -> caf::result<handshake_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_fetch_request& x) -> caf::result<handshake_fetch_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)), {}, true);
      },
      [this](handshake_list_request& x) -> caf::result<handshake_list_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](watch_atom verb, std::string& engine, const handshake_watcher_actor& who) -> caf::result<std::uint64_t> {
        return hand_on(*this, behind_, nullptr, caf::make_message(verb, std::move(engine), who));
      },
      [this](const handshake_seen_request& x) -> caf::result<void> {
        return hand_on(*this, behind_, nullptr, caf::make_message(x));
      },
      [this](caf::leave_atom verb, std::uint64_t who) -> caf::result<void> {
        return hand_on(*this, behind_, nullptr, caf::make_message(verb, who));
      },
  };
}

} // namespace troupe
