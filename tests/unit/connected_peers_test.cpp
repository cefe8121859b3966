#include "actors/support/listeners/connected_peers.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>

namespace connected_peers_test {

using namespace troupe;

TEST_CASE("connected peers: a peer on the Unix socket is found by its handshake name while it is connected",
          "[listeners]") {
  connected_peers all;
  CHECK_FALSE(all.find("a"));
  all.came("a", {4711});
  all.came("b", {4712});
  REQUIRE(all.find("a"));
  CHECK(all.find("a")->number == 4711);
  CHECK(all.find("a")->handover == all.find("a")->handover);
  CHECK(all.find("a")->handover != all.find("b")->handover);
  all.left("a");
  CHECK_FALSE(all.find("a"));
  CHECK(all.find("b"));
  all.left("a");
}

TEST_CASE("connected peers: passed descriptors are taken once, and only the last ones", "[listeners]") {
  descriptor_handover x;
  const auto some = [](std::size_t count) {
    std::vector<unique_descriptor> out;
    for (std::size_t i = 0; i < count; ++i)
      out.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return out;
  };
  CHECK(x.take().empty());
  x.put(some(1));
  x.put(some(2));
  auto taken = x.take();
  CHECK(taken.size() == 2);
  CHECK(x.take().empty());
  // The socket was full.
  x.put_back(std::move(taken));
  CHECK(x.take().size() == 2);
  x.put(some(3));
  x.put_back(some(2));
  CHECK(x.take().size() == 3);
  CHECK(x.take().empty());
}

} // namespace connected_peers_test
