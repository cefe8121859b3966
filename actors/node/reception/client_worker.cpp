#include "actors/node/reception/client_worker.hpp"

#include "actors/node/reception/client_proxy.hpp"

#include <utility>

namespace troupe {

client_worker::client_worker(caf::actor_config& config, std::shared_ptr<client_rights> rights, rank_number rank,
                             io_worker_actor worker, caf::actor_addr node, caf::node_id home,
                             remote_worker_actor remote)
    : client_worker_actor::base(config), rights_(std::move(rights)), rank_(rank), worker_(std::move(worker)),
      remote_(std::move(remote)), home_(std::move(home)) {
  ignore_all_but(*this, std::move(node));
}

template <class Reply, class... Ts>
caf::result<Reply> client_worker::pass_on(const result<void>& allowed, Ts&&... request) {
  if (!asked_from(*this, home_))
    return to_caf(not_this_client());
  if (!allowed)
    return to_caf(allowed.error());
  if (auto begun = rights_->begin_request(true); !begun)
    return to_caf(begun.error());
  auto message = caf::make_message(std::forward<Ts>(request)...);
  return remote_ ? hand_on(*this, remote_, rights_, std::move(message))
                 : hand_on(*this, worker_, rights_, std::move(message));
}

client_worker::behavior_type client_worker::make_behavior() {
  // The request carries the owner id, so frames that become available after the client has disconnected end with it.
  return {
      [this](place_atom verb, frame_request& x) {
        const auto allowed = rights_->may_place(rank_, x);
        return pass_on<frame_reply>(allowed, verb, rights_->scope().owner, std::move(x));
      },
      [this](fetch_atom verb, frame_request& x) {
        const auto allowed = rights_->may_fetch(x);
        return pass_on<frame_reply>(allowed, verb, rights_->scope().owner, std::move(x));
      },
      [this](fill_atom verb, fill_request& x) {
        return pass_on<io_reply>({}, verb, rights_->scope().owner, std::move(x));
      },
      [this](unpin_atom verb, pin_number pin) { return pass_on<void>({}, verb, rights_->scope().owner, pin); },
      [this](bind_atom verb, remote_offer& x) -> caf::result<void> {
        if (!remote_)
          return to_caf(error{errc::invalid_argument,
                              "this client maps the node's memory, so it cannot offer memory of its own"});
        return pass_on<void>({}, verb, std::move(x));
      },
  };
}

} // namespace troupe
