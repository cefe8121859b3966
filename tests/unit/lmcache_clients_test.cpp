#include "lmcache/client_list.hpp"
#include "tests/catch.hpp"

namespace lmcache_clients_test {

using namespace troupe;
using namespace troupe::lmcache;
using protocol::version;
using protocol::version_set;

TEST_CASE("lmcache clients: a client has the versions that fit all of its messages", "[lmcache]") {
  client_list list;
  list.connected(1, {0, 1000});
  const auto versions = [&] { return protocol::to_string(list.find(1)->versions); };
  CHECK(versions() == "0.5.6 or 0.5.7");
  list.served(1, version_set::all());
  CHECK(versions() == "0.5.6 or 0.5.7");
  list.served(1, {version::v0_5_6});
  list.served(1, version_set::all());
  CHECK(versions() == "0.5.6");
  // A client was updated behind the same connection.
  list.served(1, {version::v0_5_7});
  CHECK(versions() == "0.5.7");
  list.malformed(1);
  list.differed(1, "a key");
  const auto x = list.find(1);
  CHECK(x->requests == 5);
  CHECK(x->malformed == 1);
  CHECK(x->difference == "a key");
  CHECK(to_string(*x) == "client 1 (user 1000, LMCache 0.5.7)");
}

TEST_CASE("lmcache clients: clients are listed while they are connected", "[lmcache]") {
  client_list list;
  for (client_number i = 1; i <= 20; ++i)
    list.connected(i, {0, 0});
  CHECK(list.size() == 20);
  CHECK(list.all(5).size() == 5);
  CHECK(list.all(5).front().number == 1);
  list.disconnected(1);
  CHECK_FALSE(list.find(1));
  CHECK(list.all(100).size() == 19);
  // A disconnected client leaves no data.
  list.served(1, version_set::all());
  list.malformed(1);
  list.differed(1, "x");
  CHECK(list.size() == 19);
}

} // namespace lmcache_clients_test
