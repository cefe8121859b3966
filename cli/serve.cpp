#include "actors/node/node_start.hpp"
#include "actors/node/system_config.hpp"
#include "base/log.hpp"
#include "cli/program.hpp"
#include "cli/signals.hpp"

#include <nlohmann/json.hpp>

#include <iostream>

namespace troupe::cli {

int serve(const serve_options& options) {
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
  auto node = start_node(system, node_options);
  if (!node) {
    logger->critical("{}", to_string(node.error()));
    return exit_failed;
  }
  const auto port = publish_node(system, **node, node_options.actors);
  if (!port) {
    logger->critical("{}", to_string(port.error()));
    static_cast<void>((*node)->stop(system, node_options.drain_timeout));
    return exit_failed;
  }
  caf::actor_cast<caf::actor>((*node)->supervisor())->attach_functor([] { signal_gate::node_ended(); });
  logger->info("node '{}' is ready on {}:{}", node_options.node_name, node_options.actors.host, *port);
  // Ordered, so that the line reads as it is documented.
  const nlohmann::ordered_json ready{{"event", "ready"},
                                     {"node", node_options.node_name},
                                     {"actors", {{"host", node_options.actors.host}, {"port", *port}}}};
  std::cout << ready.dump() << std::endl;

  const auto why = signals.wait();
  if (why == wake_reason::node_ended) {
    logger->critical("the node has ended by itself");
    return exit_failed;
  }
  logger->info("stopping");
  signals.open();
  if (const auto stopped = (*node)->stop(system, node_options.drain_timeout); !stopped) {
    logger->error("stopped, but not at rest: {}", to_string(stopped.error()));
    return exit_failed;
  }
  logger->info("stopped");
  return exit_ok;
}

} // namespace troupe::cli
