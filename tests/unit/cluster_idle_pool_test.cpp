#include "actors/cluster/peers/idle_pool.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <optional>

namespace cluster_idle_pool_test {

using namespace troupe;
using namespace troupe::cluster;
using namespace std::chrono_literals;

TEST_CASE("idle pool: the most recently returned object is taken first", "[cluster][idle_pool]") {
  idle_pool<int> pool(2, 10s);
  const timestamp start{};
  CHECK(pool.take() == std::nullopt);
  pool.put(1, start);
  pool.put(2, start);
  CHECK(pool.take() == 2);
  CHECK(pool.take() == 1);
  CHECK(pool.take() == std::nullopt);
}

TEST_CASE("idle pool: idle objects beyond the limit are destroyed in time", "[cluster][idle_pool]") {
  idle_pool<int> pool(2, 10s);
  const timestamp start{};
  for (int i = 0; i < 5; ++i)
    pool.put(i, start + i * 1s);
  CHECK(pool.take_expired(start + 9s) == std::nullopt);
  CHECK(pool.take_expired(start + 10s) == 0);
  CHECK(pool.take_expired(start + 10s) == std::nullopt);
  CHECK(pool.take_expired(start + 1h) == 1);
  CHECK(pool.take_expired(start + 1h) == 2);
  CHECK(pool.take_expired(start + 1h) == std::nullopt);
  CHECK(pool.size() == 2);
}

TEST_CASE("idle pool: objects that were taken meanwhile are not destroyed", "[cluster][idle_pool]") {
  idle_pool<int> pool(1, 10s);
  const timestamp start{};
  pool.put(1, start);
  pool.put(2, start);
  CHECK(pool.take() == 2);
  CHECK(pool.take_expired(start + 1h) == std::nullopt);
  pool.clear();
  CHECK(pool.size() == 0);
}

} // namespace cluster_idle_pool_test
