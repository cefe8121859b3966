#include "events/publisher.hpp"

#include "base/accepted_socket.hpp"
#include "base/descriptors.hpp"
#include "base/event_signal.hpp"
#include "base/local_socket.hpp"
#include "base/log.hpp"
#include "base/log_limit.hpp"
#include "base/threads.hpp"
#include "base/unique_descriptor.hpp"
#include "base/zmq_socket.hpp"
#include "events/subscriber_connections.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.h>

namespace troupe::events {

namespace {

/// ZeroMQ's own threads, and this one.
constexpr std::size_t publisher_threads = 3;
constexpr std::uint32_t publisher_descriptors = 24;

/// Limits of what a peer may send, of peers that wait to be accepted, and of connections that do not finish their
/// handshake.
constexpr std::int64_t request_bytes_max = 1024;
constexpr int backlog = 64;
constexpr int handshake_milliseconds = 10000;
/// A peer that does not answer for so long is disconnected, and what waits for it is dropped.
constexpr int ping_milliseconds = 10000;
constexpr int silence_milliseconds = 30000;

/// Batches that wait for one requester; more stay with the rules.
constexpr int replies_waiting = 64;
/// Replies, and requests, per turn, before new events have their turn.
constexpr int replies_per_turn = 32;
constexpr int requests_per_turn = 64;

/// Limits of each socket. What ZeroMQ keeps of a connection that is closed for its bytes is released; a subscriber
/// connects again.
constexpr std::uint32_t connections_max = 128;
constexpr std::uint64_t bytes_of_connection_max = 4U << 20U;
constexpr auto look_interval = std::chrono::milliseconds(250);

constexpr auto slow_interval = std::chrono::minutes(1);
/// How long the publisher's thread may take to bind its endpoints again.
constexpr auto reopen_limit = std::chrono::seconds(10);

/// The number with which a replay ends: -1.
constexpr std::uint64_t end_of_replay = std::numeric_limits<std::uint64_t>::max();

tl::unexpected<error> zmq_failure(const std::string& what) {
  return zmq::failure(what, "set it to another port, or to port 0 for any free one");
}

std::array<char, 8> big_endian(std::uint64_t x) {
  std::array<char, 8> out{};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<char>(x >> (8 * (out.size() - 1 - i)));
  return out;
}

std::optional<std::uint64_t> number_in(std::string_view bytes) {
  if (bytes.size() != sizeof(std::uint64_t))
    return std::nullopt;
  std::uint64_t out = 0;
  for (const char c : bytes)
    out = out << 8U | static_cast<unsigned char>(c);
  return out;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Where a socket is bound. The file is that of an `ipc://` endpoint, and else empty.
struct bound_place {
  std::string endpoint;
  socket_file file;
};

result<bound_place> bind_to(void* socket, const std::string& endpoint, const char* key) {
  const auto at = endpoint.starts_with("tcp://localhost:") ? "tcp://127.0.0.1:" + endpoint.substr(16) : endpoint;
  const auto wanted = at.ends_with(":0") ? at.substr(0, at.size() - 1) + "*" : at;
  if (zmq_bind(socket, wanted.c_str()) != 0)
    return zmq_failure("cannot listen on " + endpoint + " (" + key + ")");
  bound_place out;
  constexpr std::string_view ipc = "ipc://";
  if (at.starts_with(ipc)) {
    const auto path = at.substr(ipc.size());
    struct stat found {};
    if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::lstat(path.c_str(), &found) != 0)
      return fail(errc::io_error, "cannot make the socket " + endpoint + " private (" + key + ")");
    out.file = socket_file(path, found.st_dev, found.st_ino);
  }
  std::array<char, 256> bound{};
  auto size = bound.size();
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0)
    return zmq_failure("cannot determine the port of " + endpoint);
  out.endpoint = bound.data();
  return out;
}

bool is_lost(const socket_file& x) {
  return !x.path().empty() && !x.is_there();
}

bool prepare(void* socket, const std::string& endpoint, int waiting) {
  return socket != nullptr && zmq::set_option(socket, ZMQ_LINGER, 0) && zmq::set_option(socket, ZMQ_SNDHWM, waiting) &&
         zmq::set_option(socket, ZMQ_RCVHWM, requests_per_turn) &&
         zmq::set_option(socket, ZMQ_MAXMSGSIZE, request_bytes_max) && zmq::set_option(socket, ZMQ_BACKLOG, backlog) &&
         zmq::set_option(socket, ZMQ_HANDSHAKE_IVL, handshake_milliseconds) &&
         zmq::set_option(socket, ZMQ_HEARTBEAT_IVL, ping_milliseconds) &&
         zmq::set_option(socket, ZMQ_HEARTBEAT_TIMEOUT, silence_milliseconds) &&
         (endpoint.find('[') == std::string::npos || zmq::set_option(socket, ZMQ_IPV6, 1));
}

/// Watches the connections of a socket, and closes those that may not stay.
class connection_watch {
public:
  bool open(void* context, void* socket, const char* address) {
    return monitor_.open(context, socket, address,
                         ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | handshake_failed |
                             ZMQ_EVENT_DISCONNECTED);
  }
  void close() noexcept { monitor_.close(); }

  void* socket() const noexcept { return monitor_.socket(); }
  /// That have finished their handshake.
  std::uint64_t connected() const noexcept { return connected_; }
  /// When to look again although nothing is reported.
  std::optional<timestamp> next_look() const { return rules_.size() > 0 ? std::optional(next_look_) : std::nullopt; }

  void look(timestamp now, const std::string& endpoint, counters& counts) {
    read_reports();
    for (const auto& next : rules_.unknown()) {
      const auto held = held_socket::hold(next.descriptor);
      if (!held)
        continue; // no descriptor is left for this; at the next look
      // If the connection had ended before, the held socket is another one.
      read_reports();
      if (!rules_.identify(next, held->cookie()))
        refuse(*held, now, counts, endpoint,
               "there are " + std::to_string(rules_.most()) + " connections, which is the limit");
    }
    if (now < next_look_)
      return;
    next_look_ = now + look_interval;
    for (const auto& x : rules_.staying()) {
      const auto held = held_socket::hold(x.descriptor);
      if (held && held->cookie() == x.cookie && !rules_.may_stay(x, received_bytes(held->descriptor())))
        refuse(*held, now, counts, endpoint,
               "it has sent more than " + std::to_string(rules_.bytes_max() >> 20U) +
                   " MiB, and subscribers send little");
    }
  }

private:
  static constexpr int handshake_failed =
      ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

  void read_reports() {
    while (const auto report = monitor_.next()) {
      const auto [what, descriptor] = *report;
      if (what == ZMQ_EVENT_ACCEPTED)
        rules_.begun(descriptor);
      else if (what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
        ++connected_;
      else if ((what & handshake_failed) != 0)
        failed_ = true;
      else if (what == ZMQ_EVENT_DISCONNECTED) {
        rules_.ended(descriptor);
        // A failed handshake names no connection; it is that of the next one that ends.
        if (!std::exchange(failed_, false) && connected_ > 0)
          --connected_;
      }
    }
  }

  void refuse(const held_socket& socket, timestamp now, counters& counts, const std::string& endpoint,
              const std::string& why) {
    counts.refused_connections.fetch_add(1, std::memory_order_relaxed);
    socket.shut_down();
    if (complaints_.tell(now))
      log::get("events")->warn("connection to {} refused and closed: {}", endpoint, why);
  }

  zmq::monitor monitor_;
  subscriber_connections rules_{connections_max, bytes_of_connection_max};
  log_limit complaints_{1, slow_interval};
  timestamp next_look_ = timestamp::min();
  std::uint64_t connected_ = 0;
  bool failed_ = false;
};

} // namespace

struct publisher::implementation {
  explicit implementation(const publisher_options& how)
      : options(how), input(std::make_shared<feed>()), rules(options.rules) {}

  publisher_options options;
  std::shared_ptr<feed> input;
  hub rules;
  zmq::context_handle context;
  zmq::socket_handle out;
  zmq::socket_handle replay;
  connection_watch subscribers;
  connection_watch requesters;
  unique_descriptor wake;
  /// Guards the files of the two places, and the members up to `ended`.
  mutable std::mutex gate;
  bound_place place;
  bound_place replay_place;
  std::optional<std::promise<result<void>>> reopening;
  bool ended = false;
  log_limit slow{1, slow_interval};
  /// The last member, so that it ends first.
  std::jthread thread;

  counters& counts() const { return *options.rules.counts; }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      turn();
      if (!wait())
        break;
    }
    turn();
    const std::lock_guard held(gate);
    ended = true;
  }

  void turn() {
    clear_event(wake.get());
    reopen_lost();
    const auto now = std::chrono::steady_clock::now();
    rules.take(input->take(), now, wall_clock());
    subscribers.look(now, place.endpoint, counts());
    counts().subscribers.store(subscribers.connected(), std::memory_order_relaxed);
    if (replay)
      requesters.look(now, replay_place.endpoint, counts());
    while (skip_subscription()) {
    }
    for (int i = 0; replay && i < requests_per_turn && take_request(now); ++i) {
    }
    publish(now);
    send_replies(now);
  }

  void reopen_lost() {
    const std::lock_guard held(gate);
    if (!reopening)
      return;
    auto outcome = reopen(out.get(), place, "events.endpoint");
    if (outcome && replay)
      outcome = reopen(replay.get(), replay_place, "events.replay_endpoint");
    std::exchange(reopening, std::nullopt)->set_value(std::move(outcome));
  }

  static result<void> reopen(void* socket, bound_place& at, const char* key) {
    if (!is_lost(at.file))
      return {};
    // ZeroMQ would remove what is there.
    if (struct stat other{}; ::lstat(at.file.path().c_str(), &other) == 0)
      return fail(errc::busy, "something else is at " + at.file.path().string() + " (" + key + "): move it away");
    // It listens at the removed file as well until it ends: `zmq_unbind` would end the connections that came by it.
    auto bound = bind_to(socket, at.endpoint, key);
    if (!bound)
      return tl::unexpected<error>(bound.error());
    at.file = std::move(bound->file);
    return {};
  }

  /// Until there is something to do. False if the sockets failed.
  bool wait() {
    std::array<zmq_pollitem_t, 5> items{{{out.get(), 0, ZMQ_POLLIN, 0},
                                         {subscribers.socket(), 0, ZMQ_POLLIN, 0},
                                         {nullptr, wake.get(), ZMQ_POLLIN, 0},
                                         {replay.get(), 0, ZMQ_POLLIN, 0},
                                         {requesters.socket(), 0, ZMQ_POLLIN, 0}}};
    const auto now = std::chrono::steady_clock::now();
    auto due = rules.next_due();
    for (const auto* watch : {&subscribers, &requesters})
      if (const auto next = watch->next_look())
        due = std::min(due.value_or(timestamp::max()), *next);
    if (rules.replays() > 0)
      due = std::min(due.value_or(timestamp::max()), now + hub::retry);
    long limit = -1;
    if (due)
      limit = std::max<long>(0, std::chrono::ceil<std::chrono::milliseconds>(*due - now).count());
    const int count = replay ? 5 : 3;
    if (zmq_poll(items.data(), count, limit) >= 0 || zmq_errno() == EINTR)
      return true;
    log::get("events")->error("events are not published any more: the sockets failed ({})", zmq_strerror(zmq_errno()));
    return false;
  }

  bool send(void* socket, std::string_view frame, int flags) {
    int sent = 0;
    do
      sent = zmq_send(socket, frame.data(), frame.size(), flags | ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
  }

  void publish(timestamp now) {
    for (const auto& x : rules.flush(now, wall_clock())) {
      // With ZMQ_XPUB_NODROP, nothing is sent while one of the subscribers has no room. That is counted, and then the
      // others get the batch.
      if (!send(out.get(), x.topic, ZMQ_SNDMORE)) {
        counts().dropped_batches.fetch_add(1, std::memory_order_relaxed);
        if (slow.tell(now))
          log::get("events")->warn("events dropped: at least one subscriber of {} reads too slowly ({} batches wait "
                                   "for it); it misses batch {} and can request it",
                                   x.topic, options.queue_batches, x.batch.number);
        zmq::set_option(out.get(), ZMQ_XPUB_NODROP, 0);
        const bool begun = send(out.get(), x.topic, ZMQ_SNDMORE);
        zmq::set_option(out.get(), ZMQ_XPUB_NODROP, 1);
        if (!begun)
          continue;
      }
      const auto number = big_endian(x.batch.number);
      send(out.get(), {number.data(), number.size()}, ZMQ_SNDMORE);
      send(out.get(), *x.batch.text, 0);
    }
  }

  /// Subscriptions arrive as messages; there is nothing to do about them.
  bool skip_subscription() {
    zmq::frame x;
    if (!x.receive(out.get()))
      return false;
    zmq::drop_rest(out.get(), x);
    return true;
  }

  /// False if there is none. A request is the requester's name, an empty frame, the first number, and, if only one
  /// stream is meant, the beginning of its topic.
  bool take_request(timestamp now) {
    std::vector<std::string> frames;
    zmq::frame x;
    if (!x.receive(replay.get()))
      return false;
    frames.push_back(x.text());
    for (bool more = x.more(); more;) {
      if (!x.receive(replay.get()))
        break;
      if (frames.size() < 8)
        frames.push_back(x.text());
      more = x.more();
    }
    const auto start = frames.size() == 3 || frames.size() == 4 ? number_in(frames[2]) : std::nullopt;
    if (!start || !frames[1].empty()) {
      counts().refused_replays.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    const auto topic = frames.size() == 4 ? std::optional<std::string_view>(frames[3]) : std::nullopt;
    rules.request(std::move(frames[0]), *start, topic, now);
    return true;
  }

  void send_replies(timestamp now) {
    for (int i = 0; i < replies_per_turn; ++i) {
      const auto x = rules.next_reply(now, wall_clock());
      if (!x)
        break;
      const auto number = big_endian(x->end ? end_of_replay : x->number);
      if (!send(replay.get(), x->requester, ZMQ_SNDMORE)) {
        if (zmq_errno() == EAGAIN)
          rules.blocked(now);
        else
          rules.gone();
        continue;
      }
      send(replay.get(), {}, ZMQ_SNDMORE);
      send(replay.get(), x->topic, ZMQ_SNDMORE);
      send(replay.get(), {number.data(), number.size()}, ZMQ_SNDMORE);
      send(replay.get(), x->end ? std::string_view{} : std::string_view(*x->text), 0);
      rules.sent(now);
    }
    // A snapshot may have made batches that others get, too.
    publish(now);
  }
};

publisher::publisher(std::unique_ptr<implementation> x) : x_(std::move(x)) {}

publisher::~publisher() {
  stop();
}

result<std::unique_ptr<publisher>> publisher::open(const publisher_options& options) {
  if (auto room = check_threads(publisher_threads, "ZeroMQ (events.endpoint)"); !room)
    return tl::unexpected<error>(room.error());
  if (auto room = check_descriptors(publisher_descriptors, "ZeroMQ (events.endpoint)"); !room)
    return tl::unexpected<error>(room.error());
  auto x = std::make_unique<implementation>(options);
  x->context.reset(zmq_ctx_new());
  if (!x->context)
    return zmq_failure("cannot use ZeroMQ");
  x->out.reset(::zmq_socket(x->context.get(), ZMQ_XPUB));
  if (!prepare(x->out.get(), options.endpoint, static_cast<int>(options.queue_batches)) ||
      !zmq::set_option(x->out.get(), ZMQ_XPUB_NODROP, 1))
    return zmq_failure("cannot create the socket for events");
  if (!x->subscribers.open(x->context.get(), x->out.get(), "inproc://troupe-events-subscribers"))
    return zmq_failure("cannot watch the subscribers of events");
  auto bound = bind_to(x->out.get(), options.endpoint, "events.endpoint");
  if (!bound)
    return tl::unexpected<error>(bound.error());
  x->place = std::move(*bound);
  if (!options.replay_endpoint.empty()) {
    x->replay.reset(::zmq_socket(x->context.get(), ZMQ_ROUTER));
    if (!prepare(x->replay.get(), options.replay_endpoint, replies_waiting) ||
        !zmq::set_option(x->replay.get(), ZMQ_ROUTER_MANDATORY, 1))
      return zmq_failure("cannot create the socket for missed events");
    if (!x->requesters.open(x->context.get(), x->replay.get(), "inproc://troupe-events-requesters"))
      return zmq_failure("cannot watch the requests for missed events");
    bound = bind_to(x->replay.get(), options.replay_endpoint, "events.replay_endpoint");
    if (!bound)
      return tl::unexpected<error>(bound.error());
    x->replay_place = std::move(*bound);
  }
  x->wake = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!x->wake)
    return fail(errc::io_error, "cannot create an eventfd");
  x->input->wake_with([wake = x->wake.get()] { signal_event(wake); });
  return std::unique_ptr<publisher>(new publisher(std::move(x)));
}

const std::shared_ptr<feed>& publisher::input() const noexcept {
  return x_->input;
}

const std::shared_ptr<counters>& publisher::counts() const noexcept {
  return x_->options.rules.counts;
}

const std::string& publisher::endpoint() const noexcept {
  return x_->place.endpoint;
}

const std::string& publisher::replay_endpoint() const noexcept {
  return x_->replay_place.endpoint;
}

void publisher::serve() {
  x_->thread =
      std::jthread(named(thread_name("troupe-events"), [x = x_.get()](const std::stop_token& stop) { x->run(stop); }));
}

bool publisher::sockets_are_there() const {
  // Copies, since the file system may hang, and the publisher's thread must not wait for it.
  std::unique_lock held(x_->gate);
  const auto file = x_->place.file;
  const auto replay_file = x_->replay_place.file;
  held.unlock();
  return !is_lost(file) && !is_lost(replay_file);
}

result<void> publisher::reopen_sockets() {
  std::future<result<void>> outcome;
  {
    const std::lock_guard held(x_->gate);
    if (x_->ended)
      return fail(errc::shutting_down, "events are not published any more");
    outcome = x_->reopening.emplace().get_future();
  }
  signal_event(x_->wake.get());
  if (outcome.wait_for(reopen_limit) != std::future_status::ready)
    return fail(errc::timeout, "the thread that publishes events does not answer");
  return outcome.get();
}

void publisher::stop() {
  if (x_->thread.joinable()) {
    x_->thread.request_stop();
    signal_event(x_->wake.get());
    x_->thread.join();
  }
  x_->input->wake_with(nullptr);
  x_->subscribers.close();
  x_->requesters.close();
  x_->out.reset();
  x_->replay.reset();
}

} // namespace troupe::events
