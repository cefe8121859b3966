#include "io/tcp/tcp_stream.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote_ends.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <thread>
#include <vector>

namespace io_tcp_records_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Two encrypted ends and a relay between them, which sees the records of the first one and can delay them.
struct encrypted_pair {
  explicit encrypted_pair(std::uint64_t records_of_a_key) {
    const std::array listening_sockets{io::tcp::listen_on(loopback), io::tcp::listen_on(loopback)};
    REQUIRE((listening_sockets[0] && listening_sockets[1]));
    auto first = io::tcp::tcp_stream::connect(listening_sockets[0]->where);
    auto second = io::tcp::tcp_stream::connect(listening_sockets[1]->where);
    REQUIRE((first && second));
    for (const auto& x : listening_sockets) {
      pollfd what{x->descriptor.get(), POLLIN, 0};
      REQUIRE(::poll(&what, 1, 30000) == 1);
    }
    a = std::move(*first);
    far_of_b = std::move(*second);
    far_of_a = io::tcp::tcp_stream::accept(listening_sockets[0]->descriptor.get());
    b = io::tcp::tcp_stream::accept(listening_sockets[1]->descriptor.get());
    io::tcp::connection_token token{};
    token[3] = std::byte{9};
    REQUIRE(a.encrypt(io::tcp::tcp_stream::role::asks, token, records_of_a_key));
    REQUIRE(b.encrypt(io::tcp::tcp_stream::role::answers, token, records_of_a_key));
  }

  /// Forwards all but `keep_back` bytes from `a`, and everything from `b`.
  void pass_on(std::size_t keep_back = 0) {
    std::array<std::byte, 65536> some{};
    const std::array<iovec, 1> room{{{some.data(), some.size()}}};
    for (auto got = far_of_a.read(room); got.bytes > 0; got = far_of_a.read(room))
      of_a.insert(of_a.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    while (passed + keep_back < of_a.size()) {
      const auto n = far_of_b.write(std::array<iovec, 1>{{{of_a.data() + passed, of_a.size() - keep_back - passed}}});
      if (n.bytes == 0)
        break;
      passed += n.bytes;
    }
    for (auto got = far_of_b.read(room); got.bytes > 0; got = far_of_b.read(room))
      REQUIRE(far_of_a.write(std::array<iovec, 1>{{{some.data(), got.bytes}}}).bytes == got.bytes);
  }

  /// Until `b` has as many bytes as `a` was to send.
  void move(std::vector<std::byte>& from, std::vector<std::byte>& to) {
    std::size_t sent = 0;
    for (std::size_t got = 0; got < to.size(); pass_on()) {
      if (sent < from.size())
        sent += a.write(std::array<iovec, 1>{{{from.data() + sent, from.size() - sent}}}).bytes;
      const auto n = b.read(std::array<iovec, 1>{{{to.data() + got, to.size() - got}}});
      REQUIRE_FALSE(n.ended);
      got += n.bytes;
    }
  }

  io::tcp::tcp_stream a, b, far_of_a, far_of_b;
  std::vector<std::byte> of_a;
  std::size_t passed = 0;
};

} // namespace

TEST_CASE("tcp memory: a partial record yields no data", "[tcp]") {
  encrypted_pair ends(1000);
  auto some = byte_pattern(8000, 3);
  std::vector<std::byte> arrived(48);
  std::vector<std::byte> first(some.begin(), some.begin() + 48);
  ends.move(first, arrived);
  const std::array<iovec, 1> all{{{some.data(), some.size()}}};
  while (ends.a.write(all).bytes == 0)
    ends.pass_on();
  arrived.assign(some.size(), {});
  const std::array<iovec, 1> room{{{arrived.data(), arrived.size()}}};
  // The rest arrives in small parts.
  for (int i = 0; i < 100; ++i) {
    ends.pass_on(100);
    CHECK(ends.b.read(room).bytes == 0);
    CHECK_FALSE(ends.b.has_more());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ends.pass_on();
  std::size_t got = 0;
  while ((got = ends.b.read(room).bytes) == 0) {
    pollfd what{ends.b.descriptor(), POLLIN, 0};
    REQUIRE(::poll(&what, 1, 30000) == 1);
  }
  CHECK(got == some.size());
  CHECK(arrived == some);
}

TEST_CASE("tcp memory: decrypted data that is not yet read is reported, although poll does not show it", "[tcp]") {
  encrypted_pair ends(1000);
  auto some = byte_pattern(8000, 3);
  std::vector<std::byte> arrived(100);
  ends.move(some, arrived);
  CHECK(ends.b.has_more());
}

TEST_CASE("tcp memory: keys are renewed after a number of records", "[tcp]") {
  const std::uint64_t records_of_a_key = GENERATE(10, 1000);
  encrypted_pair ends(records_of_a_key);
  auto some = byte_pattern(2U << 20U, 4);
  std::vector<std::byte> arrived(some.size());
  ends.move(some, arrived);
  CHECK(arrived == some);
  // The order to take a new key is 5 bytes, to which TLS adds one, and 16 that prove it.
  std::size_t records = 0;
  std::size_t orders = 0;
  const auto byte_at = [&](std::size_t i) { return std::to_integer<std::size_t>(ends.of_a[i]); };
  for (std::size_t at = 0; at + 5 <= ends.of_a.size(); ++records) {
    const auto length = byte_at(at + 3) << 8U | byte_at(at + 4);
    orders += byte_at(at) == 23 && length == 22 ? 1 : 0;
    at += 5 + length;
  }
  CHECK(records > 120);
  CHECK(orders == (records_of_a_key == 10 ? 12 : 0));
}

TEST_CASE("tcp memory: records that were taken from the socket together are reported until they are read", "[tcp]") {
  encrypted_pair ends(1000);
  auto first = byte_pattern(48, 3);
  std::vector<std::byte> seen(first.size());
  ends.move(first, seen);
  constexpr std::size_t record = 16384;
  auto some = byte_pattern(3 * record, 5);
  std::vector<std::byte> arrived(record);
  // Everything is at the other end before it reads the first record.
  for (std::size_t sent = 0; sent < some.size(); ends.pass_on())
    sent += ends.a.write(std::array<iovec, 1>{{{some.data() + sent, some.size() - sent}}}).bytes;
  const std::array<iovec, 1> room{{{arrived.data(), arrived.size()}}};
  std::vector<std::byte> all;
  for (std::size_t reads = 0; all.size() < some.size();) {
    ends.pass_on();
    const auto n = ends.b.read(room);
    REQUIRE_FALSE(n.ended);
    all.insert(all.end(), arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(n.bytes));
    if (n.bytes == 0)
      CHECK_FALSE(ends.b.has_more());
    // The socket is empty after the first read, so only the stream knows of the others.
    pollfd what{ends.b.descriptor(), POLLIN, 0};
    if (n.bytes > 0 && reads++ < 2 && ::poll(&what, 1, 0) == 0)
      CHECK(ends.b.has_more());
  }
  CHECK(all == some);
  CHECK(ends.b.read(room).bytes == 0);
  CHECK_FALSE(ends.b.has_more());
}

TEST_CASE("tcp memory: when a write has returned, none of its records waits for another write", "[tcp]") {
  encrypted_pair ends(1000);
  // Also sizes that a write splits, and pieces of which one ends with a record.
  for (const std::size_t bytes : {1UL, 24UL, 16384UL, 16385UL, 40000UL, 32768UL}) {
    CAPTURE(bytes);
    auto some = byte_pattern(bytes, 6);
    auto head = byte_pattern(24, 7);
    std::vector<std::byte> arrived(head.size() + some.size());
    std::size_t got = 0;
    std::size_t sent = 0;
    while (got < arrived.size()) {
      if (sent < head.size())
        sent +=
            ends.a.write(std::array<iovec, 2>{{{head.data() + sent, head.size() - sent}, {some.data(), bytes}}}).bytes;
      else if (sent < arrived.size())
        sent += ends.a.write(std::array<iovec, 1>{{{some.data() + sent - head.size(), arrived.size() - sent}}}).bytes;
      int waiting = -1;
      REQUIRE(::ioctl(ends.a.descriptor(), SIOCOUTQNSD, &waiting) == 0);
      CHECK(waiting == 0);
      ends.pass_on();
      got += ends.b.read(std::array<iovec, 1>{{{arrived.data() + got, arrived.size() - got}}}).bytes;
    }
    CHECK(std::equal(head.begin(), head.end(), arrived.begin()));
    CHECK(std::equal(some.begin(), some.end(), arrived.begin() + 24));
  }
}

} // namespace io_tcp_records_test
