#include "actors/support/listeners/closing_sockets.hpp"
#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"

#include <array>
#include <sys/socket.h>

/// The deadlines of closed connections.

namespace listeners_closing_sockets_test {

using namespace troupe;
using std::chrono::seconds;

namespace {

struct socket_pair {
  socket_pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    here = unique_descriptor(ends[0]);
    there = unique_descriptor(ends[1]);
  }
  /// Whether the other end has been told that nothing more will come.
  bool is_cut() const {
    char byte = 0;
    return ::recv(there.get(), &byte, 1, 0) == 0;
  }

  unique_descriptor here;
  unique_descriptor there;
};

} // namespace

TEST_CASE("closed connections: a socket is shut down at its deadline, and not before", "[listeners]") {
  const timestamp start{};
  closing_sockets sockets;
  const socket_pair one;
  const socket_pair two;
  CHECK(sockets.add(&one, one.here.get(), start + seconds(2)));
  CHECK_FALSE(sockets.add(&two, two.here.get(), start + seconds(3))); // the checks run already
  CHECK(sockets.cut_late(start + seconds(1)));
  CHECK_FALSE(one.is_cut());
  CHECK(sockets.cut_late(start + seconds(2)));
  CHECK(one.is_cut());
  CHECK_FALSE(two.is_cut());
}

TEST_CASE("closed connections: a socket that was removed is left alone, and checks end with the last one",
          "[listeners]") {
  const timestamp start{};
  closing_sockets sockets;
  const socket_pair one;
  CHECK(sockets.add(&one, one.here.get(), start + seconds(2)));
  sockets.remove(&one);
  CHECK_FALSE(sockets.cut_late(start + seconds(2)));
  CHECK_FALSE(one.is_cut());
  CHECK(sockets.add(&one, one.here.get(), start + seconds(2))); // and start again
}

} // namespace listeners_closing_sockets_test
