#include "actors/node/reception/directory_proxy.hpp"

#include "actors/node/directory/answer_bounds.hpp"

#include <nlohmann/json.hpp>

#include <utility>

namespace troupe {

directory_proxy::directory_proxy(caf::actor_config& config, directory_actor behind, caf::actor_addr node,
                                 std::shared_ptr<outgoing_budget> outgoing)
    : handshake_proxy_actor::base(config), behind_(std::move(behind)), outgoing_(std::move(outgoing)) {
  ignore_all_but(*this, std::move(node));
}

answer_relay::look directory_proxy::bound() {
  const auto& asker = current_sender();
  // In this process all share the payloads of the directory, so answers need no room.
  if (!outgoing_ || !asker || asker->node() == system().node())
    return {};
  return [room = outgoing_](caf::message& answer) { bound_answer(answer, *room); };
}

directory_proxy::behavior_type directory_proxy::make_behavior() {
  return {
      [this](handshake_publish_request& x) -> caf::result<handshake_reply> {
        if (x.form == handshake_form::json && !nlohmann::json::accept(x.payload)) {
          handshake_reply refusal;
          refusal.code = static_cast<std::uint8_t>(errc::invalid_argument);
          refusal.text = "the payload is declared as JSON but is not valid JSON";
          return refusal;
        }
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_heartbeat_request& x) -> caf::result<handshake_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_withdraw_request& x) -> caf::result<handshake_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)));
      },
      [this](handshake_fetch_request& x) -> caf::result<handshake_fetch_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)), bound(), true);
      },
      [this](handshake_list_request& x) -> caf::result<handshake_list_reply> {
        return hand_on(*this, behind_, nullptr, caf::make_message(std::move(x)), bound());
      },
      [this](watch_atom verb, std::string& engine, const handshake_watcher_actor& who) -> caf::result<std::uint64_t> {
        // Otherwise the directory would send updates to an actor of another client, or of the node.
        if (who && (!current_sender() || who.node() != current_sender()->node()))
          return to_caf(error{errc::invalid_argument, "the watcher must be an actor of the requesting process"});
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
