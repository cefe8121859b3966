#include "actors/support/listeners/listeners.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/first_bytes.hpp"
#include "actors/support/listeners/framed_connection.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/process_watch.hpp"
#include "base/tcp_connect.hpp"
#include "config/node_config.hpp"

#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman_actor_impl.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The port numbers under which the broker knows the Unix socket. Each new socket gets another number, because the old
/// one is closed a little later. A node that does not run as root cannot have TCP ports in this range.
constexpr std::uint16_t local_ports = 1000;

/// How long the dialer waits for the first bytes of a listener. Nodes send theirs at once.
constexpr auto first_bytes_limit = std::chrono::seconds(1);

bool is_path(const std::string& host) {
  return host.find('/') != std::string::npos;
}

/// A watch on the process of the node at the other end. Null where it cannot be watched, and for this process.
std::unique_ptr<watched_process> process_behind(const unique_descriptor& socket) {
  if (const auto who = peer_of(socket.get()); !who || who->process == ::getpid())
    return nullptr;
  auto watch = process_watch::of_peer(socket.get());
  return watch ? std::make_unique<process_watch>(std::move(*watch)) : nullptr;
}

} // namespace

struct listeners::state {
  std::shared_ptr<listener_registry> registry;
  std::uint32_t max_connections = 0;
  duration connect_time{};
  std::shared_ptr<tls_context> tls;
  /// Why TLS could not be set up although it is configured.
  std::optional<error> no_tls;
  std::shared_ptr<io::handed_memory> handed;
  /// The socket to be opened next; set before the dialer is asked to publish it.
  unique_descriptor listener;
  std::uint16_t local_port = 0;
  /// Set by `close`, in any thread: the dialer connects to nothing more.
  std::atomic<bool> closing{false};
};

/// The dialer: CAF's middleman actor with connections and listeners of this project.
class listeners::dialer_actor : public caf::io::middleman_actor_impl {
public:
  dialer_actor(caf::actor_config& config, caf::actor broker, std::shared_ptr<state> shared)
      : caf::io::middleman_actor_impl(config, std::move(broker)), state_(std::move(shared)) {}

protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host, std::uint16_t port) override {
    const error closed{errc::shutting_down, "this process closes its connections"};
    if (state_->closing)
      return to_caf(closed);
    auto connection = is_path(host) ? connect_to_path(host) : connect_to_host(host, port);
    if (!connection)
      return to_caf(connection.error().code == errc::cancelled ? closed : connection.error());
    return caf::io::scribe_ptr(
        caf::make_counted<framed_connection>(backend(), std::move(*connection), state_->registry));
  }

  caf::expected<caf::io::doorman_ptr> open(std::uint16_t, const char* address, bool) override {
    const bool local = is_path(address == nullptr ? "" : address);
    return caf::io::doorman_ptr(caf::make_counted<acceptor>(
        backend(), state_->listener.release(), state_->registry,
        acceptor::options{local, local ? state_->local_port : std::uint16_t{0}, local ? nullptr : state_->tls}));
  }

private:
  result<peer_socket> connect_to_path(const std::string& path) const {
    auto made = connect_local(path);
    if (!made)
      return tl::unexpected<error>(made.error());
    return *peer_socket::to_local_node(*made, state_->handed->connect(process_behind(*made)));
  }

  /// Finds out what answers there before CAF does, which would only say that it is no actor system.
  result<peer_socket> connect_to_host(const std::string& host, std::uint16_t port) const {
    if (state_->no_tls)
      return tl::unexpected<error>(*state_->no_tls);
    const auto cancelled = [this] { return state_->closing.load(); };
    const auto where = resolve_host(host, port, resolve_time, cancelled);
    if (!where)
      return tl::unexpected<error>(where.error());
    auto made = connect_to_any(*where, state_->connect_time, cancelled);
    if (!made)
      return tl::unexpected<error>(made.error());
    const bool encrypted = state_->tls != nullptr;
    const auto patience = std::min<duration>(first_bytes_limit, state_->connect_time / 4);
    if (!encrypted)
      if (auto checked = check_plain(*where, made->get(), patience, cancelled); !checked)
        return tl::unexpected<error>(checked.error());
    auto connection = peer_socket::to_node(*made, state_->tls.get());
    if (!connection)
      return fail(errc::internal, "OpenSSL cannot start a connection");
    if (encrypted)
      if (auto checked = check_first_bytes(connection->descriptor(), true, patience, cancelled); !checked) {
        ::close(connection->descriptor());
        return tl::unexpected<error>(checked.error());
      }
    return std::move(*connection);
  }

  static result<void> check_plain(const std::vector<socket_address>& where, int socket, duration patience,
                                  const std::function<bool()>& cancelled) {
    if (auto checked = check_first_bytes(socket, false, patience, cancelled); !checked || has_bytes(socket))
      return checked;
    // A node may only be slow, so it has the rest of the time.
    return check_silent_listener(where, patience, cancelled);
  }

  static bool has_bytes(int socket) {
    char first = 0;
    return ::recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

  caf::io::network::default_multiplexer& backend() {
    return dynamic_cast<caf::io::network::default_multiplexer&>(system().middleman().backend());
  }

  std::shared_ptr<state> state_;
};

listener_options listener_options_of(const config::actors_config& options) {
  listener_options out;
  out.max_connections = options.max_connections;
  out.handshake_time = options.handshake_time;
  out.max_message_bytes = options.max_message_bytes;
  if (const auto& tls = options.tls; tls.certificate && tls.key && tls.ca)
    out.tls = tls_identity{*tls.certificate, *tls.key, *tls.ca};
  return out;
}

result<std::unique_ptr<listeners>> listeners::make(caf::actor_system& system, const listener_options& options) {
  std::unique_ptr<listeners> out(new listeners(system));
  const auto shared = std::make_shared<state>();
  shared->registry =
      listener_registry::make(system, {options.max_connections, options.handshake_time, options.max_message_bytes,
                                       options.roles, options.outgoing, options.required_unit, options.peers});
  shared->max_connections = options.max_connections;
  shared->connect_time = options.connect_time;
  shared->handed = out->handed_;
  if (options.tls) {
    if (auto loaded = tls_context::load(*options.tls))
      shared->tls = std::move(*loaded);
    else
      shared->no_tls = loaded.error();
  }
  const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  caf::actor_config config{&system.middleman().backend()};
  config.flags |= caf::abstract_actor::is_hidden_flag;
  const auto made = spawn_with_thread<dialer_actor>(system, config, thread_name("troupe-dialer"),
                                                    "the thread that opens connections", broker, shared);
  if (!made)
    return tl::unexpected<error>(made.error());
  out->dialer_ = caf::actor_cast<caf::io::middleman_actor>(*made);
  const auto ended = std::make_shared<std::promise<void>>();
  out->dialer_ended_ = ended->get_future();
  caf::actor_cast<caf::abstract_actor*>(out->dialer_)->attach_functor([ended] { ended->set_value(); });
  out->state_ = shared;
  return out;
}

listeners::~listeners() {
  if (!dialer_)
    return;
  close();
  state_->registry->close();
  local_to_ = nullptr;
  // The callers of a dialer that ends later, with the actor system, may get no answer: its scheduler has stopped by
  // then.
  dialer_ended_.wait();
}

void listeners::close() {
  state_->closing = true;
  // It ignores all other exit reasons, as CAF's own actor does.
  caf::anon_send_exit(dialer_, caf::exit_reason::kill);
}

namespace {

result<std::uint16_t> publish(caf::actor_system& system, const caf::io::middleman_actor& dialer,
                              const reception_actor& to, const std::string& address) {
  result<std::uint16_t> out = fail(errc::internal, "the actor system did not open the listener");
  caf::scoped_actor self{system};
  self->request(dialer, caf::infinite, caf::publish_atom_v, std::uint16_t{0},
                caf::actor_cast<caf::strong_actor_ptr>(to), system.message_types<reception_actor>(), address, true)
      .receive([&](std::uint16_t port) { out = port; },
               [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); });
  return out;
}

} // namespace

result<void> listeners::open_local(const reception_actor& to, const std::filesystem::path& path) {
  auto made = local_listener::open("actors.socket", path);
  if (!made)
    return tl::unexpected<error>(made.error());
  local_to_ = to;
  last_local_port_ = static_cast<std::uint16_t>(last_local_port_ % local_ports + 1);
  state_->listener = made->take();
  state_->local_port = last_local_port_;
  if (auto opened = publish(system_, dialer_, to, "/" + path.string()); !opened) {
    // Without a listener, the file is removed together with `made`, so that the check of the socket finds it missing.
    state_->listener.reset();
    return tl::unexpected<error>(opened.error());
  }
  local_port_ = last_local_port_;
  // One descriptor for the connection, and one for the process at its other end.
  set_aside(2);
  const std::lock_guard guard(mutex_);
  local_ = std::move(*made);
  return {};
}

void listeners::set_aside(std::uint32_t for_each) {
  descriptors_ = {};
  const auto wanted = for_each * state_->max_connections;
  const auto limit = raise_descriptor_limit();
  const auto open = open_descriptors() + set_aside_descriptors();
  // Half of the available descriptors at most, because other parts have connections as well.
  descriptors_ = descriptors_set_aside(limit ? connections_within(limit->now, open, 0, 2 * wanted) / 2 : wanted);
}

bool listeners::local_is_there() const {
  const std::lock_guard guard(mutex_);
  return !local_ || local_->file().is_there();
}

result<void> listeners::reopen_local() {
  if (!local_)
    return {};
  const auto before = local_port_;
  // The path is copied, because it belongs to the listener that is replaced.
  if (auto opened = open_local(local_to_, std::filesystem::path(local_->file().path())); !opened)
    return opened;
  caf::anon_send(dialer_, caf::close_atom_v, before);
  return {};
}

result<std::uint16_t> listeners::open_tcp(const reception_actor& to, bound_socket where) {
  if (state_->no_tls)
    return tl::unexpected<error>(*state_->no_tls);
  if (auto listens = where.listen(); !listens)
    return tl::unexpected<error>(listens.error());
  state_->listener = unique_descriptor(where.release());
  auto port = publish(system_, dialer_, to, {});
  if (port && !local_)
    set_aside(1);
  return port;
}

} // namespace troupe
