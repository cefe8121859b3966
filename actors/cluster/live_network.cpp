#include "actors/cluster/live_network.hpp"

#include "actors/cluster/pages/session_rules.hpp"
#include "actors/cluster/peers/seed_names.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"
#include "base/tcp_connect.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

/// The calls that may wait for the opener: a few for each session with a peer.
constexpr std::size_t calls_max = std::size_t{1} << 16U;

config::caf_config caf_options(config::caf_config x) {
  // These actors only coordinate transfers; copies have threads of their own.
  constexpr std::uint32_t enough = 2;
  x.scheduler_threads = enough;
  return x;
}

listener_options options_of(const config::node_config& options) {
  auto out = listener_options_of(options.actors);
  // A hello waits for twice as long.
  out.connect_time = std::min(out.connect_time, options.cluster.hello_interval);
  // The node connects to peers that serve pages to its engines, so an engine's certificate is not enough.
  if (out.tls)
    out.required_unit = node_roles::unit;
  return out;
}

bool has_names(const config::cluster_config& x) {
  return std::ranges::any_of(x.seeds, [](const auto& seed) { return !is_numeric_host(seed.host); });
}

} // namespace

result<std::shared_ptr<live_network>> live_network::make(caf::actor_system& node, const config::node_config& options) {
  // Counts the threads besides those of the actor system, because actors that start threads could not report a failure:
  // the opener, the connection to a first node, two for etcd, and those that read slab files and take over directories.
  const std::size_t more_threads = 2 + (has_names(options.cluster) ? 1 : 0) +
                                   (options.cluster.etcd.endpoints.empty() ? 0 : 2) + (options.storage.shared ? 7 : 0);
  const system_config outside(caf_options(options.caf));
  if (auto room = outside.check_room(more_threads); !room)
    return fail(room.error().code, room.error().text + " (cluster)");
  auto opener = serial_executor::start(thread_name("troupe-peers"), "the thread that connects to peers", calls_max);
  if (!opener)
    return tl::unexpected<error>(std::move(opener.error()));
  std::unique_ptr<serial_executor> resolver;
  if (has_names(options.cluster)) {
    auto started = serial_executor::start(thread_name("troupe-names"), "the thread that resolves names of peers");
    if (!started)
      return tl::unexpected<error>(std::move(started.error()));
    resolver = std::move(*started);
  }
  return std::shared_ptr<live_network>(new live_network(node, options, {std::move(*opener), std::move(resolver)}));
}

live_network::live_network(caf::actor_system& node, const config::node_config& options, executors threads)
    : node_(node), how_(options_of(options)), config_(caf_options(options.caf)),
      outside_(std::make_unique<caf::actor_system>(config_)), opener_(std::move(threads.opener)),
      resolver_(std::move(threads.resolver)) {}

live_network::~live_network() {
  // The opener leaves all nodes before the actor system ends.
  opener_.reset();
  resolver_.reset();
  // All are notified before the first one is waited for.
  for (const auto& x : listeners_)
    x->close();
  listeners_.clear();
  outside_.reset();
}

result<void> live_network::open_later(serial_executor::task what) {
  return opener_->post(std::move(what), serial_executor::at_end::drop);
}

void live_network::close_later(serial_executor::task what) {
  if (const auto posted = opener_->post(std::move(what)); !posted)
    log::get("cluster")->warn("a connection to a peer is closed without waiting for its end: {}", posted.error().text);
}

result<caf::io::middleman_actor> live_network::make_dialer() {
  auto made = listeners::make(*outside_, how_);
  if (!made)
    return tl::unexpected<error>(made.error());
  listeners_.push_back(std::move(*made));
  return listeners_.back()->dialer();
}

// A thread that has spawned an actor keeps state of that actor system until the thread ends or spawns an actor of
// another system, and a system waits for that at its end. So the opener, which ends earlier, spawns actors of the other
// system.
result<void> live_network::connect(line_order order, std::function<void(result<connected_peer>)> then) {
  return open_later([this, order = std::move(order), then = std::move(then)] {
    const auto dialer = order.spare ? result<caf::io::middleman_actor>(order.spare) : make_dialer();
    if (!dialer)
      return then(tl::unexpected<error>(dialer.error()));
    then(connected_peer{spawn_actor<peer_connection>(*outside_, order.where, *dialer, order.limit, order.on_lost),
                        *dialer});
  });
}

void live_network::end_dialer(caf::io::middleman_actor which) {
  // One that is not ended here ends with the network.
  static_cast<void>(open_later([this, which = std::move(which)] {
    std::erase_if(listeners_, [&](const auto& x) { return x->dialer() == which; });
  }));
}

result<void> live_network::open(client_order order, std::function<void(result<opened_client>)> then) {
  return open_later([this, order = std::move(order), then = std::move(then)] {
    auto& in = order.where.local ? node_ : *outside_;
    then(open_staging_client(in, order.how, order.where, order.ns, order.memory_bytes, order.like));
  });
}

void live_network::close(opened_client client) {
  if (client.client)
    close_later([client = std::move(client)] {
      if (const auto stopped = client.client->stop(session_limit); !stopped)
        log::get("cluster")->warn("peer session closed before it was quiesced: {}", stopped.error().text);
    });
}

result<void> live_network::resolve(std::vector<config::cluster_seed> names, std::function<void(seeds_resolved)> then) {
  if (!resolver_)
    return fail(errc::unsupported, "no seed of the cluster has a name");
  return resolver_->post(
      [names = std::move(names), then = std::move(then), by = resolver_.get()] {
        seeds_resolved out;
        for (const auto& x : names) {
          if (by->is_ending())
            return;
          const auto all = resolve_host(x.host, x.port, resolve_time, [by] { return by->is_ending(); });
          out.found.emplace_back(to_string(node_address{x.host, x.port}),
                                 all ? nodes_of_name(*all, x.port) : std::vector<std::string>{});
        }
        then(std::move(out));
      },
      serial_executor::at_end::drop);
}

void live_network::close(std::shared_ptr<etcd_channel> channel, std::optional<etcd_request> last) {
  // The revocation saves other nodes the wait for the lease to expire. It takes a moment, so the opener does it.
  close_later([channel = std::move(channel), last = std::move(last)] {
    if (last)
      channel->end_with(last->path, last->body, last->token);
  });
}

} // namespace troupe::cluster
