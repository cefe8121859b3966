#include "actors/cluster/cluster_service.hpp"
#include "actors/node/lmcache/lmcache_service.hpp"
#include "actors/node/supervisor/node_doors.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/signals.hpp"
#include "http/node_http.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe::cli {

namespace {

/// A node that others can reach.
struct served_node {
  std::unique_ptr<running_node> node;
  /// Null if the config wants no HTTP. Ends before the node.
  std::unique_ptr<http::node_http> http;
  /// Null if the config does not want it. Likewise.
  std::unique_ptr<lmcache_service> lmcache;
  /// Null if it is part of none. Likewise.
  std::unique_ptr<cluster::cluster_service> cluster;
  /// Ends first.
  node_doors doors;
};

result<served_node> start(caf::actor_system& system, const config::node_config& options) {
  served_node out;
  // What can be wrong at once is looked at first: slabs may take their time, and are left behind.
  auto ports = http::node_http::prepare(options);
  if (!ports)
    return tl::unexpected<error>(ports.error());
  std::unique_ptr<lmcache::door> lmcache_door;
  std::shared_ptr<lmcache::counters> lmcache_counts;
  if (options.lmcache.enabled) {
    lmcache_counts = std::make_shared<lmcache::counters>();
    auto prepared = lmcache_service::prepare(options.lmcache, lmcache_counts);
    if (!prepared)
      return tl::unexpected<error>(prepared.error());
    lmcache_door = std::move(*prepared);
  }
  if (auto free = check_doors(options); !free)
    return tl::unexpected<error>(free.error());
  auto node = start_node(system, options, lmcache_counts);
  if (!node)
    return tl::unexpected<error>(node.error());
  out.node = std::move(*node);
  const auto give_up = [&](const error& why) {
    if (out.http)
      out.http->stop(duration::zero());
    out.cluster.reset();
    static_cast<void>(out.node->stop(system, options.drain_timeout));
    return tl::unexpected<error>(why);
  };
  // Before there are clients, who learn of it as they attach.
  if (!options.cluster.name.empty())
    out.cluster = std::make_unique<cluster::cluster_service>(system, options, out.node->supervisor(),
                                                             out.node->reception(), out.node->services().condition);
  auto doors = open_doors(system, *out.node, options);
  if (!doors)
    return give_up(doors.error());
  out.doors = std::move(*doors);
  if (*ports) {
    auto http = http::node_http::start(system, out.node->services(), options, TROUPE_VERSION, std::move(*ports));
    if (!http)
      return give_up(http.error());
    out.http = std::move(*http);
  }
  if (lmcache_door)
    out.lmcache = std::make_unique<lmcache_service>(system, out.node->services(), options, std::move(lmcache_door));
  return out;
}

/// A start may take minutes, for slabs and an index. What it has made when a signal ends it is as good as after a
/// crash: the next start goes on with it or makes it anew.
result<served_node> start_unless_ended(caf::actor_system& system, const config::node_config& options) {
  interruption while_starting(0);
  while_starting.before_end([] {
    return [] {
      log::get("node")->info("told to end while starting");
      log::flush(std::chrono::seconds(1));
      ::_exit(exit_ok);
    };
  });
  return start(system, options);
}

/// One line of JSON on stdout, in the order that is documented. False where nobody can read it.
[[nodiscard]] bool say_ready(const served_node& x, const config::node_config& options) {
  nlohmann::ordered_json ready{{"event", "ready"}, {"node", options.node_name}};
  const auto logger = log::get("node");
  logger->info("node '{}' is ready", options.node_name);
  if (!x.doors.socket.empty()) {
    ready["actors"]["socket"] = x.doors.socket.string();
    logger->info("clients of this host attach at {}", x.doors.socket.string());
  }
  if (x.doors.port) {
    ready["actors"]["host"] = options.actors.host;
    ready["actors"]["port"] = *x.doors.port;
    logger->info("clients attach at {}:{}{}", options.actors.host, *x.doors.port,
                 options.actors.tls.certificate ? " with certificates" : ", and nobody is asked who they are");
  }
  if (const auto port = x.http ? x.http->port_if_any() : std::nullopt) {
    ready["http"] = {{"host", options.http.host}, {"port", *port}};
    logger->info("HTTP is served on {}:{}", options.http.host, *port);
  }
  if (const auto port = x.http ? x.http->handshake_port() : std::nullopt) {
    const auto& host = options.handshake.http.host;
    ready["handshake"] = {{"host", host}, {"port", *port}};
    logger->info("handshakes are served on {}:{}", host, *port);
  }
  if (x.lmcache) {
    ready["lmcache"] = {{"host", options.lmcache.host}, {"port", x.lmcache->port()}};
    logger->info("LMCache's clients are served on {}:{}", options.lmcache.host, x.lmcache->port());
  }
  // Whoever sees the line finds in the log what was said before it.
  log::flush(std::chrono::milliseconds(200));
  return print(ready.dump() + "\n");
}

void reload(const served_node& x) {
  if (!x.http)
    return;
  if (const auto reloaded = x.http->reload(); reloaded)
    log::get("http")->info("tokens and certificates were read again");
  else
    log::get("http")->error("tokens and certificates stay as they were: {}", to_string(reloaded.error()));
}

} // namespace

int serve(const serve_options& options) {
  // What a node writes is for its own user: the index tells keys and the salts of tenants.
  ::umask(077);
  const auto loaded = config::load(options.config, options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  const auto& node_options = *loaded;
  log::set_level(node_options.log_level);
  const auto logger = log::get("node");

  signal_gate signals;
  system_config actors(node_options.caf);
  caf::actor_system system(actors);
  auto served = start_unless_ended(system, node_options);
  if (!served) {
    logger->critical("{}", to_string(served.error()));
    return exit_failed;
  }
  caf::actor_cast<caf::actor>(served->node->supervisor())->attach_functor([] { signal_gate::node_ended(); });
  const auto said = say_ready(*served, node_options);
  if (!said)
    logger->error("stopping: nobody can be told that the node is ready");

  auto why = said ? signals.wait() : wake_reason::interrupted;
  for (; why == wake_reason::reload; why = signals.wait())
    reload(*served);
  if (why == wake_reason::node_ended) {
    logger->critical("the node has ended by itself");
    return exit_failed;
  }
  logger->info("stopping");
  signals.open();
  // First those who ask, so that what they ask is still answered. Clients that are attached stay until the node has
  // come to rest.
  if (served->http)
    served->http->stop(node_options.drain_timeout);
  served->lmcache.reset();
  served->cluster.reset();
  if (const auto stopped = served->node->stop(system, node_options.drain_timeout); !stopped) {
    logger->error("stopped, but not at rest: {}", to_string(stopped.error()));
    // Something has not ended that should have, such as a transfer of a disk that hangs, and to wait for it could take
    // for ever. What is promised is on the disk, as after a crash.
    log::flush(std::chrono::seconds(1));
    ::_exit(exit_failed);
  }
  logger->info("stopped");
  return said ? exit_ok : exit_failed;
}

} // namespace troupe::cli
