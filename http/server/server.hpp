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
/// but the io threads, that is, not from handlers or observers. It listens on a port, a Unix socket, or both. One
/// thread accepts connections and gives each to the io thread that has the fewest; there it stays. Letting the kernel
/// spread them (SO_REUSEPORT) would spare that step, which a connection makes once, but spreads by a hash: engines keep
/// a handful of connections open for days, and two busy ones on one thread would stay there. A connection has one
/// request under way at a time; those that it sends ahead wait, and their answers leave together. Connections beyond
/// `limits.connections`, or beyond `limits.connections_per_address`, may ask one thing within two seconds: how the node
/// is (`route::is_probe`). All else gets 503. There is room for 64 of them on each io thread, and the oldest goes for a
/// new one: so silent connections, however many, keep no probe out.
class server {
public:
  /// Listens and serves; or says what is wrong: a port in use, a certificate that does not load, a tokens file that
  /// others can read, a router with a defect. `config` has been validated. `watcher` may be null.
  static result<std::unique_ptr<server>> start(const config::http_config& config, router routes,
                                               observer* watcher = nullptr);

  /// Where it listens: at one of them at least.
  struct doors {
    std::optional<bound_socket> port;
    /// Without TLS and tokens: who can open it may do everything.
    std::optional<local_listener> local;
  };

  /// The same on sockets that have their addresses already.
  static result<std::unique_ptr<server>> start(const config::http_config& config, router routes, observer* watcher,
                                               doors where);

  /// What can be known before there is anything to serve: tokens and certificates are sound, and the address can be
  /// taken. It is, from now on. Nothing where the config has no port.
  static result<std::optional<bound_socket>> prepare(const config::http_config& config);

  /// Stops as `stop(0)` does.
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// The port it listens on, also where the config has 0. 0 where it listens on none.
  std::uint16_t port() const noexcept;

  /// Reads the tokens file and the certificates again. Requests that begin after this returns are held to the new
  /// tokens, and connections to the new certificates; what is open stays open. With an error, all stays as it was.
  /// Without tokens file and TLS, there is nothing to do.
  result<void> reload_tokens();

  /// Listens on this Unix socket from now on, in the place of the one that there was: its file was removed. Returns
  /// before it does. Any thread.
  void replace_local(local_listener door);

  /// Stops listening, closes idle connections, and waits for requests under way to be answered, `patience` at most;
  /// then closes what is left. Handlers that are still running are waited for without a limit. The first call decides.
  void stop(duration patience);

private:
  struct implementation;
  explicit server(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> implementation_;
};

} // namespace troupe::http
