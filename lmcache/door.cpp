#include "lmcache/door.hpp"

#include "base/event_signal.hpp"
#include "base/log.hpp"
#include "base/threads.hpp"
#include "base/unique_descriptor.hpp"
#include "lmcache/connection_table.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <mutex>
#include <stop_token>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>
#include <zmq.h>

namespace troupe::lmcache {

namespace {

/// No operation has more payloads than seven.
constexpr std::size_t frames_max = 16;

/// Some ten million tokens.
constexpr std::int64_t message_bytes_max = std::int64_t{64} << 20U;

/// Messages that are taken before answers are sent again.
constexpr int messages_per_turn = 64;

/// Answers that wait for one client; more are lost, and its requests with them.
constexpr int answers_waiting_max = 100000;

/// A client that sends rubbish writes a line every so often, however much it sends.
constexpr auto complaint_interval = std::chrono::seconds(1);

constexpr const char* monitor_address = "inproc://troupe-lmcache-monitor";

/// Where ZeroMQ asks whether a connection is to be admitted, of sockets that have a domain (ZeroMQ's RFC 27); and what
/// a message of one that was admitted says of it.
constexpr const char* admission_address = "inproc://zeromq.zap.01";
constexpr const char* admission_domain = "lmcache";
constexpr const char* admitted_as = "User-Id";

struct end_context {
  void operator()(void* x) const noexcept { zmq_ctx_term(x); }
};
struct close_socket {
  void operator()(void* x) const noexcept { zmq_close(x); }
};
using zmq_context = std::unique_ptr<void, end_context>;
using socket_handle = std::unique_ptr<void, close_socket>;

tl::unexpected<error> zmq_error(const std::string& what) {
  const auto code = zmq_errno();
  const auto kind = code == EADDRINUSE                        ? errc::busy
                    : code == ENODEV || code == EADDRNOTAVAIL ? errc::invalid_argument
                                                              : errc::io_error;
  return fail(kind, what + ": " + zmq_strerror(code) +
                        (kind == errc::busy ? "; set lmcache.port to another one, or to 0 for any" : ""));
}

template <class T>
bool set_option(void* socket, int option, T value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/// One frame of a message.
class zmq_frame {
public:
  zmq_frame() { zmq_msg_init(&x_); }
  zmq_frame(const zmq_frame&) = delete;
  zmq_frame& operator=(const zmq_frame&) = delete;
  ~zmq_frame() { zmq_msg_close(&x_); }

  /// False if there is none now.
  bool receive(void* socket) {
    for (;;) {
      if (zmq_msg_recv(&x_, socket, ZMQ_DONTWAIT) >= 0)
        return true;
      if (zmq_errno() != EINTR)
        return false;
    }
  }
  bool more() const { return zmq_msg_more(&x_) != 0; }
  wire::byte_view bytes() { return {static_cast<const std::byte*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  std::string text() { return {static_cast<const char*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  /// Of the connection that it came by.
  int descriptor() { return zmq_msg_get(&x_, ZMQ_SRCFD); }
  /// When that was admitted; nothing if it was not.
  std::optional<connection_moment> admitted() {
    const char* const text = zmq_msg_gets(&x_, admitted_as);
    if (text == nullptr)
      return std::nullopt;
    const auto* const end = text + std::strlen(text);
    connection_moment out = 0;
    const auto [at, code] = std::from_chars(text, end, out);
    return code == std::errc{} && at == end ? std::optional(out) : std::nullopt;
  }

private:
  zmq_msg_t x_{};
};

struct outgoing {
  client_number client = 0;
  std::string number;
  std::string operation_frame;
  std::optional<std::string> frame;
};

} // namespace

struct door::implementation {
  door_options options;
  zmq_context context;
  socket_handle router;
  socket_handle monitor;
  socket_handle admission;
  unique_descriptor wake;
  std::uint16_t port = 0;
  listener to;

  connection_table connections;
  timestamp next_complaint = timestamp::min();

  std::mutex mutex;
  std::deque<outgoing> answers;

  std::atomic<std::uint64_t> waiting{0};

  /// Last: ends first.
  std::jthread thread;

  void ring() const { signal_event(wake.get()); }

  void run(const std::stop_token& stop) {
    std::array<zmq_pollitem_t, 4> items{{{router.get(), 0, ZMQ_POLLIN, 0},
                                         {monitor.get(), 0, ZMQ_POLLIN, 0},
                                         {admission.get(), 0, ZMQ_POLLIN, 0},
                                         {nullptr, wake.get(), ZMQ_POLLIN, 0}}};
    while (!stop.stop_requested()) {
      if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0 && zmq_errno() != EINTR) {
        log::get("lmcache")->error("the socket of LMCache's clients has failed: {}", zmq_strerror(zmq_errno()));
        return;
      }
      clear_event(wake.get());
      send_answers();
      look_at_monitor();
      while (admit()) {
      }
      for (int i = 0; i < messages_per_turn && take_message(); ++i) {
      }
    }
    send_answers();
  }

  void send_answers() {
    std::deque<outgoing> all;
    {
      const std::lock_guard guard(mutex);
      all.swap(answers);
    }
    for (const auto& x : all) {
      const auto* const name = connections.name_of(x.client);
      if (name == nullptr)
        continue;
      const auto send = [&](const std::string& frame, int flags) {
        return zmq_send(router.get(), frame.data(), frame.size(), flags | ZMQ_DONTWAIT) >= 0;
      };
      // A socket that routes takes a message whole, or drops it whole.
      if (!send(*name, ZMQ_SNDMORE) || !send(x.number, ZMQ_SNDMORE) ||
          !send(x.operation_frame, x.frame ? ZMQ_SNDMORE : 0) || (x.frame && !send(*x.frame, 0)))
        log::get("lmcache")->warn("an answer could not be sent: {}", zmq_strerror(zmq_errno()));
    }
  }

  /// Connections that have begun, and that have ended. When one asks to be admitted, or a message of it is there, it
  /// has been told of here that it has begun: ZeroMQ's only thread has said so before.
  void look_at_monitor() {
    for (;;) {
      zmq_frame event;
      if (!event.receive(monitor.get()))
        return;
      const auto bytes = event.bytes();
      std::uint16_t what = 0;
      std::uint32_t value = 0;
      if (bytes.size() >= sizeof what + sizeof value) {
        std::memcpy(&what, bytes.data(), sizeof what);
        std::memcpy(&value, bytes.data() + sizeof what, sizeof value);
      }
      for (bool more = event.more(); more;) {
        zmq_frame rest;
        more = rest.receive(monitor.get()) && rest.more();
      }
      const auto descriptor = static_cast<int>(value);
      if (const auto gone = what == ZMQ_EVENT_ACCEPTED       ? connections.begun(descriptor)
                            : what == ZMQ_EVENT_DISCONNECTED ? connections.ended(descriptor)
                                                             : std::nullopt) {
        options.counts->clients.store(connections.clients(), std::memory_order_relaxed);
        to.gone(*gone);
      }
    }
  }

  /// Everybody is: this is to know which connection a message is from. False if nobody asks.
  bool admit() {
    // A version, a number, the domain, where it is from, its name, the mechanism; credentials there are none.
    std::array<std::string, 2> said;
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      zmq_frame frame;
      if (!frame.receive(admission.get()))
        return false;
      if (count < said.size())
        said[count] = frame.text();
      more = frame.more();
    }
    look_at_monitor();
    const auto moment = std::to_string(connections.now());
    const auto send = [&](std::string_view frame, int flags) {
      return zmq_send(admission.get(), frame.data(), frame.size(), flags | ZMQ_DONTWAIT) >= 0;
    };
    if (!send(said[0], ZMQ_SNDMORE) || !send(said[1], ZMQ_SNDMORE) || !send("200", ZMQ_SNDMORE) ||
        !send("", ZMQ_SNDMORE) || !send(moment, ZMQ_SNDMORE) || !send("", 0))
      log::get("lmcache")->warn("a connection could not be admitted: {}", zmq_strerror(zmq_errno()));
    return true;
  }

  /// Null if the connection that the message is from has ended.
  connection* connection_of(zmq_frame& message, std::string name) {
    const auto admitted = message.admitted();
    const auto descriptor = message.descriptor();
    auto* out = admitted ? connections.find(descriptor, *admitted) : nullptr;
    if (out == nullptr || out->number != 0)
      return out;
    auto socket = find_peer(descriptor);
    // Had it ended meanwhile, that would have been another one's.
    look_at_monitor();
    out = connections.find(descriptor, *admitted);
    if (out == nullptr)
      return nullptr;
    connections.enroll(*out, std::move(name));
    options.counts->clients.store(connections.clients(), std::memory_order_relaxed);
    if (socket && socket->user != 0 && socket->user != ::geteuid()) {
      log::get("lmcache")->warn("client {} is refused: it is of user {}, and this node serves its own", out->number,
                                socket->user);
      socket.reset();
    } else if (!socket) {
      log::get("lmcache")->warn("client {} is refused: /proc does not say whose it is", out->number);
    }
    out->socket = socket;
    return out;
  }

  /// False if there is none.
  bool take_message() {
    zmq_frame name;
    if (!name.receive(router.get()))
      return false;
    std::array<zmq_frame, frames_max> frames;
    std::array<wire::byte_view, frames_max> bytes;
    std::size_t count = 0;
    bool too_many = false;
    for (bool more = name.more(); more;) {
      if (count < frames_max) {
        if (!frames[count].receive(router.get()))
          return false;
        bytes[count] = frames[count].bytes();
        more = frames[count].more();
        ++count;
        continue;
      }
      zmq_frame rest;
      too_many = true;
      more = rest.receive(router.get()) && rest.more();
    }
    if (count == 0)
      return true;
    auto* const found = connection_of(frames[0], name.text());
    if (found == nullptr)
      return true;
    auto& from = *found;
    auto message = read_message(std::span(bytes).first(count), options.chunk_tokens);
    if (!message) {
      complain(from, "no request at all");
      return true;
    }
    message->client = from.number;
    if (too_many || message->malformed) {
      message->malformed = true;
      complain(from, wire::to_string(message->what));
    }
    if (message->what == wire::operation::register_context && !message->malformed) {
      if (!std::exchange(from.process_known, true))
        from.process = from.socket ? process_with(*from.socket) : 0;
      message->process = from.process;
    }
    if (waiting.fetch_add(1, std::memory_order_relaxed) >= options.waiting_max || !from.socket) {
      options.counts->refused.fetch_add(1, std::memory_order_relaxed);
      post(*message, wire::refusal(message->what));
      send_answers();
      return true;
    }
    to.asked(std::move(*message));
    return true;
  }

  void post(const incoming& x, std::optional<std::string> frame) {
    waiting.fetch_sub(1, std::memory_order_relaxed);
    const std::lock_guard guard(mutex);
    answers.push_back({x.client, x.number, x.operation_frame, std::move(frame)});
  }

  void complain(const connection& about, std::string_view what) {
    const auto so_far = options.counts->malformed.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_complaint)
      return;
    next_complaint = now + complaint_interval;
    log::get("lmcache")->warn("client {} has sent what is no request of LMCache 0.5.6 ({}); {} so far", about.number,
                              what, so_far);
  }
};

door::door(std::unique_ptr<implementation> x) : x_(std::move(x)) {}

door::~door() {
  stop();
}

result<std::unique_ptr<door>> door::open(const door_options& options) {
  auto x = std::make_unique<implementation>();
  x->options = options;
  const auto place = options.host + ":" + std::to_string(options.port);
  // ZeroMQ ends the process where it gets too few. Its two, and the one that serves.
  constexpr std::size_t threads = 3;
  constexpr std::size_t descriptors = 24;
  if (auto room = check_threads(threads, "ZeroMQ (lmcache.enabled)"); !room)
    return tl::unexpected<error>(room.error());
  if (auto room = check_descriptors(descriptors, "ZeroMQ (lmcache.enabled)"); !room)
    return tl::unexpected<error>(room.error());
  x->context.reset(zmq_ctx_new());
  if (!x->context)
    return zmq_error("cannot use ZeroMQ");
  x->router.reset(::zmq_socket(x->context.get(), ZMQ_ROUTER));
  if (!x->router || !set_option(x->router.get(), ZMQ_LINGER, 0) ||
      !set_option(x->router.get(), ZMQ_MAXMSGSIZE, message_bytes_max) ||
      !set_option(x->router.get(), ZMQ_SNDHWM, answers_waiting_max) ||
      zmq_setsockopt(x->router.get(), ZMQ_ZAP_DOMAIN, admission_domain, std::strlen(admission_domain)) != 0 ||
      (options.host.find(':') != std::string::npos && !set_option(x->router.get(), ZMQ_IPV6, 1)))
    return zmq_error("cannot make a socket for LMCache's clients");
  // As many events as there are: ZeroMQ's thread would wait for room, and this one may wait for it.
  if (zmq_socket_monitor(x->router.get(), monitor_address, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0)
    return zmq_error("cannot watch the connections of LMCache's clients");
  x->monitor.reset(::zmq_socket(x->context.get(), ZMQ_PAIR));
  if (!x->monitor || !set_option(x->monitor.get(), ZMQ_LINGER, 0) || !set_option(x->monitor.get(), ZMQ_RCVHWM, 0) ||
      zmq_connect(x->monitor.get(), monitor_address) != 0)
    return zmq_error("cannot watch the connections of LMCache's clients");
  x->admission.reset(::zmq_socket(x->context.get(), ZMQ_REP));
  if (!x->admission || !set_option(x->admission.get(), ZMQ_LINGER, 0) ||
      zmq_bind(x->admission.get(), admission_address) != 0)
    return zmq_error("cannot admit connections of LMCache's clients");
  const auto host = options.host.find(':') != std::string::npos ? "[" + options.host + "]"
                    : options.host == "localhost"               ? std::string("127.0.0.1")
                                                                : options.host;
  const auto address = "tcp://" + host + ":" + (options.port == 0 ? "*" : std::to_string(options.port));
  if (zmq_bind(x->router.get(), address.c_str()) != 0)
    return zmq_error("cannot listen on " + place + " (lmcache.host, lmcache.port)");
  std::array<char, 256> bound{};
  auto size = bound.size();
  if (zmq_getsockopt(x->router.get(), ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0)
    return zmq_error("cannot tell the port of " + place);
  const std::string endpoint(bound.data());
  x->port = static_cast<std::uint16_t>(std::strtoul(endpoint.c_str() + endpoint.rfind(':') + 1, nullptr, 10));
  x->wake = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!x->wake)
    return fail(errc::io_error, "cannot make an eventfd");
  return std::unique_ptr<door>(new door(std::move(x)));
}

std::uint16_t door::port() const noexcept {
  return x_->port;
}

void door::serve(listener to) {
  x_->to = std::move(to);
  x_->thread = std::jthread([x = x_.get()](const std::stop_token& stop) { x->run(stop); });
}

void door::answer(const incoming& to, std::optional<std::string> frame) {
  bool first = false;
  {
    x_->waiting.fetch_sub(1, std::memory_order_relaxed);
    const std::lock_guard guard(x_->mutex);
    first = x_->answers.empty();
    x_->answers.push_back({to.client, to.number, to.operation_frame, std::move(frame)});
  }
  if (first)
    x_->ring();
}

void door::stop() {
  if (x_->thread.joinable()) {
    x_->thread.request_stop();
    x_->ring();
    x_->thread.join();
  }
  // Nothing is told any more: ZeroMQ's thread would wait for somebody to tell.
  if (x_->router)
    zmq_socket_monitor(x_->router.get(), nullptr, 0);
  x_->monitor.reset();
  x_->router.reset();
  x_->admission.reset();
}

} // namespace troupe::lmcache
