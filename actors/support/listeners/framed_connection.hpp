#pragma once

#include "actors/support/listeners/closing_sockets.hpp"
#include "actors/support/listeners/connected_peers.hpp"
#include "actors/support/listeners/connection_limits.hpp"
#include "actors/support/listeners/frame_gate.hpp"
#include "actors/support/listeners/node_roles.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "actors/support/listeners/tls_channel.hpp"
#include "base/clock.hpp"
#include "base/unique_descriptor.hpp"
#include "io/memory/handed_memory.hpp"
#include "messages/messages.hpp"

#include <caf/io/all.hpp>
#include <caf/io/network/acceptor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream_impl.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

/// The layer between sockets and CAF's broker, in the thread of CAF's multiplexer: an acceptor accepts connections and
/// rejects those that are not allowed, and a framed connection passes to the broker only what its gate accepts.

namespace troupe {

class framed_connection;

/// The state that all listeners and connections of a process share. Used in the multiplexer's thread, except for
/// `close`.
class listener_registry : public std::enable_shared_from_this<listener_registry> {
public:
  struct options {
    std::uint32_t max_connections = 0;
    duration handshake_time{};
    std::uint32_t max_message_bytes = 0;
    /// May be null.
    std::shared_ptr<node_roles> roles{};
    /// May be null.
    std::shared_ptr<outgoing_budget> outgoing{};
    /// The OU that the certificate of a server must name, for outgoing connections with TLS; empty: any.
    std::string required_unit{};
    /// May be null.
    std::shared_ptr<connected_peers> peers{};
  };

  static std::shared_ptr<listener_registry> make(caf::actor_system& system, const options& how);

  std::uint32_t max_message_bytes() const noexcept { return options_.max_message_bytes; }
  frame_gate new_gate() const { return frame_gate({options_.max_message_bytes, kinds_}); }

  /// Registers a new connection; empty if the limit is reached.
  std::optional<connection_limits::connection_id> come();
  void came(connection_limits::connection_id who, framed_connection* as) { connections_[who] = as; }
  bool complete_handshake(connection_limits::connection_id who, const std::string& name) {
    return limits_.complete_handshake(who, name);
  }
  void leave(connection_limits::connection_id who);
  const std::shared_ptr<node_roles>& roles() const noexcept { return options_.roles; }
  const std::shared_ptr<connected_peers>& peers() const noexcept { return options_.peers; }
  const std::shared_ptr<outgoing_budget>& outgoing() const noexcept { return options_.outgoing; }
  const std::string& required_unit() const noexcept { return options_.required_unit; }
  /// Under pressure on the outgoing budget, ends connections whose peers have read nothing for a long time.
  void end_silent_readers();

  /// Logs, rate-limited, that a connection was rejected or ended, and why.
  void turned_away(const std::string& why);

  /// Limits the time in which a connection that this process has closed sends what is left.
  void closing(const void* connection, int socket);
  /// To be called before a connection's socket is closed.
  void closed(const void* connection) noexcept { closing_->remove(connection); }

  /// Stops the checks of handshake deadlines. May be called from any thread.
  void close();

private:
  listener_registry(caf::actor_system& system, const options& how);

  void end_late_ones();

  caf::actor_system& system_;
  options options_;
  std::shared_ptr<const std::vector<std::string>> kinds_;
  connection_limits limits_;
  connection_limits::connection_id last_ = 0;
  std::unordered_map<connection_limits::connection_id, framed_connection*> connections_;
  std::shared_ptr<closing_sockets> closing_ = std::make_shared<closing_sockets>();
  caf::actor clock_;
  /// Exists as long as the registry, hence as long as the connections: its deadlines hold while the multiplexer ends.
  caf::actor closing_clock_;
  bool ticking_ = false;
  timestamp said_;
  std::uint64_t turned_away_ = 0;
};

/// A connected socket, plain or with TLS, as CAF's streams read and write it. Over a Unix socket a node passes
/// descriptors to a client, along with the next bytes.
class peer_socket {
public:
  /// An outgoing connection; empty if TLS fails at once.
  static std::optional<peer_socket> to_node(unique_descriptor& socket, const tls_context* tls);
  /// An outgoing connection over a Unix socket. `handed` receives the descriptors that the node passes.
  static std::optional<peer_socket> to_local_node(unique_descriptor& socket,
                                                  std::unique_ptr<io::handed_memory::connection> handed);
  /// An incoming connection. `handover`: descriptors for the other process, over a Unix socket; may be null.
  static std::optional<peer_socket> to_client(unique_descriptor& socket, const tls_context* tls,
                                              std::shared_ptr<descriptor_handover> handover = nullptr);

  int descriptor() const noexcept { return descriptor_; }
  /// Null without TLS. The address stays the same when the connection is moved.
  const tls_channel* tls() const noexcept { return tls_.get(); }

  caf::io::network::rw_state read_some(std::size_t& got, int descriptor, void* into, std::size_t size);
  caf::io::network::rw_state write_some(std::size_t& put, int descriptor, const void* from, std::size_t size);
  /// Whether bytes wait in the TLS buffer, for which the socket will not become readable again.
  bool must_read_more(int, std::size_t) const { return tls_ && tls_->pending() > 0; }

private:
  peer_socket(int descriptor, std::unique_ptr<tls_channel> tls) : descriptor_(descriptor), tls_(std::move(tls)) {}

  static std::optional<peer_socket> make(unique_descriptor& socket, const tls_context* tls, tls_channel::side which);

  caf::io::network::rw_state receive(std::size_t& got, int descriptor, void* into, std::size_t size);
  caf::io::network::rw_state send(std::size_t& put, int descriptor, const void* from, std::size_t size);

  /// Owned by CAF, which closes it.
  int descriptor_;
  std::unique_ptr<tls_channel> tls_;
  std::unique_ptr<io::handed_memory::connection> handed_{};
  std::shared_ptr<descriptor_handover> handover_{};
};

/// A framed connection: a stream of CAF whose incoming frames pass a gate before the broker reads them.
class framed_connection : public caf::io::scribe {
public:
  /// An outgoing connection to a node. Its frames are read without a gate, up to the size limit, provided that its
  /// certificate names the required unit where one is set.
  framed_connection(caf::io::network::default_multiplexer& backend, peer_socket connection,
                    std::shared_ptr<listener_registry> registry);
  /// An incoming connection from a client. `process` is set for a Unix socket where connected processes are tracked.
  framed_connection(caf::io::network::default_multiplexer& backend, peer_socket connection,
                    std::shared_ptr<listener_registry> registry, connection_limits::connection_id who,
                    std::optional<local_process> process = {});
  ~framed_connection() override;

  /// Ends the connection as if the peer had closed it.
  void cut() noexcept;
  /// The time since which the peer has read nothing although bytes wait for it; empty where none wait.
  std::optional<timestamp> silent_since() const noexcept;

  void configure_read(caf::io::receive_policy::config config) override;
  bool consume(caf::execution_unit* context, const void* data, std::size_t size) override;
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void graceful_shutdown() override;
  void flush() override;
  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return 0; }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override;
  void data_transferred(caf::execution_unit* context, std::size_t written, std::size_t remaining) override;

protected:
  /// The connection has ended. A pending connect request fails with the cause, where that is known.
  void detach_from(caf::io::abstract_broker* broker) override;

private:
  /// Records that `bytes` bytes now wait to be sent.
  void count_unsent(std::size_t bytes);
  bool judge_header(caf::execution_unit* context, const void* data, std::size_t size);
  bool judge_payload(caf::execution_unit* context, std::size_t size);
  bool refuse();
  /// Whether the server has the required certificate. Nothing that it sends is read before that is known.
  bool may_answer() const;
  void refuse_answerer();
  /// Fails the pending connect request, if there is one, so that the broker does not answer it.
  void fail_connect(caf::io::abstract_broker* broker, const error& why);
  /// Lets the time for which the server may be silent begin now. For CAF's broker it would have begun with its clock,
  /// so the next heartbeat would end a connection whose server has not answered by then.
  void begin_silence();
  /// What CAF's broker keeps about this connection; null if it is another broker, or keeps nothing yet or any more.
  caf::io::basp::endpoint_context* known_to(caf::io::abstract_broker* broker) const;
  /// Ends the actor by which CAF asks each new peer for its spawn server; it would wait for years.
  void forget_spawn_server();

  std::shared_ptr<listener_registry> registry_;
  std::optional<connection_limits::connection_id> who_;
  std::optional<frame_gate> gate_;
  std::vector<char> header_;
  bool waits_for_payload_ = false;
  bool launched_ = false;
  bool answerer_refused_ = false;
  const tls_channel* tls_ = nullptr;
  /// The name under which it is registered as a client by its certificate; else empty.
  std::string known_as_client_;
  /// The process, until the handshake; and the name under which it is registered among the connected processes after
  /// it, else empty.
  std::optional<local_process> process_{};
  std::string known_as_local_;
  /// The bytes that are counted in the outgoing budget: those that the stream has not sent. Of these,
  /// `counted_in_buffer_` bytes lie in `wr_buf` and were counted before.
  std::size_t unsent_ = 0;
  std::size_t counted_in_buffer_ = 0;
  timestamp taken_at_{};
  caf::io::network::stream_impl<peer_socket> stream_;
};

/// An acceptor: accepts connections on one listening socket and creates a framed connection for each.
class acceptor : public caf::io::doorman {
public:
  struct options {
    /// A Unix socket: only this user and root are accepted.
    bool local = false;
    /// The port under which the broker publishes this listener; 0: the port of the socket.
    std::uint16_t port = 0;
    std::shared_ptr<const tls_context> tls;
  };

  acceptor(caf::io::network::default_multiplexer& backend, int descriptor, std::shared_ptr<listener_registry> registry,
           options how);

  bool new_connection() override;
  void graceful_shutdown() override;
  void launch() override { acceptor_.start(this); }
  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return port_; }
  void add_to_loop() override { acceptor_.activate(this); }
  void remove_from_loop() override;

private:
  /// Whether a connection to the Unix socket is accepted. `process` is set where connected processes are tracked.
  bool judge_local(int accepted, std::optional<local_process>& process);

  /// Accepts connections. When no descriptors are left, it accepts with a reserved one and closes the connection at
  /// once; otherwise the multiplexer would report the same connection again and again.
  class accept_policy {
  public:
    accept_policy();
    bool try_accept(int& accepted, int listener);

  private:
    unique_descriptor spare_;
  };

  std::shared_ptr<listener_registry> registry_;
  options options_;
  std::uint16_t port_;
  caf::io::network::acceptor_impl<accept_policy> acceptor_;
};

} // namespace troupe
