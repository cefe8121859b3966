#include "lmcache/request_listener.hpp"

#include "base/accepted_socket.hpp"
#include "base/descriptors.hpp"
#include "base/event_signal.hpp"
#include "base/log.hpp"
#include "base/log_limit.hpp"
#include "base/parse_number.hpp"
#include "base/threads.hpp"
#include "base/unique_descriptor.hpp"
#include "base/zmq_socket.hpp"
#include "lmcache/connection_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
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

/// No operation has more than seven payloads.
constexpr std::size_t frames_max = 16;

/// Messages that are received before answers are sent again.
constexpr int messages_per_turn = 64;

/// Limit of answers that wait for one client; more are dropped, and their requests with them.
constexpr int answers_waiting_max = 100000;
/// Milliseconds for sending the last answers when the listener closes.
constexpr int linger_at_the_end = 500;

/// Limit of one client's complete messages that wait in ZeroMQ; more wait in the kernel, and then in the client.
constexpr int messages_waiting_max = 64;

/// How long a connection may take for ZeroMQ's handshake.
constexpr int handshake_milliseconds_max = 10000;

/// Rate limits of log lines about malformed messages: one per client in this time, and this many in all.
constexpr auto complaint_interval = std::chrono::minutes(1);
constexpr std::uint32_t complaints_max = 20;

/// How often messages without an end are looked for, and the limit of bytes outside of messages until then.
constexpr auto look_interval = std::chrono::milliseconds(200);
constexpr std::uint64_t bytes_beside_messages = std::uint64_t{8} << 20U;

constexpr const char* monitor_address = "inproc://troupe-lmcache-monitor";

/// The address of ZeroMQ's authentication requests, for sockets with a domain (ZeroMQ's RFC 27); and the field of an
/// admitted connection's messages.
constexpr const char* admission_address = "inproc://zeromq.zap.01";
constexpr const char* admission_domain = "lmcache";

/// The moment when the connection of a message was admitted, which the answer to ZeroMQ's authentication has set; none
/// if it was not admitted.
std::optional<connection_moment> admission_of(zmq::frame& message) {
  const char* const text = message.property("User-Id");
  return text == nullptr ? std::nullopt : parse_number<connection_moment>(text);
}

tl::unexpected<error> zmq_error(const std::string& what) {
  return zmq::failure(what, "set lmcache.port to another port, or to 0 for any free one");
}

/// ZeroMQ's own threads, and the listener's.
constexpr std::size_t threads_needed = 3;
constexpr std::uint32_t descriptors_needed = 24;

/// No more connections than there are file descriptors for; other servers have more of those that the node does not
/// need itself.
std::uint32_t connections_within_limit(std::uint32_t wanted) {
  constexpr std::uint32_t others = 3;
  const auto limit = raise_descriptor_limit();
  if (!limit)
    return wanted;
  const auto open = open_descriptors() + set_aside_descriptors();
  const auto room = connections_within(limit->now, open, descriptors_needed, (others + 1) * wanted);
  const auto fitting = std::max(room / (others + 1), std::min(wanted, 16U));
  if (fitting < wanted)
    log::get("lmcache")->warn(
        "reduced the limit of LMCache connections to {} from {}: of {} files that may be open, {} are open or "
        "reserved, and the node may need more; raise the limit (ulimit -n, LimitNOFILE=)",
        fitting, wanted, limit->now, open);
  return fitting;
}

struct outgoing {
  client_number client = 0;
  std::string number;
  std::string operation_frame;
  std::optional<std::string> frame;
  /// The bytes of the request, which waits no longer.
  std::uint64_t bytes = 0;
  bool ends_request = true;
  bool is_sent = true;
};

} // namespace

struct listener::implementation {
  listener_options options;
  descriptors_set_aside set_aside;
  zmq::context_handle context;
  zmq::socket_handle router;
  zmq::monitor monitor;
  zmq::socket_handle admission;
  unique_descriptor wake;
  std::uint16_t port = 0;
  request_handler to;

  connection_table connections;
  /// Connections that have begun, and are not decided yet.
  std::deque<std::pair<int, connection_moment>> begun;
  log_limit complaints{complaints_max, complaint_interval};
  /// By reason.
  std::vector<log_limit> refusals{refused_connection_names.size(), log_limit(1, complaint_interval)};
  timestamp next_look = timestamp::min();
  std::uint64_t taken_since_look = 0;

  std::mutex mutex;
  std::deque<outgoing> answers;

  std::atomic<std::uint64_t> waiting{0};

  /// The last member, so that it ends first.
  std::jthread thread;

  void ring() const { signal_event(wake.get()); }

  void run(const std::stop_token& stop) {
    std::array<zmq_pollitem_t, 4> items{{{router.get(), 0, ZMQ_POLLIN, 0},
                                         {monitor.socket(), 0, ZMQ_POLLIN, 0},
                                         {admission.get(), 0, ZMQ_POLLIN, 0},
                                         {nullptr, wake.get(), ZMQ_POLLIN, 0}}};
    while (!stop.stop_requested()) {
      const auto wait = connections.size() == 0 ? -1 : static_cast<long>(look_interval.count());
      if (zmq_poll(items.data(), static_cast<int>(items.size()), wait) < 0 && zmq_errno() != EINTR) {
        log::get("lmcache")->error("the socket for LMCache's clients failed: {}", zmq_strerror(zmq_errno()));
        return;
      }
      clear_event(wake.get());
      send_answers();
      decide_begun();
      while (answer_admission()) {
      }
      int taken = 0;
      while (taken < messages_per_turn && take_message())
        ++taken;
      taken_since_look += static_cast<std::uint64_t>(taken);
      // All complete messages were received; or ZeroMQ, which takes turns, has served every connection that has any.
      if (taken < messages_per_turn || taken_since_look >= 2 * connections.size())
        look_for_floods();
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
      auto* const client = connections.find_client(x.client);
      if (client == nullptr)
        continue;
      client->waiting -= std::min(client->waiting, x.ends_request ? 1U : 0U);
      client->waiting_bytes -= std::min(client->waiting_bytes, x.bytes);
      if (!x.is_sent)
        continue;
      const auto send = [&](const std::string& frame, int flags) {
        return zmq_send(router.get(), frame.data(), frame.size(), flags | ZMQ_DONTWAIT) >= 0;
      };
      // A ROUTER socket accepts or drops a message as a whole.
      if (!send(client->name, ZMQ_SNDMORE) || !send(x.number, ZMQ_SNDMORE) ||
          !send(x.operation_frame, x.frame ? ZMQ_SNDMORE : 0) || (x.frame && !send(*x.frame, 0)))
        log::get("lmcache")->warn("cannot send an answer: {}", zmq_strerror(zmq_errno()));
    }
  }

  /// Reads the reports of connections that have begun or ended. When one requests admission, or a message of it
  /// arrives, its beginning was reported before, by the only thread of ZeroMQ.
  void look_at_monitor() {
    while (const auto report = monitor.next()) {
      std::optional<client_number> gone;
      if (report->event == ZMQ_EVENT_ACCEPTED) {
        gone = connections.begun(report->value);
        begun.emplace_back(report->value, connections.now());
      } else if (report->event == ZMQ_EVENT_DISCONNECTED) {
        gone = connections.ended(report->value);
      }
      if (gone) {
        options.counts->clients.store(connections.clients(), std::memory_order_relaxed);
        options.counts->list.disconnected(*gone);
        to.gone(*gone);
      }
    }
  }

  /// Determines the users of the connections that have begun.
  void decide_begun() {
    look_at_monitor();
    std::deque<std::pair<int, connection_moment>> undecided;
    while (!begun.empty()) {
      const auto next = begun.front();
      begun.pop_front();
      if (!decide(next.first, next.second) && connections.find_begun(next.first, next.second) != nullptr)
        undecided.push_back(next);
    }
    begun = std::move(undecided);
  }

  /// False if there is no file descriptor for the check: its messages are dropped until there is one.
  bool decide(int descriptor, connection_moment moment) {
    const auto held = held_socket::hold(descriptor);
    if (!held)
      return false;
    judge(*held, descriptor, moment);
    return true;
  }

  void judge(const held_socket& held, int descriptor, connection_moment moment) {
    // A file in /proc that changes while it is read may lack a line.
    auto peer = find_peer(held.descriptor());
    if (!peer)
      peer = find_peer(held.descriptor());
    // If it had ended before, the held socket belongs to another connection.
    look_at_monitor();
    auto* const x = connections.find_begun(descriptor, moment);
    if (x == nullptr || x->decided != verdict::undecided)
      return;
    x->cookie = held.cookie();
    if (connections.size() > options.connections_max)
      return refuse(*x, held, refused_connection::limit,
                    "there are " + std::to_string(options.connections_max) + " connections, which is the limit");
    if (!peer)
      return refuse(*x, held, refused_connection::unknown, "/proc does not show its user");
    if (x->missed)
      return refuse(*x, held, refused_connection::unknown,
                    "its messages were lost while no file descriptor was available to determine its user (ulimit -n)");
    if (!options.admits(*peer))
      return refuse(*x, held, refused_connection::user,
                    "it belongs to user " + std::to_string(peer->user) + ", but this node serves user " +
                        std::to_string(::geteuid()) + " and root");
    x->socket = peer;
    x->decided = verdict::admitted;
  }

  void refuse(connection& x, const held_socket& socket, refused_connection why, const std::string& text) {
    x.decided = verdict::refused;
    const auto reason = static_cast<std::size_t>(why);
    auto& count = options.counts->connections_refused[reason];
    const auto so_far = count.fetch_add(1, std::memory_order_relaxed) + 1;
    socket.shut_down();
    if (refusals[reason].tell(std::chrono::steady_clock::now()))
      log::get("lmcache")->warn("connection refused and closed: {}; {} refused for this reason so far", text, so_far);
  }

  /// Answers ZeroMQ's authentication request, which does not identify the connection: each gets the current moment, by
  /// which its messages are recognized. Connections of other users have been shut down by then. False if there is no
  /// request.
  bool answer_admission() {
    // A version, a number, the domain, the address, its name, the mechanism; there are no credentials.
    std::array<std::string, 2> said;
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      zmq::frame frame;
      if (!frame.receive(admission.get()))
        return false;
      if (count < said.size())
        said[count] = frame.text();
      more = frame.more();
    }
    decide_begun();
    const auto moment = std::to_string(connections.now());
    const auto send = [&](std::string_view frame, int flags) {
      return zmq_send(admission.get(), frame.data(), frame.size(), flags | ZMQ_DONTWAIT) >= 0;
    };
    if (!send(said[0], ZMQ_SNDMORE) || !send(said[1], ZMQ_SNDMORE) || !send("200", ZMQ_SNDMORE) ||
        !send("", ZMQ_SNDMORE) || !send(moment, ZMQ_SNDMORE) || !send("", 0))
      log::get("lmcache")->warn("cannot admit a connection: {}", zmq_strerror(zmq_errno()));
    return true;
  }

  /// Every connection with complete messages was served at least once since the last check.
  void look_for_floods() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look)
      return;
    next_look = now + look_interval;
    taken_since_look = 0;
    const auto limit = options.message_bytes_max + bytes_beside_messages;
    for (const auto descriptor : connections.descriptors()) {
      auto* const x = connections.find(descriptor, connections.now());
      if (x == nullptr || x->decided != verdict::admitted ||
          !connection_table::is_flooding(*x, received_bytes(descriptor), limit))
        continue;
      const auto held = held_socket::hold(descriptor);
      if (!held || held->cookie() != x->cookie)
        continue;
      refuse(*x, *held, refused_connection::flood,
             text_of(x->number) + " sent more than " + std::to_string(limit >> 20U) +
                 " MiB without the end of a message");
    }
  }

  std::string text_of(client_number number) const {
    const auto known = options.counts->list.find(number);
    return known ? to_string(*known) : "a client without a message so far";
  }

  /// Null if the connection of the message has ended, or is not admitted.
  connection* connection_of(zmq::frame& message, std::string name) {
    const auto admitted = admission_of(message);
    auto* const out = admitted ? connections.find(message.descriptor(), *admitted) : nullptr;
    if (out != nullptr && out->decided == verdict::undecided)
      out->missed = true;
    if (out == nullptr || out->decided != verdict::admitted)
      return nullptr;
    out->delivered = true;
    if (out->number != 0)
      return out;
    connections.enroll(*out, std::move(name));
    options.counts->clients.store(connections.clients(), std::memory_order_relaxed);
    options.counts->list.connected(out->number, *out->socket);
    return out;
  }

  /// False if there is none.
  bool take_message() {
    zmq::frame name;
    if (!name.receive(router.get()))
      return false;
    std::array<zmq::frame, frames_max> frames;
    std::array<protocol::byte_view, frames_max> bytes;
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
      zmq::frame rest;
      too_many = true;
      more = rest.receive(router.get()) && rest.more();
    }
    if (count == 0)
      return true;
    auto* const found = connection_of(frames[0], name.text());
    if (found == nullptr)
      return true;
    hand_on(*found, std::span(bytes).first(count), too_many);
    return true;
  }

  void hand_on(connection& from, std::span<const protocol::byte_view> frames, bool too_many) {
    auto message = read_message(frames, options.chunk_tokens, options.keeps_tokens);
    if (!message)
      return complain(from, problem::envelope, frames);
    message->client = from.number;
    if (too_many && !message->malformed) {
      message->malformed = true;
      message->why = problem::payload_count;
    }
    if (message->malformed)
      complain(from, message->why, frames);
    else
      options.counts->list.served(from.number, message->versions);
    if (message->what == protocol::operation::negotiate_chunk_size && !message->malformed)
      compare_alignment(from, message->alignment);
    const bool registers = changes_registration(message->what) && message->instance;
    if (registers) {
      if (!std::exchange(from.process_known, true)) {
        from.process = process_with(*from.socket);
        options.counts->list.found(from.number, from.process);
      }
      message->process = from.process;
    }
    const bool has_too_many = from.waiting >= options.waiting_per_client_max ||
                              from.waiting_bytes + message->bytes > options.waiting_bytes_per_client_max;
    if (has_too_many && registers)
      return cut_off(from);
    ++from.waiting;
    from.waiting_bytes += message->bytes;
    // The rules answer a registration: here, lanes may be working on the memory that it ends.
    if ((waiting.fetch_add(1, std::memory_order_relaxed) >= options.waiting_max && !registers) || has_too_many) {
      options.counts->refused.fetch_add(1, std::memory_order_relaxed);
      post(*message, protocol::refusal(message->what));
      return send_answers();
    }
    to.asked(std::move(*message));
  }

  void post(const incoming& x, std::optional<std::string> frame) {
    waiting.fetch_sub(1, std::memory_order_relaxed);
    const std::lock_guard guard(mutex);
    answers.push_back({x.client, x.number, x.operation_frame, std::move(frame), x.bytes});
  }

  void queue(outgoing x) {
    bool first = false;
    {
      const std::lock_guard guard(mutex);
      first = answers.empty();
      answers.push_back(std::move(x));
    }
    if (first)
      ring();
  }

  void cut_off(connection& x) {
    const auto held = held_socket::hold(x.descriptor);
    if (held && held->cookie() == x.cookie)
      refuse(x, *held, refused_connection::flood,
             text_of(x.number) + " has " + std::to_string(x.waiting) + " waiting requests, and registers");
  }

  /// Counts each malformed message, and logs them at a limited rate per client.
  void complain(connection& about, problem what, std::span<const protocol::byte_view> frames) {
    options.counts->malformed[static_cast<std::size_t>(what)].fetch_add(1, std::memory_order_relaxed);
    options.counts->list.malformed(about.number);
    if (!may_complain(about))
      return;
    const auto difference = difference_of(what, frames);
    options.counts->list.differed(about.number, difference);
    const auto known = options.counts->list.find(about.number);
    log::get("lmcache")->warn(
        "request rejected: {} sent an unsupported message: {}; {}, {} of {} requests of this client so far",
        text_of(about.number), difference, what == problem::envelope ? "not answered" : "answered with a rejection",
        known ? known->malformed : 1, known ? known->requests : 1);
  }

  /// LMCache's server chooses a number of tokens that fits the first engine; here it is configured.
  void compare_alignment(connection& about, std::uint32_t alignment) {
    if (options.chunk_tokens % alignment != 0 && may_complain(about))
      log::get("lmcache")->warn("{} needs chunks of a multiple of {} tokens, but lmcache.chunk_tokens is {}: its "
                                "engine will not start; set lmcache.chunk_tokens to such a multiple",
                                text_of(about.number), alignment, options.chunk_tokens);
  }

  bool may_complain(connection& about) {
    const auto now = std::chrono::steady_clock::now();
    if (now < about.next_complaint || !complaints.tell(now))
      return false;
    about.next_complaint = now + complaint_interval;
    return true;
  }
};

bool may_connect(const peer_socket& x) noexcept {
  return x.user == 0 || x.user == ::geteuid();
}

listener::listener(std::unique_ptr<implementation> x) : x_(std::move(x)) {}

listener::~listener() {
  stop();
}

result<std::unique_ptr<listener>> listener::open(const listener_options& options) {
  auto x = std::make_unique<implementation>();
  x->options = options;
  const auto place = options.host + ":" + std::to_string(options.port);
  // ZeroMQ ends the process if it gets too few.
  if (auto room = check_threads(threads_needed, "ZeroMQ (lmcache.enabled)"); !room)
    return tl::unexpected<error>(room.error());
  if (auto room = check_descriptors(descriptors_needed, "ZeroMQ (lmcache.enabled)"); !room)
    return tl::unexpected<error>(room.error());
  x->options.connections_max = connections_within_limit(options.connections_max);
  x->set_aside = descriptors_set_aside(x->options.connections_max);
  x->context.reset(zmq_ctx_new());
  if (!x->context)
    return zmq_error("cannot use ZeroMQ");
  x->router.reset(::zmq_socket(x->context.get(), ZMQ_ROUTER));
  if (!x->router || !zmq::set_option(x->router.get(), ZMQ_LINGER, 0) ||
      !zmq::set_option(x->router.get(), ZMQ_MAXMSGSIZE, std::int64_t{options.message_bytes_max}) ||
      !zmq::set_option(x->router.get(), ZMQ_RCVHWM, messages_waiting_max) ||
      !zmq::set_option(x->router.get(), ZMQ_HANDSHAKE_IVL, handshake_milliseconds_max) ||
      !zmq::set_option(x->router.get(), ZMQ_SNDHWM, answers_waiting_max) ||
      zmq_setsockopt(x->router.get(), ZMQ_ZAP_DOMAIN, admission_domain, std::strlen(admission_domain)) != 0 ||
      (options.host.find(':') != std::string::npos && !zmq::set_option(x->router.get(), ZMQ_IPV6, 1)))
    return zmq_error("cannot create a socket for LMCache's clients");
  // Without a limit of events: otherwise ZeroMQ's thread would wait for this one, which may wait for it.
  if (!x->monitor.open(x->context.get(), x->router.get(), monitor_address, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED))
    return zmq_error("cannot watch the connections of LMCache's clients");
  x->admission.reset(::zmq_socket(x->context.get(), ZMQ_REP));
  if (!x->admission || !zmq::set_option(x->admission.get(), ZMQ_LINGER, 0) ||
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
    return zmq_error("cannot determine the port of " + place);
  const std::string endpoint(bound.data());
  x->port = static_cast<std::uint16_t>(std::strtoul(endpoint.c_str() + endpoint.rfind(':') + 1, nullptr, 10));
  x->wake = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!x->wake)
    return fail(errc::io_error, "cannot create an eventfd");
  return std::unique_ptr<listener>(new listener(std::move(x)));
}

std::uint16_t listener::port() const noexcept {
  return x_->port;
}

void listener::serve(request_handler to) {
  x_->to = std::move(to);
  x_->thread =
      std::jthread(named(thread_name("troupe-lmcache"), [x = x_.get()](const std::stop_token& stop) { x->run(stop); }));
}

void listener::answer(const incoming& to, std::optional<std::string> frame) {
  x_->waiting.fetch_sub(1, std::memory_order_relaxed);
  x_->queue({to.client, to.number, to.operation_frame, std::move(frame), to.bytes});
}

void listener::answer_again(const incoming& to, std::string frame) {
  x_->queue({to.client, to.number, to.operation_frame, std::move(frame), 0, false, true});
}

void listener::forget(const incoming& x) {
  x_->waiting.fetch_sub(1, std::memory_order_relaxed);
  x_->queue({x.client, x.number, x.operation_frame, std::nullopt, x.bytes, true, false});
}

void listener::stop() {
  if (x_->thread.joinable()) {
    x_->thread.request_stop();
    x_->ring();
    x_->thread.join();
  }
  x_->monitor.close();
  // The last answers are still being sent.
  if (x_->router)
    static_cast<void>(zmq::set_option(x_->router.get(), ZMQ_LINGER, linger_at_the_end));
  x_->router.reset();
  x_->admission.reset();
}

} // namespace troupe::lmcache
