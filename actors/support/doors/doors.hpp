#pragma once

#include "actors/support/doors/connected_peers.hpp"
#include "actors/support/doors/node_roles.hpp"
#include "actors/support/doors/outgoing_budget.hpp"
#include "actors/support/doors/tls_identity.hpp"
#include "base/bound_socket.hpp"
#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/error.hpp"
#include "base/local_socket.hpp"
#include "io/handed_memory.hpp"
#include "messages/messages.hpp"

#include <caf/io/all.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

/// What comes through the doors of a process, and how.
struct door_options {
  std::uint32_t max_connections = 256;
  /// By when a connection must have greeted.
  duration handshake_time = std::chrono::seconds(5);
  std::uint32_t max_message_bytes = 16U << 20U;
  /// Of TCP connections, both ways; not set: nobody is asked who they are.
  std::optional<tls_identity> tls{};
  /// The organizational unit (OU) that the certificate of whoever this process connects to has to name, where there is
  /// TLS; empty: none.
  std::string required_unit{};
  /// Is told of whoever comes in with a certificate that is no node's; may be null.
  std::shared_ptr<node_roles> roles{};
  /// Is told which processes of this host have come in by the Unix socket; null: nobody asks.
  std::shared_ptr<connected_peers> peers{};
  /// Counts what clients that came in have not been sent yet; may be null.
  std::shared_ptr<outgoing_budget> outgoing{};
};

/// The ways by which actors of other processes reach this one, and the other way round: Unix sockets and TCP ports that
/// speak CAF's protocol, with checks before CAF reads a byte. Takes the place of CAF's own middleman actor, and asks
/// the same of it. Ends before the actor system does.
class doors {
public:
  /// Errors: `io_error`, where no more threads may be made.
  static result<std::unique_ptr<doors>> make(caf::actor_system& system, const door_options& options);
  doors(const doors&) = delete;
  doors& operator=(const doors&) = delete;
  /// Closes what listens, and removes socket files.
  ~doors();

  /// Lets clients of this host, and of this user or root, reach the reception. Errors: those of
  /// `local_listener::open`.
  result<void> open_local(const reception_actor& to, const std::filesystem::path& path);

  /// Whether the socket of `open_local` is found at its path; true where there is none. Any thread.
  bool local_is_there() const;
  /// Opens it anew, after it was removed. Connections that there are stay. Not by an actor, and by one thread at a
  /// time. Errors: those of `local_listener::open`.
  result<void> reopen_local();

  /// The same over TCP, for whoever has a certificate, or for everybody where there is no TLS.
  result<std::uint16_t> open_tcp(const reception_actor& to, bound_socket where);

  /// Whom a link asks for connections. A host with a slash in it is the path of a Unix socket, or of the `data_dir` of
  /// a node; its port is 0.
  const caf::io::middleman_actor& entrance() const noexcept { return entrance_; }

  /// Memory that nodes have handed over to this process, on connections that the entrance has made.
  const std::shared_ptr<io::handed_memory>& handed() const noexcept { return handed_; }

private:
  class entrance_actor;
  struct state;

  explicit doors(caf::actor_system& system) : system_(system) {}

  /// What connections will open, so many descriptors each: no other part of the process is to count on them.
  void set_aside(std::uint32_t for_each);

  caf::actor_system& system_;
  std::shared_ptr<io::handed_memory> handed_ = io::handed_memory::make();
  std::shared_ptr<state> state_;
  caf::io::middleman_actor entrance_;
  /// Of the Unix socket, among the ports that CAF knows; and the last one that was tried.
  std::uint16_t local_port_ = 0;
  std::uint16_t last_local_port_ = 0;
  reception_actor local_to_;
  /// For the connections that come in.
  descriptors_set_aside descriptors_;
  /// Guards `local_`.
  mutable std::mutex mutex_;
  std::optional<local_listener> local_;
};

} // namespace troupe
