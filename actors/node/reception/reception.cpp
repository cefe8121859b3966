#include "actors/node/reception/reception.hpp"

#include "actors/node/reception/client_proxy.hpp"
#include "actors/node/reception/directory_proxy.hpp"
#include "actors/support/listeners/handshake_name.hpp"
#include "base/geometry_bounds.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// The limit for the names of clients, which are logged, and of namespaces.
constexpr std::size_t name_bytes_max = 256;

} // namespace

reception::reception(caf::actor_config& config, node_actor node, directory_actor handshakes,
                     std::shared_ptr<const node_roles> roles, std::shared_ptr<outgoing_budget> outgoing)
    : reception_actor::base(config), node_(std::move(node)), handshakes_(std::move(handshakes)),
      roles_(std::move(roles)), outgoing_(std::move(outgoing)) {
  ignore_all_but(*this, node_.address());
  set_down_handler([this](caf::down_msg& x) {
    if (node_ && x.source == node_.address())
      quit(std::move(x.reason));
  });
}

void reception::on_exit() {
  if (proxy_)
    send_exit(proxy_, caf::exit_reason::user_shutdown);
  proxy_ = nullptr;
  handshakes_ = nullptr;
  node_ = nullptr;
}

result<void> reception::check_role() {
  const auto& asker = current_sender();
  if (!roles_ || !asker || roles_->may_be_node(handshake_name(system(), asker->node())))
    return {};
  log::get("node")->warn("peer rejected: a process with the certificate of a client claims to be a node");
  return fail(errc::not_owner, std::string("the certificate of a node must name the organizational unit (OU) \"") +
                                   node_roles::unit + "\" (actors.tls); this one does not");
}

reception::behavior_type reception::make_behavior() {
  monitor(node_);
  return {
      [this](attach_request& wanted, const caf::actor& link) -> caf::result<attach_reply> {
        // The node identifies a process by its connection. A handle of another process would be attached, and detached,
        // in its place.
        if (!link || !current_sender() || current_sender()->node() != link.node())
          return to_caf(error{errc::invalid_argument, "the handle in the attach request belongs to another process"});
        const auto& ns = wanted.ns;
        for (const auto* text : {&ns.name, &ns.model, &ns.revision, &ns.dtype, &ns.layout, &ns.salt, &ns.group_of})
          if (text->size() > name_bytes_max)
            return to_caf(error{errc::limit_exceeded, "each text of a namespace may have at most " +
                                                          std::to_string(name_bytes_max) + " bytes; one has " +
                                                          std::to_string(text->size())});
        if (ns.geometry.further.size() > geometry_bounds::further_layers)
          return to_caf(error{errc::limit_exceeded, "a namespace may have at most " +
                                                        std::to_string(geometry_bounds::further_layers) +
                                                        " further groups of layers"});
        if (std::max(wanted.client_name.size(), wanted.namespace_name.size()) > name_bytes_max)
          return to_caf(error{errc::limit_exceeded, "names of a client and its namespace may have at most " +
                                                        std::to_string(name_bytes_max) + " bytes; these have " +
                                                        std::to_string(wanted.client_name.size()) + " and " +
                                                        std::to_string(wanted.namespace_name.size())});
        if (wanted.cluster.size() > name_bytes_max)
          return to_caf(error{errc::limit_exceeded, "the name of a cluster may have at most 256 bytes"});
        if (!wanted.cluster.empty())
          if (auto allowed = check_role(); !allowed)
            return to_caf(allowed.error());
        return hand_on(*this, node_, nullptr, caf::make_message(std::move(wanted), link));
      },
      [this](caf::leave_atom verb, owner_id owner) -> caf::result<void> {
        const auto link = caf::actor_cast<caf::actor>(current_sender());
        if (!link)
          return to_caf(error{errc::invalid_argument, "only the client itself can detach"});
        return hand_on(*this, node_, nullptr, caf::make_message(verb, owner, link));
      },
      [this](owner_quiesced_atom verb, owner_id owner) -> caf::result<void> {
        return hand_on(*this, node_, nullptr, caf::make_message(verb, owner));
      },
      [this](handshake_atom) -> caf::result<handshake_proxy_actor> {
        if (!handshakes_)
          return to_caf(error{errc::unsupported, "this node has no handshake directory; set handshake.enabled"});
        if (!proxy_)
          proxy_ = spawn_actor<directory_proxy>(system(), handshakes_, address(), outgoing_);
        return proxy_;
      },
      [this](cluster_hello& x) -> caf::result<cluster_welcome> {
        if (std::max(x.from.cluster.size(), x.from.node.size()) > name_bytes_max)
          return to_caf(error{errc::limit_exceeded, "names of a cluster and a node may have at most 256 bytes"});
        if (auto allowed = check_role(); !allowed)
          return to_caf(allowed.error());
        return hand_on(*this, node_, nullptr, caf::make_message(std::move(x)));
      },
  };
}

} // namespace troupe
