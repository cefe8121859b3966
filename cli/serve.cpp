#include "actors/cluster/cluster_service.hpp"
#include "actors/lmcache/lmcache_service.hpp"
#include "actors/node/supervisor/listener_keeper.hpp"
#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/service_manager.hpp"
#include "cli/signals.hpp"
#include "cli/version.hpp"
#include "events/publisher.hpp"
#include "http/node_http.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::cli {

namespace {

/// A running node with its listeners.
struct served_node {
  /// Null if events are not published. Destroyed after the node.
  std::unique_ptr<events::publisher> events{};
  std::unique_ptr<running_node> node;
  /// Null if HTTP is not enabled. Destroyed before the node.
  std::unique_ptr<http::node_http> http;
  /// Null if it is not enabled. Likewise.
  std::unique_ptr<lmcache_service> lmcache;
  /// Null if the node is not part of a cluster. Likewise.
  std::unique_ptr<cluster::cluster_service> cluster;
  /// Destroyed before all of the above.
  node_listeners listeners;
  /// Destroyed first.
  std::unique_ptr<listener_keeper> keeper{};
};

/// Turns exceptions for missing threads, open files or memory into an error.
template <class F>
std::invoke_result_t<F> without_exceptions(F f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return tl::unexpected<error>(error_of(e, "cannot start the node"));
  }
}

/// Opens the listeners of a running node. On failure, `to` owns what was opened.
result<void> open_to_others(caf::actor_system& system, const config::node_config& options,
                            http::node_http::listening_sockets ports, served_node& to) {
  const auto& services = to.node->services();
  // Before there are clients, which receive the state of the cluster as they attach.
  if (!options.cluster.name.empty()) {
    auto cluster = cluster::cluster_service::make(
        system, options,
        {to.node->supervisor(), to.node->reception(), services.shards, services.condition, services.memory});
    if (!cluster)
      return tl::unexpected<error>(cluster.error());
    to.cluster = std::move(*cluster);
  }
  auto listeners = open_listeners(system, *to.node, options);
  if (!listeners)
    return tl::unexpected<error>(listeners.error());
  to.listeners = std::move(*listeners);
  if (http::node_http::is_wanted(options)) {
    auto http = http::node_http::start(system, services, options, {std::string(version()), std::string(commit())},
                                       std::move(ports));
    if (!http)
      return tl::unexpected<error>(http.error());
    to.http = std::move(*http);
  }
  return {};
}

/// The files that must stay in place while the node runs, and are recreated if they are removed.
std::vector<listener_keeper::file> kept_files(served_node& x) {
  std::vector<listener_keeper::file> out;
  auto* const node = x.node.get();
  out.push_back({"the lock of " + node->lock().directory().string(), [node] { return node->lock().is_there(); },
                 [node] { return node->lock().renew(); }});
  if (const auto extents = node->services().extents; extents && !extents->shared_name().empty())
    out.push_back(
        {"the memory /dev/shm/" + extents->shared_name(), [extents] { return extents->shared_name_is_there(); },
         []() -> result<void> { return fail(errc::not_found, "LMCache's workers cannot find it: restart the node"); }});
  if (!x.listeners.socket.empty())
    out.push_back({"the socket " + x.listeners.socket.string(),
                   [open = x.listeners.open.get()] { return open->local_is_there(); },
                   [open = x.listeners.open.get()] { return open->reopen_local(); }});
  if (auto* const http = x.http.get(); http != nullptr && !http->socket().empty())
    out.push_back({"the socket " + http->socket().string(), [http] { return http->socket_is_there(); },
                   [http] { return http->reopen_socket(); }});
  if (auto* const events = x.events.get(); events != nullptr)
    out.push_back({"a socket of events (" + events->endpoint() + ", " + events->replay_endpoint() + ")",
                   [events] { return events->sockets_are_there(); }, [events] { return events->reopen_sockets(); }});
  return out;
}

/// Opens the publisher of events; null if the config has none. A stream of this run has higher numbers than those of
/// earlier ones, as they begin with the time, and no node makes a million batches in a second.
/// `log`: what LMCache's clients subscribe to, set where there are both.
result<std::unique_ptr<events::publisher>> open_events(const config::node_config& options,
                                                       std::shared_ptr<events::page_log>& log) {
  const auto& x = options.events;
  if (!x.publishes())
    return nullptr;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::random_device entropy;
  events::publisher_options wanted{x.endpoint, x.replay_endpoint, x.queue_batches, {}};
  wanted.rules.topic = x.topic;
  wanted.rules.form = x.encoding == "array" ? events::event_form::array : events::event_form::map;
  wanted.rules.node = options.node_name;
  wanted.rules.first_number = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count())
                              << 20U;
  wanted.rules.seed = (std::uint64_t{entropy()} << 32U) | entropy();
  wanted.rules.details_max = x.memory_bytes;
  wanted.rules.kept_batches = x.buffer_batches;
  wanted.rules.kept_bytes = x.buffer_bytes;
  wanted.rules.heartbeat = x.heartbeat;
  if (options.lmcache.enabled) {
    events::page_log_options logged;
    logged.logs = lmcache::is_of_prefix;
    logged.incarnation = wanted.rules.first_number;
    log = wanted.rules.log = std::make_shared<events::page_log>(std::move(logged));
  }
  return events::publisher::open(wanted);
}

result<served_node> start(caf::actor_system& system, const config::node_config& options) {
  served_node out;
  // Checks that fail fast come first: slabs may take long, and stay on the disk.
  auto ports = http::node_http::prepare(options);
  if (!ports)
    return tl::unexpected<error>(ports.error());
  std::unique_ptr<lmcache::listener> lmcache_listener;
  node_protocols protocols;
  if (options.lmcache.enabled) {
    protocols.lmcache = std::make_shared<lmcache::counters>();
    auto prepared = lmcache_service::prepare(options.lmcache, protocols.lmcache, options.events.publishes());
    if (!prepared)
      return tl::unexpected<error>(prepared.error());
    lmcache_listener = std::move(*prepared);
  }
  if (auto free = check_listeners(options); !free)
    return tl::unexpected<error>(free.error());
  std::shared_ptr<events::page_log> log;
  auto publisher = open_events(options, log);
  if (!publisher)
    return tl::unexpected<error>(publisher.error());
  out.events = std::move(*publisher);
  if (out.events) {
    protocols.feed = out.events->input();
    protocols.events = out.events->counts();
    out.events->serve();
  }
  auto node = start_node(system, options, std::move(protocols));
  if (!node)
    return tl::unexpected<error>(node.error());
  out.node = std::move(*node);
  auto opened = without_exceptions([&] { return open_to_others(system, options, std::move(*ports), out); });
  if (opened && lmcache_listener)
    opened = without_exceptions([&]() -> result<void> {
      const auto& of = out.node->services();
      out.lmcache = std::make_unique<lmcache_service>(
          system, lmcache_node{of.node, of.shards, of.extents, of.lmcache, log}, options, std::move(lmcache_listener));
      return {};
    });
  if (opened) {
    out.keeper = std::make_unique<listener_keeper>(out.node->services().condition, kept_files(out));
    return out;
  }
  out.listeners = {};
  if (out.http)
    out.http->stop(duration::zero());
  out.cluster.reset();
  static_cast<void>(out.node->stop(system, options.drain_timeout));
  return tl::unexpected<error>(opened.error());
}

std::string size_text(std::uint64_t bytes) {
  return std::to_string(bytes / config::mebibyte) + " MiB";
}

/// The memory, disk and socket of the node, in one line.
std::string say_opened(const served_node& x, const config::node_config& options) {
  const auto& opened = x.node->services().opened;
  auto out = size_text(options.memory.bytes) + " for pages in " + opened.memory();
  out += "; slabs: " + (opened.slabs.empty() ? std::string("none, pages are in memory only") : opened.slabs);
  out += "; durability: " + options.registry.durability + "; attach at ";
  out += x.listeners.socket.empty() ? "no socket" : x.listeners.socket.string();
  if (x.listeners.port)
    out += " and " + options.actors.host + ":" + std::to_string(*x.listeners.port);
  const auto port = x.http ? x.http->port_if_any() : std::nullopt;
  const auto socket = x.http ? x.http->socket().string() : std::string();
  out += "; HTTP: " + (port ? options.http.host + ":" + std::to_string(*port) : socket.empty() ? "none" : socket);
  return out + (port && !socket.empty() ? " and " + socket : "");
}

/// A node without a config logs its choices, and how to keep them.
void say_defaults(const config::node_config& options) {
  const auto logger = log::get("node");
  logger->info("no config given: pages are in memory only and are lost when the node ends; {} of the available {} "
               "are used for pages; data directory: {}",
               size_text(options.memory.bytes), size_text(available_memory()), options.data_dir.string());
  logger->info("`troupe init > node.json` saves these settings, `troupe serve --config node.json` uses them");
}

/// A start may take minutes, for slabs and an index. If a signal ends it, the state on disk is as after a crash: the
/// next start continues with it or recreates it.
result<served_node> start_unless_ended(caf::actor_system& system, const config::node_config& options) {
  interruption while_starting(0);
  while_starting.before_end([] {
    return [] {
      log::get("node")->info("stopped by a signal while starting");
      log::flush(std::chrono::seconds(1));
      ::_exit(exit_ok);
    };
  });
  return start(system, options);
}

/// Prints one line of JSON on stdout, in the documented order. False if stdout cannot be written.
[[nodiscard]] bool say_ready(const served_node& x, const config::node_config& options) {
  nlohmann::ordered_json ready{{"event", "ready"}, {"node", options.node_name}};
  const auto logger = log::get("node");
  logger->info("node '{}' is ready", options.node_name);
  if (!x.listeners.socket.empty()) {
    ready["actors"]["socket"] = x.listeners.socket.string();
    logger->info("local clients attach at {}", x.listeners.socket.string());
  }
  if (x.listeners.port) {
    ready["actors"]["host"] = options.actors.host;
    ready["actors"]["port"] = *x.listeners.port;
    logger->info("clients attach at {}:{}{}", options.actors.host, *x.listeners.port,
                 options.actors.tls.certificate ? " with certificates" : ", without authentication");
  }
  if (const auto port = x.http ? x.http->port_if_any() : std::nullopt) {
    ready["http"] = {{"host", options.http.host}, {"port", *port}};
    logger->info("HTTP is served on {}:{}", options.http.host, *port);
  }
  if (x.http && !x.http->socket().empty()) {
    ready["http"]["socket"] = x.http->socket().string();
    logger->info("HTTP is served at {}, for this user and root", x.http->socket().string());
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
  if (x.events) {
    ready["events"] = {{"endpoint", x.events->endpoint()}, {"replay_endpoint", x.events->replay_endpoint()}};
    logger->info("events are published at {}, missed ones are sent again at {}", x.events->endpoint(),
                 x.events->replay_endpoint().empty() ? "no endpoint" : x.events->replay_endpoint());
  }
  logger->info("opened: {}", say_opened(x, options));
  // The log up to here is written before the line, for its readers.
  log::flush(std::chrono::milliseconds(200));
  return print(ready.dump() + "\n");
}

/// Runs `what` in a thread, and returns whether it ends within `limit`. If not, it continues in a detached thread, and
/// the objects that it uses must stay alive: for calls that may wait for a hanging file system.
bool ends_within(duration limit, std::function<void()> what) {
  const auto task = std::make_shared<std::packaged_task<void()>>(std::move(what));
  auto ended = task->get_future();
  try {
    std::thread(named(thread_name("troupe-stop"), [task] { (*task)(); })).detach();
  } catch (const std::system_error&) { // no thread is available, so there is no limit
    (*task)();
  }
  return ended.wait_for(limit) == std::future_status::ready;
}

/// Ends the process without cleaning up. An operation that should have ended is still running, such as a transfer to a
/// hanging disk: waiting for it could take for ever, and it may still write, so that nothing may be released to others.
/// Everything that was confirmed is on the disk.
[[noreturn]] void end_as_after_a_crash() {
  log::flush(std::chrono::seconds(1));
  ::_exit(exit_failed);
}

/// Ends the process after a failed start. Not by returning: that would wait for actors that have not ended, and ending
/// one may be what failed.
[[noreturn]] void end_without_start(const error& why) {
  log::get("node")->critical("{}", why.text.empty() ? to_string(why) : why.text);
  end_as_after_a_crash();
}

/// The limit for a node that stops to leave its cluster, so that it no longer reads files of other nodes; and for
/// closing its own files, in addition to twice the time that its transfers have to end.
constexpr duration leave_limit = std::chrono::seconds(15);
constexpr duration close_limit = std::chrono::seconds(30);

/// Stops the node, and ends the process if the node does not stop.
void stop(served_node& x, caf::actor_system& system, duration drain_timeout) {
  const auto logger = log::get("node");
  // The keeper reads files of a file system that may hang.
  const bool is_unwatched = ends_within(leave_limit, [&x] { x.keeper.reset(); });
  // Servers are stopped first, so that their pending requests are still answered. Attached clients stay until the node
  // is drained.
  if (x.http)
    x.http->stop(drain_timeout);
  x.lmcache.reset();
  const bool has_left = ends_within(leave_limit, [&x] { x.cluster.reset(); });
  if (!has_left)
    logger->error("the file system of other nodes, or of one of these listeners, delays the stop; this node's own "
                  "files are closed anyway");
  result<void> stopped;
  const bool is_closed =
      ends_within(2 * drain_timeout + close_limit, [&] { stopped = x.node->stop(system, drain_timeout); });
  if (is_closed && stopped && has_left && is_unwatched)
    return;
  if (!is_closed)
    logger->error("stopped, but not drained: the file system of 'data_dir' does not answer");
  else if (!stopped)
    logger->error("stopped, but not drained: {}", to_string(stopped.error()));
  end_as_after_a_crash();
}

void reload(const served_node& x) {
  if (!x.http)
    return;
  if (const auto reloaded = x.http->reload(); reloaded)
    log::get("http")->info("reloaded tokens and certificates");
  else
    log::get("http")->error("cannot reload tokens and certificates: {}; the previous ones stay in use",
                            to_string(reloaded.error()));
}

} // namespace

int serve(const serve_options& options) {
  // The node's files are private to its user: the index contains keys and the salts of tenants.
  ::umask(077);
  const auto loaded =
      options.config ? config::load(*options.config, options.overrides) : load_default(options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  const auto& node_options = *loaded;
  log::set_level(node_options.log_level);
  log::set_format(node_options.log.format);
  const auto logger = log::get("node");
  logger->info("{}", one_line_version());
  if (const auto host = std::thread::hardware_concurrency(); usable_processors() < host)
    logger->info("this process may use {} of the host's {} processors, and sizes its pools of threads for them",
                 usable_processors(), host);
  if (!options.config)
    say_defaults(node_options);

  signal_gate signals;
  system_config actors(node_options.caf);
  // Includes the thread that handles signals.
  if (const auto room = actors.check_room(1); !room)
    end_without_start(room.error());
  // These errors stay until a person changes something: the exit code makes a service manager stop retrying.
  if (const auto faults = faults_of_files(node_options); !faults.empty()) {
    for (const auto& x : faults)
      logger->critical("{}", config::to_string(x));
    return exit_usage;
  }
  caf::actor_system system(actors);
  auto served = without_exceptions([&] { return start_unless_ended(system, node_options); });
  if (!served)
    end_without_start(served.error());
  caf::actor_cast<caf::actor>(served->node->supervisor())->attach_functor([] { signal_gate::node_ended(); });
  const auto said = say_ready(*served, node_options);
  // Only now: the paths that were printed above may change from here on.
  if (auto looked_after = served->keeper->start(); !looked_after)
    logger->warn("{}: these files are not recreated if they are removed", looked_after.error().text);
  if (said)
    tell_service_manager("READY=1\nSTATUS=serving");
  else
    logger->error("stopping: the ready line cannot be written to stdout");

  auto why = said ? signals.wait() : wake_reason::interrupted;
  for (; why == wake_reason::reload; why = signals.wait())
    reload(*served);
  if (why == wake_reason::node_ended) {
    logger->critical("the node has ended unexpectedly");
    end_as_after_a_crash();
  }
  logger->info("stopping");
  tell_service_manager("STOPPING=1\nSTATUS=draining");
  signals.open();
  stop(*served, system, node_options.drain_timeout);
  logger->info("stopped");
  return said ? exit_ok : exit_failed;
}

} // namespace troupe::cli
