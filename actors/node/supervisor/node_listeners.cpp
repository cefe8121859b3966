#include "actors/node/supervisor/node_listeners.hpp"

#include "actors/support/listeners/tls_channel.hpp"

#include <utility>

namespace troupe {

std::filesystem::path socket_path(const config::node_config& options) {
  if (!options.actors.has_socket() || (options.namespaces.empty() && !options.actors.make_namespaces))
    return {};
  // An absolute `actors.socket` replaces the directory.
  return std::filesystem::absolute(options.data_dir) / options.actors.socket;
}

namespace {

bool wants_tcp(const config::node_config& options) {
  return options.actors.port != config::port_off && (!options.namespaces.empty() || options.actors.make_namespaces);
}

result<bound_socket> bind_tcp(const config::actors_config& where) {
  return bound_socket::open("actors", where.host, static_cast<std::uint16_t>(where.port));
}

} // namespace

result<void> check_listeners(const config::node_config& options) {
  if (!wants_tcp(options))
    return {};
  if (const auto bound = bind_tcp(options.actors); !bound)
    return tl::unexpected<error>(bound.error());
  if (const auto tls = listener_options_of(options.actors).tls)
    if (const auto loaded = tls_context::load(*tls); !loaded)
      return fail(loaded.error().code, loaded.error().text + " (actors.tls)");
  return {};
}

result<node_listeners> open_listeners(caf::actor_system& system, const running_node& node,
                                      const config::node_config& options) {
  node_listeners out;
  const auto socket = socket_path(options);
  if (socket.empty() && !wants_tcp(options))
    return out;
  auto how = listener_options_of(options.actors);
  how.roles = node.services().roles;
  how.outgoing = node.services().outgoing;
  how.peers = node.services().peers;
  auto made = listeners::make(system, how);
  if (!made)
    return tl::unexpected<error>(made.error());
  out.open = std::move(*made);
  if (!socket.empty()) {
    if (auto opened = out.open->open_local(node.reception(), socket); !opened)
      return fail(opened.error().code, opened.error().text + " (actors.socket)");
    out.socket = socket;
  }
  if (wants_tcp(options)) {
    auto bound = bind_tcp(options.actors);
    if (!bound)
      return tl::unexpected<error>(bound.error());
    auto port = out.open->open_tcp(node.reception(), std::move(*bound));
    if (!port)
      return tl::unexpected<error>(port.error());
    out.port = *port;
  }
  return out;
}

} // namespace troupe
