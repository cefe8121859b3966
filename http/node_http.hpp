#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"
#include "http/server/request_metrics.hpp"
#include "http/server/server.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::http {

/// The HTTP interface of a node, with all APIs that its config asks for. Thread-safe, but for `stop` and its end.
class node_http {
public:
  /// Listens on `door`, see `server::prepare`. `config.http.enabled` is taken for granted; `version` is the program's.
  /// The actor system must outlive this and what is under way in it.
  static result<std::unique_ptr<node_http>> start(caf::actor_system& system, const node_services& services,
                                                  const config::node_config& config, const std::string& version,
                                                  bound_socket door);

  std::uint16_t port() const noexcept { return server_->port(); }

  /// Reads tokens and certificates again; with an error, all stays as it was.
  result<void> reload() { return server_->reload_tokens(); }

  /// `/ready` says no from now on, requests under way are answered, `patience` at most, and nobody listens any more.
  void stop(duration patience);

private:
  struct readiness;

  node_http() = default;

  std::shared_ptr<readiness> ready_;
  std::unique_ptr<request_metrics> metrics_;
  std::unique_ptr<server> server_;
};

} // namespace troupe::http
