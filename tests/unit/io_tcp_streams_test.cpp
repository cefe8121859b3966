#include "base/tcp_connect.hpp"
#include "base/unique_descriptor.hpp"
#include "io/tcp/exposed_streams.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/tcp/tcp_stream.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/remote_ends.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace io_tcp_streams_test {

using namespace troupe;
using namespace troupe::test;
using namespace troupe::io::tcp;
using io::remote_direction;

namespace {

constexpr std::uint32_t streams = 4;

/// A relay for the connections of a node to a client, which can stall or cut each of them.
class relay {
public:
  explicit relay(const io::remote_memory_name& to) : name_(to), place_(*memory_place::parse(to)) {
    auto made = listen_on(loopback);
    REQUIRE(made);
    listening_ = std::move(*made);
    auto here = place_;
    here.where = {listening_.where};
    name_.address = here.bytes();
    thread_ = std::thread([this] { run(); });
  }
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;
  ~relay() {
    stopping_ = true;
    thread_.join();
  }

  const io::remote_memory_name& name() const { return name_; }

  /// From so many bytes on, the first connection passes nothing on, or is closed towards the node. What the node has
  /// sent until then arrives in any case, `late` only when `let_go` is called.
  std::atomic<std::size_t> stall_after = ~std::size_t{0};
  std::atomic<std::size_t> cut_after = ~std::size_t{0};

  /// Bytes that have passed on the connection that came as that number.
  std::size_t passed_by(std::size_t i) const { return i < passed_.size() ? passed_[i].load() : 0; }

private:
  struct way {
    unique_descriptor node;
    unique_descriptor client;
    std::size_t passed = 0;
  };

  static unique_descriptor connected(const endpoint& to) {
    const auto name = socket_address::of(to.address, to.port);
    unique_descriptor out(::socket(name.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&name.name), name.size) != 0)
      out.reset();
    return out;
  }

  static bool pass(int from, int to, std::size_t& passed) {
    std::array<char, 65536> some{};
    const auto got = ::recv(from, some.data(), some.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
      return false;
    for (std::ptrdiff_t at = 0; at < got;) {
      const auto put = ::send(to, some.data() + at, static_cast<std::size_t>(got - at), MSG_NOSIGNAL);
      if (put <= 0)
        return false;
      at += put;
    }
    passed += got > 0 ? static_cast<std::size_t>(got) : 0;
    return true;
  }

  void run() {
    std::vector<way> ways;
    while (!stopping_) {
      pollfd what{listening_.descriptor.get(), POLLIN, 0};
      if (::poll(&what, 1, 0) == 1) {
        way made;
        made.node = unique_descriptor(::accept4(listening_.descriptor.get(), nullptr, nullptr, SOCK_CLOEXEC));
        made.client = connected(place_.where.front());
        ways.push_back(std::move(made));
      }
      bool moved = false;
      for (std::size_t i = 0; i < ways.size(); ++i) {
        auto& x = ways[i];
        if (!x.node || !x.client || (i == 0 && x.passed >= stall_after))
          continue;
        if (i == 0 && x.passed >= cut_after) {
          x.node.reset();
          continue;
        }
        const auto before = x.passed;
        if (!pass(x.node.get(), x.client.get(), x.passed) || !pass(x.client.get(), x.node.get(), x.passed)) {
          x.node.reset();
          x.client.reset();
        }
        moved = moved || x.passed != before;
        if (i < passed_.size())
          passed_[i] = x.passed;
      }
      if (!moved)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  io::remote_memory_name name_;
  memory_place place_;
  listener listening_;
  std::atomic<bool> stopping_ = false;
  std::array<std::atomic<std::size_t>, 8> passed_{};
  std::thread thread_;
};

std::shared_ptr<io::exposed_memory> expose(std::uint64_t bytes, bool encrypted, std::uint32_t most = streams,
                                           const host_address& at = loopback) {
  const std::array from{at};
  auto made = io::make_tcp_exposer({at}, encrypted, most)->expose(bytes, from);
  INFO((made ? std::string() : made.error().text));
  REQUIRE(made);
  return *made;
}

/// `silence`: after which a connection that moves nothing is ended.
std::shared_ptr<io::remote_mover> new_mover(bool encrypted, unsigned threads = 2,
                                            std::chrono::milliseconds silence = test_patience) {
  auto made = io::make_tcp_mover({threads, encrypted, streams, silence, std::chrono::milliseconds(50)});
  REQUIRE(made);
  return *made;
}

std::vector<io::remote_move> in_pages(std::vector<std::byte>& bytes) {
  constexpr std::size_t page = (2U << 20U) + 4096;
  std::vector<io::remote_move> out;
  for (std::size_t at = 0; at < bytes.size(); at += page)
    out.push_back({std::span(bytes).subspan(at, std::min(page, bytes.size() - at)), at});
  return out;
}

} // namespace

TEST_CASE("tcp streams: pages that are spread over several connections are the same at both ends", "[tcp]") {
  const bool encrypted = GENERATE(false, true);
  const auto at = GENERATE(false, true) ? host_address::ipv6_loopback() : loopback;
  constexpr std::size_t bytes = 32U << 20U;
  const auto memory = expose(bytes, encrypted, streams, at);
  const remote_end_of far(new_mover(encrypted), memory->name());
  auto first = byte_pattern(bytes, 1);
  REQUIRE(far.move(remote_direction::put, in_pages(first)));
  CHECK(std::memcmp(memory->bytes().data(), first.data(), bytes) == 0);
  std::vector<std::byte> second(bytes);
  REQUIRE(far.move(remote_direction::get, in_pages(second)));
  CHECK(second == first);
  CHECK(far.peer->progress() >= 2 * bytes);
  far.close();
}

TEST_CASE("tcp streams: the end with fewer connections decides", "[tcp]") {
  constexpr std::size_t bytes = 8U << 20U;
  const auto most = GENERATE(1U, 3U, 64U);
  const auto memory = expose(bytes, true, most);
  CHECK(memory_place::parse(memory->name())->streams == most);
  const remote_end_of far(new_mover(true), memory->name());
  auto first = byte_pattern(bytes, 1);
  REQUIRE(far.move(remote_direction::put, in_pages(first)));
  CHECK(std::memcmp(memory->bytes().data(), first.data(), bytes) == 0);
}

TEST_CASE("tcp streams: the connections of a memory with several addresses use them in turn", "[tcp]") {
  const bool encrypted = GENERATE(false, true);
  constexpr std::size_t bytes = 16U << 20U;
  const auto at = [](std::uint32_t last) { return host_address::of_ipv4(0x7f000000 + last); };
  const std::array from{loopback};
  const auto exposed = io::make_tcp_exposer({at(2), at(3), at(4)}, encrypted, 7)->expose(bytes, from);
  REQUIRE(exposed);
  auto place = *memory_place::parse((*exposed)->name());
  REQUIRE(place.where.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(place.where[i].address == at(2 + i));
  // A connection that is opened again goes to another address.
  CHECK(&place.of({4, 0}) == &place.where[1]);
  CHECK(&place.of({4, 1}) == &place.where[2]);
  // Where no one listens at one of the addresses, the connections to the others carry everything.
  const auto silent = GENERATE(false, true);
  auto name = (*exposed)->name();
  if (silent) {
    place.where[1].address = at(9);
    name.address = place.bytes();
  }
  io::tcp_mover_options how{2, encrypted, 6};
  how.addresses = {host_address::of_ipv4(0x0a000001), loopback};
  const auto mover = io::make_tcp_mover(how);
  REQUIRE(mover);
  const remote_end_of far(*mover, name);
  auto first = byte_pattern(bytes, 1);
  REQUIRE(far.move(remote_direction::put, in_pages(first)));
  CHECK(std::memcmp((*exposed)->bytes().data(), first.data(), bytes) == 0);
  far.close();
}

TEST_CASE("tcp streams: without a number there is at least one connection for each address", "[tcp]") {
  CHECK(io::chosen_streams(0, 12) == 12);
  CHECK(io::chosen_streams(0, 100) == addresses_most);
  CHECK(io::chosen_streams(3, 12) == 3);
  const std::array from{loopback};
  const auto none = io::make_tcp_exposer({}, false)->expose(4096, from);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::invalid_argument);
}

TEST_CASE("tcp streams: the others carry the pages of a connection that is cut or stalls in the middle of one",
          "[tcp]") {
  constexpr std::size_t bytes = 32U << 20U;
  const bool cuts = GENERATE(false, true);
  const std::size_t after = GENERATE(200'000UL, 1'500'000UL, 5'000'000UL);
  const auto direction = GENERATE(remote_direction::put, remote_direction::get);
  CAPTURE(cuts, after);
  const auto memory = expose(bytes, false);
  relay between(memory->name());
  (cuts ? between.cut_after : between.stall_after) = after;
  const remote_end_of far(new_mover(false, 2, cuts ? test_patience : std::chrono::milliseconds(300)), between.name());
  auto here = byte_pattern(bytes, 1);
  const auto there = byte_pattern(bytes, 2);
  std::ranges::copy(there, memory->bytes().begin());
  REQUIRE(far.move(direction, in_pages(here)));
  CHECK(std::memcmp(memory->bytes().data(), here.data(), bytes) == 0);
  // What moves next is not overwritten by what was on its way.
  auto next = byte_pattern(bytes, 3);
  REQUIRE(far.move(remote_direction::put, in_pages(next)));
  between.stall_after = ~std::size_t{0};
  REQUIRE(far.move(remote_direction::get, in_pages(here)));
  CHECK(here == next);
  CHECK(std::memcmp(memory->bytes().data(), next.data(), bytes) == 0);
}

TEST_CASE("tcp streams: a connection that was cut is opened again, and carries pages", "[tcp]") {
  constexpr std::size_t bytes = 16U << 20U;
  const bool encrypted = GENERATE(false, true);
  const auto memory = expose(bytes, encrypted);
  relay between(memory->name());
  between.cut_after = 1'500'000;
  const auto mover = new_mover(encrypted);
  const remote_end_of far(mover, between.name());
  auto here = byte_pattern(bytes, 1);
  for (int i = 0; i < 5000 && mover->connection_counts().reopened == 0; ++i)
    REQUIRE(far.move(remote_direction::put, in_pages(here)));
  CHECK(mover->connection_counts().lost == 1);
  CHECK(mover->connection_counts().reopened == 1);
  here = byte_pattern(bytes, 2);
  const auto before = between.passed_by(streams);
  REQUIRE(far.move(remote_direction::put, in_pages(here)));
  CHECK(std::memcmp(memory->bytes().data(), here.data(), bytes) == 0);
  CHECK(between.passed_by(streams) > before);
}

TEST_CASE("exposed streams: a connection comes again only when its earlier attempt has ended", "[tcp]") {
  exposed_streams all(2);
  const auto come = [&](std::uint32_t number, std::uint32_t attempt) {
    hello words;
    words.stream = number;
    words.streams = 2;
    words.attempt = attempt;
    return all.join(words, tcp_stream(unique_descriptor(::socket(AF_INET, SOCK_STREAM, 0))));
  };
  auto* const first = come(0, 0);
  auto* const second = come(1, 0);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(come(1, 1) == nullptr);
  all.leave(*second);
  CHECK(come(1, 0) == nullptr);
  auto* const again = come(1, 1);
  REQUIRE(again != nullptr);
  CHECK(come(1, 1) == nullptr);
  // The order to end the first attempt was repeated: it does not end this one.
  CHECK(all.end(*first, {1, 0}));
  CHECK_FALSE(again->is_ending());
  all.leave(*again);
  // An attempt that was ended before it came.
  CHECK(all.end(*first, {1, 2}));
  CHECK(come(1, 2) == nullptr);
  CHECK(come(1, 3) != nullptr);
}

TEST_CASE("tcp streams: a peer whose memory is freed is lost once, with several connections", "[tcp]") {
  constexpr std::size_t bytes = 16U << 20U;
  auto memory = expose(bytes, true);
  const remote_end_of far(new_mover(true), memory->name());
  auto some = byte_pattern(bytes, 1);
  REQUIRE(far.move(remote_direction::put, in_pages(some)));
  auto lost = far.lost->get_future();
  memory.reset();
  CHECK(lost.get().code == errc::unreachable);
  CHECK(far.move(remote_direction::put, in_pages(some)).error().code == errc::unreachable);
  far.close();
}

TEST_CASE("tcp streams: closing during transfers ends each of them once", "[tcp]") {
  constexpr std::size_t bytes = 16U << 20U;
  const auto memory = expose(bytes, GENERATE(false, true));
  const remote_end_of far(new_mover(false), memory->name());
  auto some = byte_pattern(bytes, 1);
  std::vector<std::future<result<void>>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(far.begin(i % 2 == 0 ? remote_direction::put : remote_direction::get, in_pages(some)));
  far.close();
  for (auto& x : all) {
    REQUIRE(x.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
    const auto ended = x.get();
    CHECK((ended || ended.error().code == errc::unreachable));
  }
}

TEST_CASE("exposed streams: hellos that do not fit are refused, and a connection that was ended does not come",
          "[tcp]") {
  exposed_streams all(4);
  const auto stream = [] { return tcp_stream(unique_descriptor(::socket(AF_INET, SOCK_STREAM, 0))); };
  const auto words = [](std::uint32_t number, std::uint32_t count) {
    hello out;
    out.stream = number;
    out.streams = count;
    return out;
  };
  CHECK(all.join(words(0, 0), stream()) == nullptr);
  CHECK(all.join(words(0, 5), stream()) == nullptr);
  CHECK(all.join(words(3, 3), stream()) == nullptr);
  auto* const second = all.join(words(1, 3), stream());
  REQUIRE(second != nullptr);
  CHECK(all.join(words(1, 3), stream()) == nullptr);
  CHECK(all.join(words(0, 2), stream()) == nullptr);
  CHECK_FALSE(all.all_have_come());
  CHECK_FALSE(all.end(*second, {1, 0}));
  CHECK_FALSE(all.end(*second, {3, 0}));
  CHECK(all.end(*second, {0, 0}));
  CHECK(all.join(words(0, 3), stream()) == nullptr);
  auto* const third = all.join(words(2, 3), stream());
  REQUIRE(third != nullptr);
  CHECK(all.all_have_come());
  // The order is carried out when the thread of the other one has returned.
  std::atomic<bool> left = false;
  std::thread serves([&] {
    while (!third->is_ending())
      std::this_thread::yield();
    left = true;
    all.leave(*third);
  });
  CHECK(all.end(*second, {2, 0}));
  CHECK(left);
  serves.join();
}

TEST_CASE("exposed streams: two connections that end each other do not wait for ever", "[tcp]") {
  exposed_streams all(2);
  std::array<served_stream*, 2> both{};
  for (std::uint32_t i = 0; i < 2; ++i) {
    hello words;
    words.stream = i;
    words.streams = 2;
    both[i] = all.join(words, tcp_stream(unique_descriptor(::socket(AF_INET, SOCK_STREAM, 0))));
    REQUIRE(both[i] != nullptr);
  }
  std::array<std::thread, 2> threads;
  for (std::uint32_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] {
      all.end(*both[i], {1 - i, 0});
      all.leave(*both[i]);
    });
  for (auto& x : threads)
    x.join();
  CHECK(both[0]->stream.descriptor() < 0);
  CHECK(both[1]->stream.descriptor() < 0);
}

TEST_CASE("tcp streams: keep-alive ends a dead connection after eight seconds, and small writes go at once", "[tcp]") {
  const tcp_stream x(unique_descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  REQUIRE(x);
  const auto option = [&](int level, int name) {
    int out = -1;
    socklen_t size = sizeof out;
    REQUIRE(::getsockopt(x.descriptor(), level, name, &out, &size) == 0);
    return out;
  };
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) + option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) == 8);
  CHECK(option(IPPROTO_TCP, TCP_NODELAY) == 1);
}

TEST_CASE("tcp memory: the name of memory is read back, and others are refused with a sentence", "[tcp]") {
  io::remote_memory_name name;
  name.key.assign(token_bytes, 1);
  name.bytes = 1;
  const auto address = GENERATE(false, true) ? host_address::ipv6_loopback() : host_address::of_ipv4(0x0a000102);
  const bool several = GENERATE(false, true);
  memory_place place{{{address, 4711}}, true, 7};
  if (several)
    place.where.push_back({host_address::of_ipv4(0x0a000202), 4712});
  name.address = place.bytes();
  const auto read = memory_place::parse(name);
  REQUIRE(read);
  REQUIRE(read->where.size() == place.where.size());
  CHECK(read->where.front().address == address);
  CHECK(read->where.front().port == 4711);
  CHECK(read->where.back().address == place.where.back().address);
  CHECK(read->where.back().port == place.where.back().port);
  CHECK(read->encrypted);
  CHECK(read->streams == 7);
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 20000; ++i) {
    auto other = name;
    other.address.resize(several ? 4 + 18 * (random() % 4) : random() % 24);
    for (auto& x : other.address)
      x = static_cast<std::uint8_t>(random() % (random() % 2 == 0 ? 4 : 256));
    const auto made = memory_place::parse(other);
    if (made)
      CHECK(made->bytes() == other.address);
    else
      CHECK(made.error().code == errc::invalid_argument);
  }
}

} // namespace io_tcp_streams_test
