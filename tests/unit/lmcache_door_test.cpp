#include "lmcache/door.hpp"
#include "lmcache/wire/msgpack_writer.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>
#include <zmq.h>

namespace lmcache_door_test {

using namespace troupe;
using namespace troupe::lmcache;
using wire::msgpack_writer;

namespace {

constexpr std::chrono::seconds limit{30};

/// What a door has said, for threads to wait for. Outlives the door.
struct heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<incoming> asked;
  std::vector<client_number> gone;

  door::listener listener() {
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

  /// `linger`: what it has sent goes out after its end, within the limit.
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

TEST_CASE("A door hands requests on, and answers to whom they belong", "[lmcache]") {
  heard from;
  auto opened = door::open({});
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.listener());
  const dealer a(open.port());
  const dealer b(open.port());
  a.send(ping_of(7));
  const auto first = from.next();
  b.send(ping_of(7));
  const auto second = from.next();
  CHECK(first.what == wire::operation::ping);
  CHECK(first.client != second.client);
  // In another order, with a third frame and without one, by another thread than the door's.
  open.answer(second, std::nullopt);
  open.answer(first, wire::answer(true));
  CHECK(a.receive() == std::vector<std::string>{ping_of(7)[0], ping_of(7)[1], "\xc3"});
  CHECK(b.receive() == std::vector<std::string>{ping_of(7)[0], ping_of(7)[1]});
}

TEST_CASE("A door says who is gone, and forgets whom to answer", "[lmcache]") {
  heard from;
  auto opened = door::open({});
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.listener());
  incoming late;
  {
    const dealer a(open.port());
    a.send(ping_of(1));
    late = from.next();
  }
  REQUIRE(from.wait([&] { return !from.gone.empty(); }));
  CHECK(from.gone == std::vector{late.client});
  open.answer(late, wire::answer(true));
  const dealer b(open.port());
  b.send(ping_of(2));
  const auto other = from.next();
  CHECK(other.client != late.client);
  open.answer(other, wire::answer(false));
  CHECK(b.receive()[2] == "\xc2");
}

TEST_CASE("A door misses no end of connections whose messages come after it", "[lmcache]") {
  door_options how;
  const auto counts = how.counts;
  heard from;
  auto opened = door::open(how);
  REQUIRE(opened);
  auto& open = **opened;
  open.serve(from.listener());
  constexpr int dealers = 200;
  for (int i = 0; i < dealers; ++i) {
    const dealer short_lived(open.port(), true);
    for (std::uint64_t j = 1; j <= 3; ++j)
      short_lived.send(ping_of(j));
  }
  // Descriptors of those before are given to these. Each is known as itself, and its end is told.
  for (std::uint64_t i = 0; i < 20; ++i) {
    client_number number = 0;
    {
      const dealer one(open.port());
      one.send(ping_of(100 + i));
      for (;;) {
        const auto x = from.next();
        open.answer(x, wire::answer(true));
        if (x.number == ping_of(100 + i)[0]) {
          number = x.client;
          break;
        }
      }
      CHECK(one.receive()[0] == ping_of(100 + i)[0]);
    }
    CHECK(from.wait([&] { return std::ranges::count(from.gone, number) == 1; }));
  }
  // One that is heard of after all of these.
  const dealer last(open.port());
  last.send(ping_of(1000));
  for (auto x = from.next();; x = from.next())
    if (x.number == ping_of(1000)[0])
      break;
  CHECK(from.wait([&] { return counts->clients == 1; }));
}

TEST_CASE("A registration comes with the process that it is from", "[lmcache]") {
  heard from;
  auto opened = door::open({});
  REQUIRE(opened);
  (*opened)->serve(from.listener());
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
  (*opened)->answer(x, wire::answer_registration("", 0));
  CHECK(a.receive().size() == 3);
}

TEST_CASE("A door refuses at once what is more than it may hand on", "[lmcache]") {
  door_options how;
  how.waiting_max = 2;
  const auto counts = how.counts;
  heard from;
  auto opened = door::open(how);
  REQUIRE(opened);
  (*opened)->serve(from.listener());
  const dealer a((*opened)->port());
  for (std::uint64_t i = 1; i <= 3; ++i)
    a.send(ping_of(i));
  CHECK(a.receive() == std::vector<std::string>{ping_of(3)[0], ping_of(3)[1], "\xc2"});
  CHECK(counts->refused == 1);
  (*opened)->answer(from.next(), wire::answer(true));
  CHECK(a.receive()[0] == ping_of(1)[0]);
  a.send(ping_of(4));
  CHECK(from.next().number == ping_of(2)[0]);
  CHECK(from.next().number == ping_of(4)[0]);
}

TEST_CASE("A port that another one has is told of", "[lmcache]") {
  auto first = door::open({});
  REQUIRE(first);
  door_options same;
  same.port = (*first)->port();
  const auto second = door::open(same);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::busy);
  CHECK(second.error().text.find("lmcache.port") != std::string::npos);
}

} // namespace lmcache_door_test
