#include "lmcache/connection_table.hpp"
#include "tests/catch.hpp"

namespace lmcache_connections_test {

using namespace troupe;
using namespace troupe::lmcache;

TEST_CASE("A message is from the connection that it was sent by, whoever has its descriptor by then", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  CHECK_FALSE(table.begun(6));
  auto* const x = table.find(5, first);
  REQUIRE(x != nullptr);
  CHECK(x->number == 0);
  table.enroll(*x, "a");
  const auto number = x->number;
  CHECK(table.clients() == 1);
  REQUIRE(table.name_of(number) != nullptr);
  CHECK(*table.name_of(number) == "a");

  // Its end, and messages of it that come later.
  CHECK(table.ended(5) == number);
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.name_of(number) == nullptr);
  CHECK(table.clients() == 0);
  CHECK_FALSE(table.ended(5));

  // Also those that come when another one has the descriptor, before and after the first message of that one.
  CHECK_FALSE(table.begun(5));
  CHECK(table.find(5, first) == nullptr);
  auto* const y = table.find(5, table.now());
  REQUIRE(y != nullptr);
  table.enroll(*y, "b");
  CHECK(y->number != number);
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.ended(5) == y->number);
}

TEST_CASE("A connection of which nothing has come ends as nobody", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  CHECK_FALSE(table.ended(5));
  CHECK_FALSE(table.ended(7));
  CHECK(table.clients() == 0);
}

TEST_CASE("A descriptor has one connection: where an end was not told of, the next beginning tells", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  table.enroll(*table.find(5, first), "a");
  CHECK(table.begun(5) == client_number{1});
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.clients() == 0);
}

} // namespace lmcache_connections_test
