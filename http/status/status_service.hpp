#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/status/program_facts.hpp"
#include "http/status/status_report.hpp"
#include "metrics/history.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::http::node_status {

/// Inputs of the status service.
struct status_sources {
  node_services services;
  std::shared_ptr<const metadata_service> service;
  config::node_config config;
  program_facts program;
  /// ok, or why no requests should be sent to this node.
  std::function<result<void>()> ready;
};

/// Collects the status of a node from its actors, for threads that are not actors, and keeps its history. Thread-safe;
/// no call blocks. Created by `make`, since pending requests keep it alive.
class status_service : public std::enable_shared_from_this<status_service> {
public:
  static std::shared_ptr<status_service> make(caf::actor_system& system, status_sources parts);

  /// The document of `/v1/status`. `then` is called once, in any thread; with an error if the node does not answer.
  void ask(history_span span, std::function<void(result<std::string>)> then) const;

  /// Collects a sample for the history. To be called every `history::interval`.
  void sample();

  /// The effective config, without secrets, as JSON.
  std::string config_text() const;

private:
  struct numbers {
    node_stats stats;
    std::vector<namespace_info> namespaces;
  };

  status_service(caf::actor_system& system, status_sources parts);

  void gather(std::function<void(result<numbers>)> then) const;
  std::string text_of(numbers x, history_span span) const;

  caf::actor_system& system_;
  const status_sources parts_;
  const timestamp started_;
  const std::int64_t unix_started_;
  mutable std::mutex mutex_;
  history history_;
};

/// Calls `sample` periodically until it receives an exit message.
caf::actor spawn_clock(caf::actor_system& system, std::shared_ptr<status_service> live_status);

} // namespace troupe::http::node_status
