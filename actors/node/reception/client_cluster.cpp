#include "actors/node/reception/client_cluster.hpp"

#include "actors/node/reception/client_proxy.hpp"

#include <utility>

namespace troupe {

client_cluster::client_cluster(caf::actor_config& config, std::shared_ptr<client_rights> rights, cluster_actor peers,
                               caf::actor_addr node, caf::node_id home)
    : client_cluster_actor::base(config), rights_(std::move(rights)), peers_(std::move(peers)), home_(std::move(home)) {
  ignore_all_but(*this, std::move(node));
}

client_cluster::behavior_type client_cluster::make_behavior() {
  return {
      [this](prefix_fetch_request& x) { return serve<prefix_fetch_reply>(x); },
      [this](search_peers_request& x) { return serve<search_peers_reply>(x); },
      [this](fetch_pages_request& x) { return serve<prefix_fetch_reply>(x); },
  };
}

template <class Reply, class Request>
caf::result<Reply> client_cluster::serve(Request& x) {
  if (!asked_from(*this, home_))
    return to_caf(not_this_client());
  if (auto allowed = rights_->may(x); !allowed)
    return to_caf(allowed.error());
  if (auto begun = rights_->begin_request(); !begun)
    return to_caf(begun.error());
  return hand_on(*this, peers_, rights_, caf::make_message(std::move(x)));
}

} // namespace troupe
