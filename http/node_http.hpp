#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/local_socket.hpp"
#include "config/node_config.hpp"
#include "http/server/request_metrics.hpp"
#include "http/server/server.hpp"
#include "http/status/program_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {
class metadata_service;
}

namespace troupe::http {

class router;
struct admin_options;

/// The HTTP interface of a node, with all APIs that its config enables. Thread-safe, except for `stop` and the
/// destructor.
class node_http {
public:
  /// The ports that the config names.
  struct listening_sockets {
    std::optional<bound_socket> all;
    /// For handshakes only.
    std::optional<bound_socket> handshakes;
  };
  /// Whether the config enables anything that `start` could start.
  static bool is_wanted(const config::node_config& config) noexcept;
  static result<listening_sockets> prepare(const config::node_config& config);

  /// Listens on the ports of `prepare`, and on the Unix socket of the config. The actor system must outlive this object
  /// and its pending requests.
  static result<std::unique_ptr<node_http>> start(caf::actor_system& system, const node_services& services,
                                                  const config::node_config& config, const program_facts& program,
                                                  listening_sockets where);
  /// The same with a single listener.
  static result<std::unique_ptr<node_http>> start(caf::actor_system& system, const node_services& services,
                                                  const config::node_config& config, const program_facts& program,
                                                  bound_socket all);

  node_http(const node_http&) = delete;
  node_http& operator=(const node_http&) = delete;
  ~node_http();

  /// None if there is no such listener.
  std::optional<std::uint16_t> port_if_any() const noexcept;
  std::optional<std::uint16_t> handshake_port() const noexcept;
  /// The port of the main listener, which must exist.
  std::uint16_t port() const noexcept { return server_->port(); }
  /// The Unix socket; empty if there is none.
  const std::filesystem::path& socket() const noexcept { return socket_.path(); }

  /// Whether that socket exists at its path; true if none is configured. Any thread.
  bool socket_is_there() const;
  /// Recreates the socket after it was removed. To be called by the thread that calls `socket_is_there`. Errors: those
  /// of `local_listener::open`.
  result<void> reopen_socket();

  /// Reloads tokens and certificates; after an error, those of that listener stay in use.
  result<void> reload();

  /// Makes `/ready` fail, waits for pending requests for `patience` at most, and closes the listeners.
  void stop(duration patience);

private:
  struct readiness;

  node_http() = default;

  /// What the administrative API shows.
  admin_options admin_of(caf::actor_system& system, const node_services& services,
                         const std::shared_ptr<const metadata_service>& service, const program_facts& program) const;
  /// Starts the servers of these routes.
  result<void> listen(const config::node_config& config, listening_sockets where, router routes,
                      router handshake_routes);

  std::shared_ptr<readiness> ready_;
  std::unique_ptr<request_metrics> metrics_;
  std::unique_ptr<server> server_;
  socket_file socket_;
  std::unique_ptr<server> handshake_server_;
  /// Null if there is none.
  directory_actor directory_;
  /// Samples the history of the node; null if the actor could not be spawned.
  caf::actor clock_;
};

} // namespace troupe::http
