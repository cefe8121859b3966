#pragma once

#include "actors/node/gateway/metadata_service.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"
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

/// What the desk has to know.
struct desk_parts {
  node_services services;
  std::shared_ptr<const metadata_service> service;
  config::node_config config;
  program_facts program;
  /// ok, or why nothing should be sent to this node.
  std::function<result<void>()> ready;
};

/// Asks a node's actors how it is, on behalf of threads that are no actors, and keeps its history. Thread-safe; nothing
/// waits. Made by `make`, since what is under way keeps it alive.
class status_desk : public std::enable_shared_from_this<status_desk> {
public:
  static std::shared_ptr<status_desk> make(caf::actor_system& system, desk_parts parts);

  /// The document of `/v1/status`. `then` is called once, in whatever thread; an error where the node does not answer.
  void ask(bool with_history, std::function<void(result<std::string>)> then) const;

  /// Asks, and puts what is answered into the history. To be called every `history::interval`.
  void sample();

  /// The effective config, without secrets, as JSON.
  std::string config_text() const;

private:
  struct numbers {
    node_stats stats;
    std::vector<namespace_info> spaces;
  };

  status_desk(caf::actor_system& system, desk_parts parts);

  void gather(std::function<void(result<numbers>)> then) const;
  std::string text_of(numbers x, bool with_history) const;

  caf::actor_system& system_;
  const desk_parts parts_;
  const timestamp started_;
  const std::int64_t unix_started_;
  mutable std::mutex mutex_;
  history history_;
};

/// Tells the desk the time until it is sent an exit message.
caf::actor spawn_clock(caf::actor_system& system, std::shared_ptr<status_desk> desk);

} // namespace troupe::http::node_status
