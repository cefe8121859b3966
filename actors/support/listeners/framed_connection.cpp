#include "actors/support/listeners/framed_connection.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/handshake_name.hpp"
#include "actors/support/listeners/message_kinds.hpp"
#include "base/local_socket.hpp"
#include "base/log.hpp"
#include "base/tcp_socket.hpp"

#include <caf/io/basp_broker.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

constexpr auto receive_header = caf::io::receive_policy_flag::exactly;

/// The limit of unsent bytes for one connection, in messages of the longest size.
constexpr std::size_t unsent_messages_max = 4;

/// The time after which a peer that reads nothing is disconnected, where others need the room.
constexpr auto silence_max = std::chrono::seconds(10);

/// The time in which a closed connection may send what is left.
constexpr auto closing_time = std::chrono::seconds(2);

/// A handle that no other connection, or no other listener, of this process has or had. CAF takes the descriptor, which
/// the system gives to the next connection. The broker is notified of an end when the messages before it were read, so
/// it would then clean up after the wrong connection: that one stays open, and its peer gets no answers.
template <class Handle>
Handle new_handle() {
  // Larger than any descriptor, in case another part of CAF uses one.
  static std::atomic<std::int64_t> last{std::int64_t{1} << 32U};
  return Handle::from_int(++last);
}

/// Takes a socket out of CAF's loop, which then lets go of the socket's manager. It does not where the socket was to
/// come into the loop with the same round: that wish is only forgotten, and manager and socket would stay for ever.
template <class Handler>
void take_out_of_loop(Handler& handler) {
  handler.passivate();
  if ((handler.eventbf() & caf::io::network::input_mask) == 0)
    handler.removed_from_loop(caf::io::network::operation::read);
}

// The two clocks below are hidden actors: their system does not wait for them when it ends, and a message may be left
// in their mailbox. So their messages to themselves have no sender, which would be a reference to the actor in its own
// mailbox, and neither would ever be released.

/// A clock of deadlines: each tick schedules one check of the connections, which asks for the next tick while a
/// deadline is pending.
caf::behavior registry_clock(caf::event_based_actor* self, std::function<void()> look, duration pause) {
  return {[self, look, pause](caf::tick_atom) { caf::delayed_anon_send(self, pause, caf::ok_atom_v); },
          [look](caf::ok_atom) { look(); }};
}

/// The clock of closed connections. It checks by itself: a multiplexer that is about to end runs no functions of
/// others.
caf::behavior closing_clock(caf::event_based_actor* self, const std::shared_ptr<closing_sockets>& sockets) {
  return {[self, sockets](caf::tick_atom) {
    if (sockets->cut_late(std::chrono::steady_clock::now()))
      caf::delayed_anon_send(self, closing_time / 8, caf::tick_atom_v);
  }};
}

} // namespace

// -- registry of connections ------------------------------------------------------------------------------------------

listener_registry::listener_registry(caf::actor_system& system, const options& how)
    : system_(system), options_(how),
      kinds_(std::make_shared<const std::vector<std::string>>(kinds_of_client_messages(system))),
      limits_(how.max_connections, how.handshake_time, handshake_name(system, system.node())) {}

std::shared_ptr<listener_registry> listener_registry::make(caf::actor_system& system, const options& how) {
  std::shared_ptr<listener_registry> out(new listener_registry(system, how));
  const std::weak_ptr<listener_registry> weak = out;
  const auto look = [weak, &system] {
    system.middleman().backend().post([weak] {
      if (const auto registry = weak.lock())
        registry->end_late_ones();
    });
  };
  const auto pause = std::max<duration>(how.handshake_time / 4, std::chrono::milliseconds(5));
  out->clock_ = system.spawn<caf::hidden>(registry_clock, std::function<void()>(look), pause);
  out->closing_clock_ = system.spawn<caf::hidden>(closing_clock, out->closing_);
  return out;
}

void listener_registry::closing(const void* connection, int socket) {
  if (closing_->add(connection, socket, std::chrono::steady_clock::now() + closing_time))
    caf::anon_send(closing_clock_, caf::tick_atom_v);
}

void listener_registry::close() {
  caf::anon_send_exit(clock_, caf::exit_reason::user_shutdown);
}

std::optional<connection_limits::connection_id> listener_registry::come() {
  // The limit also bounds descriptors, and connections that have not been authenticated yet.
  if (!limits_.come(last_ + 1, std::chrono::steady_clock::now())) {
    turned_away("there are " + std::to_string(limits_.size()) +
                " connections, which is the limit (actors.max_connections)");
    return std::nullopt;
  }
  // The clock runs only while a handshake is pending.
  if (!std::exchange(ticking_, true))
    caf::anon_send(clock_, caf::tick_atom_v);
  return ++last_;
}

void listener_registry::leave(connection_limits::connection_id who) {
  limits_.leave(who);
  connections_.erase(who);
}

void listener_registry::end_late_ones() {
  // The destructor of a connection removes it from both tables, so only the socket is shut down in these loops.
  for (const auto who : limits_.late(std::chrono::steady_clock::now()))
    if (const auto i = connections_.find(who); i != connections_.end()) {
      turned_away("no handshake within actors.handshake_time");
      i->second->cut();
    }
  // No more ticks are needed when every connection has completed its handshake.
  ticking_ = limits_.silent() > 0;
  if (ticking_)
    caf::anon_send(clock_, caf::tick_atom_v);
}

void listener_registry::end_silent_readers() {
  // Slow readers are tolerated as long as they do not take room from others.
  if (!options_.outgoing->is_tight())
    return;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [who, scribe] : connections_)
    if (const auto since = scribe->silent_since(); since && now - *since > silence_max) {
      turned_away("the peer does not read, and others need the buffer space");
      scribe->cut();
    }
}

void listener_registry::turned_away(const std::string& why) {
  constexpr auto pause = std::chrono::seconds(10);
  ++turned_away_;
  const auto now = std::chrono::steady_clock::now();
  // A peer that reconnects in a loop must not fill the log.
  if (said_ != timestamp{} && now < said_ + pause)
    return;
  said_ = now;
  log::get("node")->warn("connection closed by the node: {} ({} so far)", why, turned_away_);
}

// -- framed connections -----------------------------------------------------------------------------------------------

framed_connection::framed_connection(caf::io::network::default_multiplexer& backend, peer_socket connection,
                                     std::shared_ptr<listener_registry> registry)
    : caf::io::scribe(new_handle<caf::io::connection_handle>()), registry_(std::move(registry)), tls_(connection.tls()),
      stream_(backend, connection.descriptor(), std::move(connection)) {}

framed_connection::framed_connection(caf::io::network::default_multiplexer& backend, peer_socket connection,
                                     std::shared_ptr<listener_registry> registry, connection_limits::connection_id who,
                                     std::optional<local_process> process)
    : framed_connection(backend, std::move(connection), std::move(registry)) {
  who_ = who;
  process_ = std::move(process);
  gate_.emplace(registry_->new_gate());
  registry_->came(who, this);
  // Unsent bytes are counted when the stream acknowledges what it has written.
  stream_.ack_writes(registry_->outgoing() != nullptr);
}

framed_connection::~framed_connection() {
  // Bytes that will never be sent must not stay counted in the budget.
  if (unsent_ > 0)
    count_unsent(0);
  registry_->closed(this);
  // Only an incoming connection has a place in the registry.
  if (who_)
    registry_->leave(*who_);
  if (!known_as_client_.empty())
    registry_->roles()->left(known_as_client_);
  if (!known_as_local_.empty())
    registry_->peers()->left(known_as_local_);
}

void framed_connection::cut() noexcept {
  ::shutdown(stream_.fd(), SHUT_RDWR);
}

void framed_connection::configure_read(caf::io::receive_policy::config config) {
  // CAF would allocate the length that the peer announces, so the limit is enforced before that.
  if (config.second > std::max<std::size_t>(registry_->max_message_bytes(), frame_gate::header_bytes)) {
    cut();
    config = {receive_header, frame_gate::header_bytes};
  }
  stream_.configure_read(config);
  // The stream starts with the first read request and must start only once.
  if (!std::exchange(launched_, true)) {
    begin_silence();
    stream_.start(this);
  }
}

void framed_connection::begin_silence() {
  if (auto* const known = known_to(parent()); known && known->last_seen == caf::actor_clock::time_point{})
    known->last_seen = parent()->clock().now();
}

bool framed_connection::consume(caf::execution_unit* context, const void* data, std::size_t size) {
  // The certificate is known only when the TLS handshake has ended, hence with the first bytes.
  if (!gate_ && !may_answer()) {
    refuse_answerer();
    return true;
  }
  // An outgoing connection has no gate: this process chose the node and trusts its frames.
  if (!gate_)
    return caf::io::scribe::consume(context, data, size);
  // The broker may have closed the connection while bytes were still in the buffer.
  if (detached())
    return false;
  // Headers and payloads alternate; a header without payload leaves the flag unset.
  return std::exchange(waits_for_payload_, false) ? judge_payload(context, size) : judge_header(context, data, size);
}

bool framed_connection::judge_header(caf::execution_unit* context, const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const std::uint8_t*>(data);
  if (gate_->header({bytes, size}) == frame_gate::verdict::refuse)
    return refuse();
  // A header without payload is complete and goes to the broker at once.
  if (gate_->payload_bytes() == 0)
    return caf::io::scribe::consume(context, data, size);
  // The broker gets the header together with its payload, if the gate passes that.
  header_.assign(bytes, bytes + size);
  waits_for_payload_ = true;
  stream_.configure_read({receive_header, gate_->payload_bytes()});
  return true;
}

bool framed_connection::judge_payload(caf::execution_unit* context, std::size_t size) {
  auto& buffer = stream_.rd_buf();
  // The gate sets the name while it judges the payload, so this must be read before.
  const bool new_here = !gate_->has_handshake();
  switch (gate_->payload({reinterpret_cast<const std::uint8_t*>(buffer.data()), size})) {
  case frame_gate::verdict::refuse:
    return refuse();
  case frame_gate::verdict::drop:
    // A correct peer may send this as well, so the connection stays and the next header is read.
    log::get("node")->debug("frame dropped: the peer sent {}", gate_->reason());
    stream_.configure_read({receive_header, frame_gate::header_bytes});
    return true;
  case frame_gate::verdict::pass:
    break;
  }
  // A second connection with the same name could receive the messages of the first.
  if (new_here && !registry_->complete_handshake(*who_, gate_->identity())) {
    registry_->turned_away("its name belongs to another connection");
    cut();
    return false;
  }
  // A certificate without the unit of nodes makes the peer a client, which may not attach as a node.
  if (new_here && registry_->roles() && tls_ != nullptr && !tls_->peer_has_unit(node_roles::unit)) {
    known_as_client_ = gate_->identity();
    registry_->roles()->came_as_client(known_as_client_);
  }
  // The process is registered under the name by which the node finds it when the client attaches.
  if (new_here && process_) {
    known_as_local_ = gate_->identity();
    registry_->peers()->came(known_as_local_, *std::exchange(process_, std::nullopt));
  }
  // The broker reads from the stream's buffer, so the header is put there first, then the payload.
  std::vector<char> payload;
  payload.swap(buffer);
  payload.resize(size);
  buffer.swap(header_);
  // The broker may end the connection over the header; then the payload must not be delivered.
  if (!caf::io::scribe::consume(context, buffer.data(), buffer.size()) || detached())
    return false;
  stream_.rd_buf().swap(payload);
  const bool goes_on = caf::io::scribe::consume(context, stream_.rd_buf().data(), size);
  // CAF sends its request for the spawn server while it handles the handshake, so it exists only now.
  if (new_here && goes_on && !detached())
    forget_spawn_server();
  return goes_on;
}

bool framed_connection::refuse() {
  registry_->turned_away("it sent " + std::string(gate_->reason()));
  cut();
  // Reading continues, so that the stream sees the end of the connection and reports it to the broker.
  stream_.configure_read({receive_header, frame_gate::header_bytes});
  return true;
}

bool framed_connection::may_answer() const {
  // Without TLS, or without a required unit, the config trusts whatever answers at the address.
  return tls_ == nullptr || registry_->required_unit().empty() || tls_->peer_has_unit(registry_->required_unit());
}

void framed_connection::refuse_answerer() {
  // Reading continues, so that the end of the connection is seen; bytes that arrive until then end up here again.
  stream_.configure_read({receive_header, frame_gate::header_bytes});
  // The connect request is failed once, although more bytes may arrive before the connection ends.
  if (std::exchange(answerer_refused_, true))
    return;
  cut();
  // The broker may have released this connection already; then no request is pending.
  fail_connect(parent(), {errc::not_owner, "the server's certificate does not name the organizational unit (OU) \"" +
                                               registry_->required_unit() + "\" (actors.tls)"});
}

void framed_connection::fail_connect(caf::io::abstract_broker* broker, const error& why) {
  if (auto* const known = known_to(broker); known && known->callback) {
    known->callback->deliver(to_caf(why));
    known->callback = caf::none;
  }
}

caf::io::basp::endpoint_context* framed_connection::known_to(caf::io::abstract_broker* broker) const {
  auto* const basp = dynamic_cast<caf::io::basp_broker*>(broker);
  if (basp == nullptr)
    return nullptr;
  const auto found = basp->ctx.find(hdl());
  return found == basp->ctx.end() ? nullptr : &found->second;
}

void framed_connection::detach_from(caf::io::abstract_broker* broker) {
  // Without a cause the broker says that the connection ended during the handshake.
  if (!who_ && tls_ != nullptr && !tls_->failure().empty())
    fail_connect(broker, {errc::unreachable, tls_->failure()});
  caf::io::scribe::detach_from(broker);
}

void framed_connection::forget_spawn_server() {
  auto* const broker = dynamic_cast<caf::io::basp_broker*>(parent());
  // A released connection has no broker.
  if (broker == nullptr)
    return;
  // Each entry is an actor that waits for an answer. Remote spawning is not used, so no entry is needed later.
  for (auto& [node, asker] : std::exchange(broker->spawn_servers, {}))
    caf::anon_send_exit(asker, caf::exit_reason::kill);
}

void framed_connection::remove_from_loop() {
  take_out_of_loop(stream_);
}

void framed_connection::graceful_shutdown() {
  // The broker's reference, which ends here, may be the last.
  const caf::io::scribe_ptr self(this);
  registry_->closing(this, stream_.fd());
  stream_.graceful_shutdown();
  detach(&stream_.backend(), false);
}

void framed_connection::flush() {
  // CAF puts no bound on the buffer of a peer that does not read.
  if (stream_.wr_buf().size() > unsent_messages_max * registry_->max_message_bytes()) {
    registry_->turned_away("the peer does not read");
    cut();
  }
  // Only bytes to clients count in the budget; what this process sends to nodes does not.
  if (!who_ || !registry_->outgoing())
    return stream_.flush(this);
  count_unsent(unsent_ + stream_.wr_buf().size() - counted_in_buffer_);
  stream_.flush(this);
  // The stream may have taken the buffer over, so its size is read again.
  counted_in_buffer_ = stream_.wr_buf().size();
  registry_->end_silent_readers();
}

void framed_connection::count_unsent(std::size_t bytes) {
  // With nothing unsent before, the peer's silence begins now.
  if (unsent_ == 0)
    taken_at_ = std::chrono::steady_clock::now();
  if (bytes > unsent_)
    registry_->outgoing()->unsent(bytes - unsent_);
  else
    registry_->outgoing()->sent(unsent_ - bytes);
  unsent_ = bytes;
}

std::optional<timestamp> framed_connection::silent_since() const noexcept {
  return unsent_ > 0 ? std::optional(taken_at_) : std::nullopt;
}

/// Called by the stream, and only where there is a budget. The broker is not notified.
void framed_connection::data_transferred(caf::execution_unit*, std::size_t, std::size_t remaining) {
  count_unsent(remaining);
  taken_at_ = std::chrono::steady_clock::now();
  // With everything before the buffer sent, the stream takes the buffer over next, and it is empty afterwards.
  const auto in_buffer = stream_.wr_buf().size();
  counted_in_buffer_ = remaining > in_buffer ? in_buffer : 0;
}

// -- acceptors --------------------------------------------------------------------------------------------------------

acceptor::accept_policy::accept_policy() : spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

bool acceptor::accept_policy::try_accept(int& accepted, int listener) {
  accepted = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (accepted >= 0)
    return true;
  // All other errors are about this connection only, or mean that none waits.
  if (errno != EMFILE && errno != ENFILE)
    return false;
  // The reserved descriptor is released for a moment, to accept the connection and close it.
  spare_.reset();
  if (const unique_descriptor ended(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)); !ended)
    ::poll(nullptr, 0, 10); // another thread took the descriptor: wait, so that the multiplexer does not spin
  spare_ = unique_descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return false;
}

acceptor::acceptor(caf::io::network::default_multiplexer& backend, int descriptor,
                   std::shared_ptr<listener_registry> registry, options how)
    : caf::io::doorman(new_handle<caf::io::accept_handle>()), registry_(std::move(registry)), options_(std::move(how)),
      port_(options_.port != 0 ? options_.port : bound_port(descriptor)), acceptor_(backend, descriptor) {}

bool acceptor::new_connection() {
  unique_descriptor accepted(acceptor_.accepted_socket());
  // A closed listener accepts nothing more; `accepted` is closed on return.
  if (detached())
    return false;
  std::optional<local_process> process;
  // `true` keeps the listener open; only this connection is rejected.
  if (options_.local && !judge_local(accepted.get(), process))
    return true;
  const auto who = registry_->come();
  // The limit of connections is reached; the registry has logged it.
  if (!who)
    return true;
  auto connection = peer_socket::to_client(accepted, options_.tls.get(), process ? process->handover : nullptr);
  // TLS could not be set up, so the place in the registry is given back.
  if (!connection) {
    registry_->leave(*who);
    return true;
  }
  auto scribe = caf::make_counted<framed_connection>(acceptor_.backend(), std::move(*connection), registry_, *who,
                                                     std::move(process));
  const auto handle = scribe->hdl();
  parent()->add_scribe(std::move(scribe));
  return caf::io::doorman::new_connection(&acceptor_.backend(), handle);
}

bool acceptor::judge_local(int accepted, std::optional<local_process>& process) {
  const auto who = peer_of(accepted);
  // The credentials come from the kernel; the mode of the socket file may have been changed.
  if (!who || (who->user != ::geteuid() && who->user != 0)) {
    registry_->turned_away("it comes from another user");
    return false;
  }
  // Without a record of connected processes, no watch is needed.
  if (!registry_->peers())
    return true;
  local_process out;
  out.number = who->process;
  // The process is watched while the connection is new, because its process id may be reused later.
  if (auto watch = process_watch::of_peer(accepted)) {
    out.watch = std::make_shared<process_watch>(std::move(*watch));
  } else if (watch.error().code == errc::unsupported) {
    // An old kernel cannot watch processes; the reason is reported when the client attaches.
    out.unwatched = watch.error().text;
  } else {
    // Without a watch the node would not notice that the client's process has ended.
    registry_->turned_away(watch.error().text);
    return false;
  }
  process = std::move(out);
  return true;
}

void acceptor::remove_from_loop() {
  take_out_of_loop(acceptor_);
}

void acceptor::graceful_shutdown() {
  // The broker's reference, which ends here, may be the last.
  const caf::io::doorman_ptr self(this);
  acceptor_.graceful_shutdown();
  detach(&acceptor_.backend(), false);
}

} // namespace troupe
