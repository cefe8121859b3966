#include "tests/catch.hpp"
#include "tests/integration/lmcache_driven_engine.hpp"
#include "tests/integration/support.hpp"

#include <numeric>

namespace lmcache_instances_test {

/// Who is who among workers whose blocks the node copies, when they register more than once.

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::driven;

TEST_CASE("who registers the same memory again is copied for no more", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["memory"]["client_bytes"] = "64 KiB";
  serving_node node(write_config(scratch.path(), config));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  std::vector<std::uint32_t> all(blocks - 2);
  std::iota(all.begin(), all.end(), 2U);
  constexpr auto chunks = (blocks - 2) / blocks_per_chunk;
  one.fill(1, all);
  for (std::uint32_t sequence = 1; sequence < 60; ++sequence)
    one.worker.send(store, {lmcache_key(sequence, "s", 0, chunks, 0), 1, json::array({all}), json::binary({})});
  // As a worker whose server was away does, when its engine has given the blocks to other requests.
  one.enroll();
  one.memory.wipe();
  CHECK(one.worker.call(ping, {1}) == true);
  for (std::uint32_t sequence = 1; sequence < 60; ++sequence) {
    INFO("sequence " << sequence);
    const auto request = one.new_request();
    const auto found = one.look_up(sequence, chunks, request);
    const std::vector<std::uint32_t> to(all.begin(), all.begin() + found * blocks_per_chunk);
    if (found == 0)
      continue;
    REQUIRE(one.get(sequence, 0, to, 0, request));
    CHECK(one.holds(1, 0, to));
  }
  one.fill(100, all);
  CHECK(one.put(100, all));
  CHECK(node.stop() == 0);
}

TEST_CASE("two workers that have one number are two workers", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1);
  one.fill(1, {1, 2, 3, 4});
  driven_engine other(port, 1);
  other.fill(2, {1, 2, 3, 4});
  CHECK(one.worker.call(ping, {1}) == true);
  CHECK(other.worker.call(ping, {1}) == true);
  CHECK(one.put(1, {1, 2, 3, 4}));
  CHECK(other.put(2, {1, 2, 3, 4}));
  CHECK(other.get(1, 0, {5, 6, 7, 8}));
  CHECK(other.holds(1, 0, {5, 6, 7, 8}));
  CHECK(one.get(2, 0, {5, 6, 7, 8}));
  CHECK(one.holds(2, 0, {5, 6, 7, 8}));
  // Who comes by another connection is not known, also when it is one of them: so it registers again.
  lmcache_client again(port);
  CHECK(again.call(ping, {1}) == false);
  CHECK_FALSE(one.done(again.call(store, {lmcache_key(3, "r", 0, 1, 0), 1, json::array({{1, 2}}), json::binary({})})));
  CHECK_FALSE(again.call(unregister_memory, {1}));
  CHECK(again.call(ping, {1}) == true);
  CHECK_FALSE(one.worker.call(unregister_memory, {1}));
  CHECK(one.worker.call(ping, {1}) == false);
  CHECK(other.get(1, 0, {5, 6, 7, 8}));
  CHECK(node.stop() == 0);
}

} // namespace lmcache_instances_test
