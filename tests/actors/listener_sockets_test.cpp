#include "base/descriptors.hpp"
#include "tests/actors/two_systems.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"

#include <caf/send.hpp>

#include <cstdint>
#include <filesystem>
#include <future>

/// The sockets of a node's listeners: their files, and their descriptors.

namespace listener_sockets_test {

using namespace troupe;
using test::two_systems;

TEST_CASE("listener: a removed Unix socket is detected and created again", "[listeners]") {
  two_systems w;
  auto& open = *w.ways_in.open;
  REQUIRE(std::filesystem::remove(w.ways_in.socket));
  CHECK_FALSE(open.local_is_there());
  REQUIRE(open.reopen_local());
  CHECK(open.local_is_there());
  w.find();
  REQUIRE(std::filesystem::remove(w.ways_in.socket));
  caf::anon_send_exit(open.dialer(), caf::exit_reason::kill);
  REQUIRE_FALSE(open.reopen_local());
  CHECK_FALSE(open.local_is_there());
  CHECK_FALSE(std::filesystem::exists(w.ways_in.socket));
}

TEST_CASE("listener: a socket is closed although its listener ends right after it was opened", "[listeners]") {
  two_systems w;
  auto& open = *w.ways_in.open;
  w.find();
  const auto before = open_descriptors();
  // While this thread stands still, what comes for it waits, and it is handled at once.
  std::promise<void> resume;
  w.here.middleman().backend().post([resumed = resume.get_future().share()] { resumed.wait(); });
  constexpr std::uint64_t times = 16;
  for (std::uint64_t i = 0; i < times; ++i) {
    REQUIRE(std::filesystem::remove(w.ways_in.socket));
    REQUIRE(open.reopen_local());
  }
  resume.set_value();
  // Each listener has two descriptors; other parts of the node open and close some, too.
  CHECK(test::eventually([&] { return open_descriptors() < before + times; }));
  w.find();
}

TEST_CASE("listener: descriptors for its connections are reserved", "[listeners]") {
  const auto before = set_aside_descriptors();
  {
    const two_systems w;
    // A connection, and the process at its other end; a little where few files may be open.
    CHECK(set_aside_descriptors() > before);
    CHECK(set_aside_descriptors() <= before + 2 * std::uint64_t{w.node_options.actors.max_connections});
  }
  CHECK(set_aside_descriptors() == before);
}

} // namespace listener_sockets_test
