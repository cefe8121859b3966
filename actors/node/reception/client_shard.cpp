#include "actors/node/reception/client_shard.hpp"

#include "actors/node/reception/client_proxy.hpp"

#include <type_traits>
#include <utility>

namespace troupe {

client_shard::client_shard(caf::actor_config& config, std::shared_ptr<client_rights> rights, registry_actor shard,
                           caf::actor_addr node, caf::node_id home)
    : client_shard_actor::base(config), rights_(std::move(rights)), shard_(std::move(shard)), home_(std::move(home)) {
  ignore_all_but(*this, std::move(node));
}

template <class Reply, class Request, class... Verb>
caf::result<Reply> client_shard::serve(Request& x, std::function<void(const caf::message&)> at_answer, Verb... verb) {
  if (!asked_from(*this, home_))
    return to_caf(not_this_client());
  if (auto allowed = rights_->may(x); !allowed)
    return to_caf(allowed.error());
  if (auto begun = rights_->begin_request(); !begun)
    return to_caf(begun.error());
  if constexpr (std::is_same_v<Request, finish_request>)
    rights_->finished(x);
  if constexpr (std::is_same_v<Request, match_request>)
    x.by_peer = rights_->scope().reads_only;
  // Bounds are for callers of the node's HTTP services; a client that set them would be counted among those.
  if constexpr (requires { x.bounds; })
    x.bounds = {};
  return hand_on(*this, shard_, rights_, caf::make_message(verb..., std::move(x)), std::move(at_answer));
}

client_shard::behavior_type client_shard::make_behavior() {
  return {
      [this](match_request& x) { return serve<match_reply>(x, {}); },
      [this](locate_request& x) { return serve<locate_reply>(x, {}); },
      [this](release_request& x) { return serve<void>(x, {}); },
      [this](renew_request& x) { return serve<void>(x, {}); },
      [this](reserve_request& x) {
        // Recorded before the client receives the answer, so that its writes are allowed.
        return serve<reserve_reply>(x, [rights = rights_, rank = x.rank](const caf::message& answer) {
          if (answer.match_elements<reserve_reply>())
            rights->reserved(rank, answer.get_as<reserve_reply>(0));
        });
      },
      [this](commit_atom verb, finish_request& x) { return serve<finish_reply>(x, {}, verb); },
      [this](abort_atom verb, finish_request& x) { return serve<finish_reply>(x, {}, verb); },
      [this](invalidate_request& x) { return serve<finish_reply>(x, {}); },
      [this](reuse_request& x) { return serve<reuse_reply>(x, {}); },
      [this](describe_pages_request& x) { return serve<result_codes>(x, {}); },
      [this](stats_atom verb) -> caf::result<registry_stats> {
        if (!asked_from(*this, home_))
          return to_caf(not_this_client());
        if (auto begun = rights_->begin_request(); !begun)
          return to_caf(begun.error());
        return hand_on(*this, shard_, rights_, caf::make_message(verb));
      },
  };
}

} // namespace troupe
