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

namespace troupe::http {

/// The HTTP interface of a node, with all APIs that its config asks for. Thread-safe, but for `stop` and its end.
class node_http {
public:
  /// The ports that the config asks for.
  struct doors {
    std::optional<bound_socket> all;
    /// For handshakes alone.
    std::optional<bound_socket> handshakes;
  };
  /// Whether the config asks for anything that `start` could start.
  static bool is_wanted(const config::node_config& config) noexcept;
  static result<doors> prepare(const config::node_config& config);

  /// Listens on what `prepare` has taken, and on the Unix socket of the config. The actor system must outlive this and
  /// what is under way in it.
  static result<std::unique_ptr<node_http>> start(caf::actor_system& system, const node_services& services,
                                                  const config::node_config& config, const program_facts& program,
                                                  doors where);
  /// The same with the one listener.
  static result<std::unique_ptr<node_http>> start(caf::actor_system& system, const node_services& services,
                                                  const config::node_config& config, const program_facts& program,
                                                  bound_socket door);

  node_http(const node_http&) = delete;
  node_http& operator=(const node_http&) = delete;
  ~node_http();

  /// Nothing where there is no such listener.
  std::optional<std::uint16_t> port_if_any() const noexcept;
  std::optional<std::uint16_t> handshake_port() const noexcept;
  /// Of the listener for everything, which there is.
  std::uint16_t port() const noexcept { return server_->port(); }
  /// The Unix socket; empty if there is none.
  const std::filesystem::path& socket() const noexcept { return socket_.path(); }

  /// Whether that socket is found at its path; true where there is none. Any thread.
  bool socket_is_there() const;
  /// Opens it anew, after it was removed. By the thread that asks whether it is there. Errors: those of
  /// `local_listener::open`.
  result<void> reopen_socket();

  /// Reads tokens and certificates again; with an error, those of that listener stay as they were.
  result<void> reload();

  /// `/ready` says no from now on, requests under way are answered, `patience` at most, and nobody listens any more.
  void stop(duration patience);

private:
  struct readiness;

  node_http() = default;

  std::shared_ptr<readiness> ready_;
  std::unique_ptr<request_metrics> metrics_;
  std::unique_ptr<server> server_;
  socket_file socket_;
  std::unique_ptr<server> handshake_server_;
  /// Null if there is none.
  directory_actor directory_;
  /// Has the history of the node continued; null if nobody could ask for it.
  caf::actor clock_;
};

} // namespace troupe::http
