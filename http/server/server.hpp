#pragma once

#include "base/bound_socket.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/local_socket.hpp"
#include "config/node_config.hpp"
#include "http/server/observer.hpp"
#include "http/server/router.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace troupe::http {

/// An HTTP/1.1 server with routes, roles, TLS, and a limit for everything. All functions may be called from any thread
/// except the io threads, that is, not from handlers or observers.
///
/// It listens on a port, a Unix socket, or both. One thread accepts connections and gives each to the io thread that
/// has the fewest; there it stays. Letting the kernel distribute them (SO_REUSEPORT) would save that step, which
/// happens once per connection, but distributes by a hash: engines keep a handful of connections open for days, and two
/// busy ones on one thread would stay there.
///
/// A connection has one request in progress at a time; those that it sends ahead wait, and their answers are sent
/// together. Connections beyond `limits.connections`, or beyond `limits.connections_per_address`, may send a probe
/// (`route::is_probe`) within two seconds. All other requests get 503. There is room for 64 of them on each io thread,
/// and a new one replaces the oldest: so silent connections, however many, do not block probes.
class server {
public:
  /// Listens and serves. Errors: a port in use, a certificate that does not load, a tokens file that others can read, a
  /// defective router. `config` has been validated. `watcher` may be null.
  static result<std::unique_ptr<server>> start(const config::http_config& config, router routes,
                                               observer* watcher = nullptr);

  /// The sockets to listen on: at least one of them.
  struct listening_sockets {
    std::optional<bound_socket> port;
    /// Without TLS and tokens: a process that can open it has all rights.
    std::optional<local_listener> local;
  };

  /// The same on sockets that are bound already.
  static result<std::unique_ptr<server>> start(const config::http_config& config, router routes, observer* watcher,
                                               listening_sockets where);

  /// Checks before there is anything to serve: loads tokens and certificates, and binds the address. None if the config
  /// has no port.
  static result<std::optional<bound_socket>> prepare(const config::http_config& config);

  /// Stops as `stop(0)` does.
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// The port it listens on, also if the config has 0. 0 if there is none.
  std::uint16_t port() const noexcept;

  /// Reloads the tokens file and the certificates. Requests that begin after this returns are checked against the new
  /// tokens, and new connections use the new certificates; open ones stay open. After an error, everything stays as it
  /// was. Without tokens file and TLS, this does nothing.
  result<void> reload_tokens();

  /// Listens on this Unix socket instead of the previous one, whose file was removed. Returns before it does. Any
  /// thread.
  void replace_local(local_listener to_listen);

  /// Stops listening, closes idle connections, and waits for pending requests to be answered, `patience` at most; then
  /// closes the rest. Running handlers are waited for without a limit. The first call decides.
  void stop(duration patience);

private:
  struct implementation;
  explicit server(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> implementation_;
};

} // namespace troupe::http
