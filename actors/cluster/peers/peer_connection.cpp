#include "actors/cluster/peers/peer_connection.hpp"

#include "actors/client/link/link.hpp"
#include "actors/support/actor_support.hpp"

#include <caf/io/all.hpp>

#include <set>
#include <string>
#include <utility>

namespace troupe::cluster {

peer_connection::peer_connection(caf::actor_config& config, node_address where, caf::io::middleman_actor dialer,
                                 duration limit, std::function<void()> on_lost)
    : peer_connection_actor::base(config), where_(std::move(where)), dialer_(std::move(dialer)), limit_(limit),
      on_lost_(std::move(on_lost)) {
  set_down_handler([this](caf::down_msg& down) {
    if (!tells_of(down, node_))
      return;
    node_ = nullptr;
    on_lost_();
  });
}

void peer_connection::on_exit() {
  node_ = nullptr;
  dialer_ = nullptr;
}

peer_connection::behavior_type peer_connection::make_behavior() {
  return {
      [this](const cluster_hello& hello) -> caf::result<cluster_welcome> {
        if (!asked_from_here(*this))
          return to_caf(not_this_process());
        auto promise = make_response_promise();
        if (node_) {
          send_hello(promise, hello);
          return promise;
        }
        request(dialer_, limit_, caf::connect_atom_v, where_.host, where_.port)
            .then(
                [this, promise, hello](const caf::node_id&, caf::strong_actor_ptr& found,
                                       const std::set<std::string>& interfaces) {
                  if (!found || !system().assignable(interfaces, system().message_types<reception_actor>()))
                    return not_reached(promise, "the listener there is not a node of this version");
                  node_ = caf::actor_cast<reception_actor>(found);
                  monitor(node_);
                  send_hello(promise, hello);
                },
                [this, promise](const caf::error& e) mutable {
                  if (auto why = from_caf(e); why.code == errc::not_owner) {
                    why.text = "cannot connect to a node at " + to_string(where_) + ": " + why.text;
                    promise.deliver(to_caf(why));
                    return;
                  }
                  not_reached(promise, why_not_reached(e, where_));
                });
        return promise;
      },
  };
}

void peer_connection::not_reached(caf::response_promise promise, const std::string& why) {
  promise.deliver(to_caf(error{errc::unreachable, "cannot reach a node at " + to_string(where_) + ": " + why}));
}

void peer_connection::send_hello(caf::response_promise promise, const cluster_hello& hello) {
  request(node_, limit_, hello)
      .then([promise](const cluster_welcome& answer) mutable { promise.deliver(answer); },
            [promise](const caf::error& e) mutable { promise.deliver(e); });
}

} // namespace troupe::cluster
