#include "base/unique_descriptor.hpp"
#include "lmcache/protocol/msgpack_writer.hpp"
#include "lmcache/request_listener.hpp"
#include "tests/catch.hpp"
#include "tests/unit/raw_zmq_peer.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <zmq.h>

namespace lmcache_listener_test {

using namespace troupe;
using test::raw_zmq_peer;
using namespace troupe::lmcache;
using protocol::msgpack_writer;

namespace {

constexpr std::chrono::seconds limit{30};

/// The events of a listener, for threads to wait for. It outlives the listener.
struct heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<incoming> asked;
  std::vector<client_number> gone;

  listener::request_handler request_handler() {
    return {[this](incoming x) {
              const std::lock_guard guard(mutex);
              asked.push_back(std::move(x));
              changed.notify_all();
            },
            [this](client_number x) {
              const std::lock_guard guard(mutex);
              gone.push_back(x);
              changed.notify_all();
            }};
  }

  template <class Condition>
  bool wait(Condition holds) {
    std::unique_lock guard(mutex);
    return changed.wait_for(guard, limit, holds);
  }

  incoming next() {
    REQUIRE(wait([this] { return !asked.empty(); }));
    const std::lock_guard guard(mutex);
    auto out = std::move(asked.front());
    asked.pop_front();
    return out;
  }
};

struct dealer {
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_DEALER);

  /// `linger`: sent data is still delivered after its end, within the limit.
  explicit dealer(std::uint16_t port, bool lingers = false) {
    const int linger = lingers ? static_cast<int>(std::chrono::milliseconds(limit).count()) : 0;
    const int wait = static_cast<int>(std::chrono::milliseconds(limit).count());
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    REQUIRE(zmq_connect(socket, ("tcp://127.0.0.1:" + std::to_string(port)).c_str()) == 0);
  }
  ~dealer() {
    zmq_close(socket);
    zmq_ctx_term(context);
  }

  void send(const std::vector<std::string>& frames) const {
    for (std::size_t i = 0; i < frames.size(); ++i)
      REQUIRE(zmq_send(socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0) >= 0);
  }
  std::vector<std::string> receive() const {
    std::vector<std::string> out;
    for (int more = 1; more != 0;) {
      zmq_msg_t frame;
      zmq_msg_init(&frame);
      REQUIRE(zmq_msg_recv(&frame, socket, 0) >= 0);
      out.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      more = zmq_msg_more(&frame);
      zmq_msg_close(&frame);
    }
    return out;
  }
};

std::vector<std::string> ping_of(std::uint64_t number) {
  return {msgpack_writer().natural(number).take(), msgpack_writer().natural(22).take(), msgpack_writer().nil().take()};
}

} // namespace

TEST_CASE("lmcache listener: a listener forwards requests and sends each answer to its client", "[lmcache]") {
  heard from;
  auto opened = listener::open({});
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.request_handler());
  const dealer a(open.port());
  const dealer b(open.port());
  a.send(ping_of(7));
  const auto first = from.next();
  b.send(ping_of(7));
  const auto second = from.next();
  CHECK(first.what == protocol::operation::ping);
  CHECK(first.client != second.client);
  // Answers come in another order, with a third frame and without one, from another thread than the listener's.
  open.answer(second, std::nullopt);
  open.answer(first, protocol::answer(true));
  CHECK(a.receive() == std::vector<std::string>{ping_of(7)[0], ping_of(7)[1], "\xc3"});
  CHECK(b.receive() == std::vector<std::string>{ping_of(7)[0], ping_of(7)[1]});
}

TEST_CASE("lmcache listener: a listener reports a disconnected client and discards answers to it", "[lmcache]") {
  heard from;
  auto opened = listener::open({});
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.request_handler());
  incoming late;
  {
    const dealer a(open.port());
    a.send(ping_of(1));
    late = from.next();
  }
  REQUIRE(from.wait([&] { return !from.gone.empty(); }));
  CHECK(from.gone == std::vector{late.client});
  open.answer(late, protocol::answer(true));
  const dealer b(open.port());
  b.send(ping_of(2));
  const auto other = from.next();
  CHECK(other.client != late.client);
  open.answer(other, protocol::answer(false));
  CHECK(b.receive()[2] == "\xc2");
}

TEST_CASE("lmcache listener: a listener misses no disconnect before later messages", "[lmcache]") {
  listener_options how;
  const auto counts = how.counts;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.request_handler());
  constexpr int dealers = 200;
  for (int i = 0; i < dealers; ++i) {
    const dealer short_lived(open.port(), true);
    for (std::uint64_t j = 1; j <= 3; ++j)
      short_lived.send(ping_of(j));
  }
  // Descriptors of earlier connections are reused. Each connection is distinguished, and its end is reported.
  for (std::uint64_t i = 0; i < 20; ++i) {
    client_number number = 0;
    {
      const dealer one(open.port());
      one.send(ping_of(100 + i));
      for (;;) {
        const auto x = from.next();
        open.answer(x, protocol::answer(true));
        if (x.number == ping_of(100 + i)[0]) {
          number = x.client;
          break;
        }
      }
      CHECK(one.receive()[0] == ping_of(100 + i)[0]);
    }
    CHECK(from.wait([&] { return std::ranges::count(from.gone, number) == 1; }));
  }
  // The message of this one arrives after all the others.
  const dealer last(open.port());
  last.send(ping_of(1000));
  for (auto x = from.next();; x = from.next())
    if (x.number == ping_of(1000)[0])
      break;
  CHECK(from.wait([&] { return counts->clients == 1; }));
}

TEST_CASE("lmcache listener: a registration carries the id of the sending process", "[lmcache]") {
  heard from;
  auto opened = listener::open({});
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer a((*opened)->port());
  msgpack_writer said;
  said.map(8).text("instance_id").natural(5).text("model_name").text("m").text("world_size").natural(1);
  said.text("block_size").natural(16).text("num_layers").natural(1).text("hidden_dim_size").natural(8);
  said.text("dtype_str").text("float16").text("use_mla").boolean(true);
  a.send({msgpack_writer().natural(1).take(), msgpack_writer().natural(14).take(), said.take()});
  const auto x = from.next();
  CHECK_FALSE(x.malformed);
  CHECK(x.registration);
  CHECK(x.process == ::getpid());
  (*opened)->answer(x, protocol::answer_registration("", 0));
  CHECK(a.receive().size() == 3);
}

TEST_CASE("lmcache listener: a listener refuses requests beyond the forwarding limit at once", "[lmcache]") {
  listener_options how;
  how.waiting_max = 2;
  const auto counts = how.counts;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer a((*opened)->port());
  for (std::uint64_t i = 1; i <= 3; ++i)
    a.send(ping_of(i));
  CHECK(a.receive() == std::vector<std::string>{ping_of(3)[0], ping_of(3)[1], "\xc2"});
  CHECK(counts->refused == 1);
  (*opened)->answer(from.next(), protocol::answer(true));
  CHECK(a.receive()[0] == ping_of(1)[0]);
  a.send(ping_of(4));
  CHECK(from.next().number == ping_of(2)[0]);
  CHECK(from.next().number == ping_of(4)[0]);
}

TEST_CASE("lmcache listener: a client has a limit of waiting requests, and others are served", "[lmcache]") {
  listener_options how;
  how.waiting_per_client_max = 2;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer a((*opened)->port());
  const dealer b((*opened)->port());
  for (std::uint64_t i = 1; i <= 3; ++i)
    a.send(ping_of(i));
  CHECK(a.receive() == std::vector<std::string>{ping_of(3)[0], ping_of(3)[1], "\xc2"});
  b.send(ping_of(1));
  const auto first = from.next();
  CHECK(from.next().client == first.client);
  const auto other = from.next();
  CHECK(other.client != first.client);
  (*opened)->answer(first, protocol::answer(true));
  CHECK(a.receive()[0] == ping_of(1)[0]);
  a.send(ping_of(4));
  CHECK(from.next().client == first.client);

  SECTION("a client that registers endlessly is disconnected") {
    const auto unregister = [](std::uint64_t number) {
      return std::vector<std::string>{msgpack_writer().natural(number).take(), msgpack_writer().natural(15).take(),
                                      msgpack_writer().natural(7).take()};
    };
    a.send(unregister(5));
    REQUIRE(from.wait([&] { return !from.gone.empty(); }));
    CHECK(from.gone.front() == first.client);
  }
  SECTION("large requests count too") {
    how.waiting_per_client_max = 4096;
    how.waiting_bytes_per_client_max = 16;
    auto narrow = listener::open(how);
    REQUIRE(narrow);
    heard nothing;
    (*narrow)->serve(nothing.request_handler());
    const dealer c((*narrow)->port());
    c.send(ping_of(9));
    CHECK(c.receive() == std::vector<std::string>{ping_of(9)[0], ping_of(9)[1], "\xc2"});
    (*narrow)->stop();
  }
}

TEST_CASE("lmcache listener: a port that is in use is reported", "[lmcache]") {
  auto first = listener::open({});
  REQUIRE(first);
  listener_options same;
  same.port = (*first)->port();
  const auto second = listener::open(same);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::busy);
  CHECK(second.error().text.find("lmcache.port") != std::string::npos);
}

namespace {

template <class Condition>
bool comes_true(Condition holds) {
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (holds())
      return true;
    std::this_thread::yield();
  }
  return false;
}

std::uint64_t refused(const listener_options& how, refused_connection why) {
  return how.counts->connections_refused[static_cast<std::size_t>(why)];
}

} // namespace

TEST_CASE("lmcache listener: a listener closes an untrusted connection before reading from it", "[lmcache]") {
  listener_options how;
  std::atomic<bool> strangers{true};
  how.admits = [&](const peer_socket& x) { return x.inode != 0 && !strangers; };
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  // One connection sends nothing, and one sends a greeting.
  const raw_zmq_peer quiet((*opened)->port());
  CHECK(quiet.ends());
  const raw_zmq_peer loud((*opened)->port());
  loud.shake_hands();
  CHECK(loud.ends());
  CHECK(comes_true([&] { return refused(how, refused_connection::user) >= 2; }));
  CHECK(how.counts->clients == 0);
  {
    const std::lock_guard guard(from.mutex);
    CHECK(from.asked.empty());
  }
  // Clients of ZeroMQ come back by themselves.
  const dealer a((*opened)->port());
  a.send(ping_of(1));
  CHECK(comes_true([&] { return refused(how, refused_connection::user) >= 3; }));
  strangers = false;
  CHECK(from.next().what == protocol::operation::ping);
}

TEST_CASE("lmcache listener: a listener closes connections beyond its limit and accepts others when some have ended",
          "[lmcache]") {
  listener_options how;
  how.connections_max = 3;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  std::vector<std::unique_ptr<dealer>> served;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    served.push_back(std::make_unique<dealer>((*opened)->port()));
    served.back()->send(ping_of(i));
    CHECK(from.next().number == ping_of(i)[0]);
  }
  const raw_zmq_peer more((*opened)->port());
  CHECK(more.ends());
  CHECK(refused(how, refused_connection::limit) == 1);
  const dealer late((*opened)->port());
  late.send(ping_of(4));
  CHECK(comes_true([&] { return refused(how, refused_connection::limit) >= 2; }));
  served.pop_back();
  CHECK(from.next().number == ping_of(4)[0]);
}

TEST_CASE("lmcache listener: a listener closes a connection whose message does not end", "[lmcache]") {
  listener_options how;
  how.message_bytes_max = 1U << 20U;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer good((*opened)->port());
  good.send(ping_of(1));
  CHECK(from.next().number == ping_of(1)[0]);
  const raw_zmq_peer bad((*opened)->port());
  bad.shake_hands();
  bad.wait_until_ready();
  // Frames without bytes, each with another one to come; ZeroMQ keeps all of them.
  std::string frames;
  for (int i = 0; i < 32768; ++i)
    frames.append({"\x01\x00", 2});
  // This is far more than the buffers of the kernel: the connection is closed by then.
  bool open = true;
  for (int i = 0; i < 8192 && open; ++i)
    open = bad.send(frames);
  CHECK_FALSE(open);
  CHECK(refused(how, refused_connection::flood) == 1);
  // Others go on, and large messages are no flood.
  good.send({ping_of(2)[0], ping_of(2)[1], std::string(1000000, '\xc0')});
  CHECK(from.next().number == ping_of(2)[0]);
  for (std::uint64_t i = 3; i < 40; ++i) {
    good.send({ping_of(i)[0], ping_of(i)[1], std::string(1000000, '\xc0')});
    CHECK(from.next().number == ping_of(i)[0]);
  }
  CHECK(refused(how, refused_connection::flood) == 1);
}

TEST_CASE(
    "lmcache listener: a listener closes a connection whose message does not end while another client keeps it busy",
    "[lmcache]") {
  listener_options how;
  how.message_bytes_max = 1U << 20U;
  how.waiting_max = 1;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer busy((*opened)->port());
  std::jthread sends([&busy](const std::stop_token& stop) {
    const auto frames = ping_of(1);
    while (!stop.stop_requested())
      for (std::size_t i = 0; i < frames.size(); ++i)
        zmq_send(busy.socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  });
  from.next();
  const raw_zmq_peer bad((*opened)->port());
  bad.shake_hands();
  bad.wait_until_ready();
  std::string frames;
  for (int i = 0; i < 32768; ++i)
    frames.append({"\x01\x00", 2});
  bool open = true;
  for (int i = 0; i < 8192 && open; ++i)
    open = bad.send(frames);
  CHECK_FALSE(open);
  CHECK(refused(how, refused_connection::flood) == 1);
}

namespace {

/// Limits this process to two more open files.
class few_files {
public:
  few_files() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 512);
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (;;) {
      unique_descriptor one(::fcntl(0, F_DUPFD_CLOEXEC, 0));
      if (!one)
        break;
      taken_.push_back(std::move(one));
    }
    REQUIRE(taken_.size() > 2);
    last_ = taken_.back().get();
    taken_.pop_back();
    taken_.pop_back();
  }
  few_files(const few_files&) = delete;
  few_files& operator=(const few_files&) = delete;
  ~few_files() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  /// Whether both were opened.
  bool all_taken() const { return ::fcntl(last_, F_GETFD) != -1; }

private:
  rlimit before_{};
  std::vector<unique_descriptor> taken_;
  int last_ = -1;
};

} // namespace

TEST_CASE(
    "lmcache listener: a listener decides on a connection that arrived without free descriptors once there are some",
    "[lmcache]") {
  heard from;
  auto opened = listener::open({});
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  auto few = std::make_unique<few_files>();
  const raw_zmq_peer client((*opened)->port());
  REQUIRE(comes_true([&] { return few->all_taken(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20)); // so that the listener has usually tried
  few.reset();
  client.shake_hands();
  client.wait_until_ready();
  std::string message;
  const auto frames = ping_of(1);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    message += i + 1 < frames.size() ? '\1' : '\0';
    message += static_cast<char>(frames[i].size());
    message += frames[i];
  }
  REQUIRE(client.send(message));
  CHECK(from.next().what == protocol::operation::ping);
}

TEST_CASE("lmcache listener: a listener knows the version of a client and the errors in its messages", "[lmcache]") {
  const listener_options how;
  heard from;
  auto opened = listener::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.request_handler());
  const dealer a((*opened)->port());
  a.send(ping_of(1));
  static_cast<void>(from.next());
  auto known = how.counts->list.all(10);
  REQUIRE(known.size() == 1);
  CHECK(known[0].process == ::getpid());
  CHECK_FALSE(known[0].name.empty());
  CHECK(known[0].user == ::geteuid());
  CHECK(protocol::to_string(known[0].versions) == "0.5.6 or 0.5.7");
  a.send({msgpack_writer().natural(2).take(), msgpack_writer().text("negotiate_chunk_size").take(),
          msgpack_writer().natural(16).take()});
  CHECK(from.next().what == protocol::operation::negotiate_chunk_size);
  known = how.counts->list.all(10);
  CHECK(protocol::to_string(known[0].versions) == "0.5.7");
  CHECK(to_string(known[0]).find("LMCache 0.5.7") != std::string::npos);

  // They are refused at once and distinguished by reason.
  a.send({msgpack_writer().natural(3).take(), msgpack_writer().text("telepathy").take()});
  const auto unknown = from.next();
  CHECK(unknown.malformed);
  CHECK(unknown.why == problem::operation);
  CHECK(how.counts->malformed[static_cast<std::size_t>(problem::operation)] == 1);
  known = how.counts->list.all(10);
  CHECK(known[0].requests == 3);
  CHECK(known[0].malformed == 1);
  CHECK(known[0].difference.find("'telepathy'") != std::string::npos);
  // Messages of an event stream have no answer; they are passed on like requests.
  a.send({msgpack_writer().natural(4).take(), "", "cancel"});
  CHECK(from.next().events.control == protocol::stream_control::cancel);
  a.send(ping_of(5));
  CHECK(from.next().number == ping_of(5)[0]);
  CHECK(how.counts->list.all(10)[0].malformed == 1);
  // Another one that follows soon is counted, and neither logged nor described.
  a.send({msgpack_writer().natural(6).take(), msgpack_writer().text("clairvoyance").take()});
  CHECK(from.next().malformed);
  known = how.counts->list.all(10);
  CHECK(known[0].malformed == 2);
  CHECK(known[0].difference.find("'telepathy'") != std::string::npos);
}

} // namespace lmcache_listener_test
