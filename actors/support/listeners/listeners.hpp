#pragma once

#include "actors/support/listeners/connected_peers.hpp"
#include "actors/support/listeners/node_roles.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "actors/support/listeners/tls_identity.hpp"
#include "base/bound_socket.hpp"
#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/error.hpp"
#include "base/local_socket.hpp"
#include "io/memory/handed_memory.hpp"
#include "messages/messages.hpp"

#include <caf/io/all.hpp>

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

namespace config {
struct actors_config;
}

/// The options of the listeners and connections of a process.
struct listener_options {
  std::uint32_t max_connections = 256;
  /// The time within which a connection must complete its handshake.
  duration handshake_time = std::chrono::seconds(5);
  std::uint32_t max_message_bytes = 16U << 20U;
  /// The time limit for connecting to a host: less than that of those who ask the dialer, so that they get its error.
  duration connect_time = std::chrono::seconds(5);
  /// The TLS identity for TCP connections in both directions; not set: no authentication.
  std::optional<tls_identity> tls{};
  /// The organizational unit (OU) that the certificate of a server must name when this process connects to it with TLS;
  /// empty: any.
  std::string required_unit{};
  /// Records clients: peers whose certificate is not that of a node. May be null.
  std::shared_ptr<node_roles> roles{};
  /// Records the processes of this host that connect by the Unix socket; null: they are not tracked.
  std::shared_ptr<connected_peers> peers{};
  /// Counts bytes that wait to be sent to connected clients; may be null.
  std::shared_ptr<outgoing_budget> outgoing{};
};

/// The options that the config has, for listeners and for connections to a node.
listener_options listener_options_of(const config::actors_config& options);

/// The listeners and the dialer of a process: Unix sockets and TCP ports that speak CAF's protocol, with checks before
/// CAF reads a byte. Replaces CAF's own middleman actor, with the same interface. Must be destroyed before the actor
/// system.
class listeners {
public:
  /// Errors: `io_error` where no thread can be created.
  static result<std::unique_ptr<listeners>> make(caf::actor_system& system, const listener_options& options);
  listeners(const listeners&) = delete;
  listeners& operator=(const listeners&) = delete;
  /// Closes all listeners, removes socket files, calls `close`, and waits until the dialer has ended. Not for actors.
  ~listeners();

  /// Ends the dialer without waiting for it. All connect requests are answered: those in progress and those that wait
  /// fail. Only a name that is being resolved delays the end. Any thread.
  void close();

  /// Opens a Unix socket by which clients of this host, of this user or root, reach the reception. Errors: those of
  /// `local_listener::open`.
  result<void> open_local(const reception_actor& to, const std::filesystem::path& path);

  /// Whether the socket of `open_local` exists at its path; true where none was opened. Any thread.
  bool local_is_there() const;
  /// Opens the Unix socket again after its file was removed. Existing connections stay. Must not be called by an actor,
  /// and only by one thread at a time. Errors: those of `local_listener::open`.
  result<void> reopen_local();

  /// Opens a TCP port, for clients with a certificate, or for all where there is no TLS.
  result<std::uint16_t> open_tcp(const reception_actor& to, bound_socket where);

  /// The dialer, to which links send connect requests. A host with a slash in it is the path of a Unix socket, or of
  /// the `data_dir` of a node; its port is 0.
  const caf::io::middleman_actor& dialer() const noexcept { return dialer_; }

  /// Memory whose descriptors nodes have passed to this process, on connections that the dialer opened.
  const std::shared_ptr<io::handed_memory>& handed() const noexcept { return handed_; }

private:
  class dialer_actor;
  struct state;

  explicit listeners(caf::actor_system& system) : system_(system) {}

  /// Reserves `for_each` descriptors for each connection, so that no other part of the process counts on them.
  void set_aside(std::uint32_t for_each);

  caf::actor_system& system_;
  std::shared_ptr<io::handed_memory> handed_ = io::handed_memory::make();
  std::shared_ptr<state> state_;
  caf::io::middleman_actor dialer_;
  /// Ready when the dialer has ended.
  std::future<void> dialer_ended_;
  /// The port number under which CAF knows the Unix socket; and the last one that was tried.
  std::uint16_t local_port_ = 0;
  std::uint16_t last_local_port_ = 0;
  reception_actor local_to_;
  /// Reserved for incoming connections.
  descriptors_set_aside descriptors_;
  /// Guards `local_`.
  mutable std::mutex mutex_;
  std::optional<local_listener> local_;
};

} // namespace troupe
