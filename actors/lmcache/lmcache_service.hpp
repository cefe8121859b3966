#pragma once

#include "actors/lmcache/lmcache_server.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The parts of the node that LMCache's clients need.
struct lmcache_node {
  node_actor node;
  /// For `clear`, which no client may do.
  std::vector<registry_actor> shards;
  /// The arena.
  std::shared_ptr<io::extent_source> extents;
  std::shared_ptr<lmcache::counters> counters;
  /// The changes of pages of LMCache's clients, for those that subscribe; null if the node publishes no events.
  std::shared_ptr<events::page_log> log{};
};

/// The service for LMCache's clients: a listener with its thread, and the actor behind it. Destroyed before the node.
class lmcache_service {
public:
  /// Binds the port without serving: errors of it are reported before the node is started. `with_events`: the node
  /// publishes events.
  static result<std::unique_ptr<lmcache::listener>>
  prepare(const config::lmcache_config& options, std::shared_ptr<lmcache::counters> counts, bool with_events);

  lmcache_service(caf::actor_system& system, const lmcache_node& node, const config::node_config& options,
                  std::unique_ptr<lmcache::listener> listener);
  lmcache_service(const lmcache_service&) = delete;
  lmcache_service& operator=(const lmcache_service&) = delete;
  /// As `stop`.
  ~lmcache_service();

  std::uint16_t port() const noexcept { return listener_->port(); }

  /// Answers every request, with a rejection if it was not executed, and stops serving. After it returns, no lane is at
  /// work in the arena, within a limit: a lane that is still at work keeps its memory, and requests that wait for it
  /// are not answered.
  void stop();

private:
  caf::actor_system& system_;
  std::shared_ptr<lmcache::listener> listener_;
  std::shared_ptr<arena_users> users_;
  std::shared_ptr<events::page_log> log_;
  lmcache_actor server_;
};

} // namespace troupe
