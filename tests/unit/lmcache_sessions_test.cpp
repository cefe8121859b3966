#include "lmcache/session_table.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lmcache_sessions_test {

using namespace troupe;
using namespace troupe::lmcache;

namespace {

constexpr timestamp start{};

struct lock_table {
  session_table table{{8, std::chrono::seconds(10)}};
  timestamp time = start;

  void found(client_number client, const std::string& request, std::uint32_t chunks, std::uint64_t lease,
             std::uint32_t workers = 1, std::uint32_t readers = 1) {
    const auto lookup = table.begin(client, request, time);
    REQUIRE(lookup);
    REQUIRE(table.found(client, request, *lookup, {chunks, workers, readers, lease}, time));
  }
  std::vector<std::uint64_t> ended() { return table.take_ended(); }
};

using leases = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("lmcache sessions: a lease ends when every worker has retrieved its chunks", "[lmcache]") {
  lock_table x;
  x.found(1, "r", 3, 100, 2);
  CHECK(x.table.locks() == 6);
  x.table.retrieved("r", 0, 0, 3);
  CHECK(x.ended().empty());
  x.table.retrieved("r", 1, 1, 3);
  CHECK(x.ended().empty());
  x.table.freed(1, "r", 0, 1);
  CHECK(x.ended() == leases{100});
  CHECK(x.table.locks() == 0);
  x.table.ended(1, "r");
  CHECK(x.ended().empty());
  CHECK(x.table.sessions() == 0);
}

TEST_CASE("lmcache sessions: an abandoned lookup is reported once, however its session ends", "[lmcache]") {
  lock_table x;
  const auto a = *x.table.begin(1, "a", start);
  const auto again = *x.table.begin(1, "a", start);
  using lookups = std::vector<std::uint64_t>;
  CHECK(x.table.take_cancelled() == lookups{a});
  const auto b = *x.table.begin(1, "b", start);
  const auto c = *x.table.begin(2, "c", start);
  x.table.ended(1, "a");
  CHECK(x.table.take_cancelled() == lookups{again});
  x.table.client_disconnected(1);
  CHECK(x.table.take_cancelled() == lookups{b});
  x.table.tick(start + std::chrono::seconds(10));
  CHECK(x.table.take_cancelled() == lookups{c});
  CHECK(x.table.take_cancelled().empty());
  // An answered lookup is not abandoned.
  x.found(1, "d", 2, 100);
  x.table.ended(1, "d");
  CHECK(x.table.take_cancelled().empty());
  CHECK(x.ended() == leases{100});
}

TEST_CASE("lmcache sessions: a chunk is locked for each of its readers", "[lmcache]") {
  lock_table x;
  x.found(1, "r", 2, 100, 1, 3);
  for (int i = 0; i < 2; ++i) {
    x.table.retrieved("r", 0, 0, 2);
    CHECK(x.ended().empty());
  }
  x.table.retrieved("r", 0, 0, 2);
  CHECK(x.ended() == leases{100});
  // One more than there are locks unlocks nothing of others.
  x.found(2, "r", 2, 101, 1, 1);
  x.table.retrieved("r", 0, 0, 3);
  CHECK(x.ended().empty());
}

TEST_CASE("lmcache sessions: a lease ends with its request, its client or its time", "[lmcache]") {
  lock_table x;
  x.found(1, "a", 2, 1);
  x.found(1, "b", 2, 2);
  x.found(2, "a", 2, 3);
  x.table.ended(1, "a");
  CHECK(x.ended() == leases{1});
  x.table.client_disconnected(1);
  CHECK(x.ended() == leases{2});
  x.table.tick(start + std::chrono::seconds(9));
  CHECK(x.ended().empty());
  x.table.tick(start + std::chrono::seconds(10));
  CHECK(x.ended() == leases{3});
  CHECK(x.table.expired() == 1);
  CHECK(x.table.sessions() == 0);
}

TEST_CASE("lmcache sessions: the status of a lookup is reported once", "[lmcache]") {
  lock_table x;
  const auto lookup = x.table.begin(1, "r", start);
  CHECK(x.table.pending(1, "r"));
  CHECK(x.table.take_status(1, "r").pending);
  CHECK_FALSE(x.table.take_status(2, "r").pending);
  CHECK(x.table.found(1, "r", *lookup, {5, 1, 1, 7}, start));
  CHECK(x.table.take_status(1, "r").chunks == 5);
  CHECK(x.table.take_status(1, "r").chunks == 0);
  CHECK_FALSE(x.table.take_status(1, "r").pending);
  CHECK(x.table.locks() == 5);
}

TEST_CASE("lmcache sessions: stores of a request are of whole blocks from what the engine has computed itself on",
          "[lmcache]") {
  lock_table x;
  CHECK_FALSE(x.table.computed_from("r", 0));
  auto lookup = x.table.begin(1, "r", start);
  CHECK_FALSE(x.table.computed_from("r", 0));
  lookup = x.table.begin(1, "r", start, 3);
  CHECK(x.table.computed_from("r", 0) == 3);
  CHECK(x.table.found(1, "r", *lookup, {5, 1, 1, 7}, start));
  CHECK(x.table.computed_from("r", 5) == 5);
  // Its load has failed, and nothing says what it had itself then.
  CHECK_FALSE(x.table.computed_from("r", 0));
  CHECK_FALSE(x.table.computed_from("r", 5));
  lookup = x.table.begin(1, "r", start, 0);
  CHECK(x.table.computed_from("r", 0) == 0);
  // Another engine has a request of this name.
  static_cast<void>(x.table.begin(2, "r", start, 4));
  CHECK(x.table.computed_from("r", 2) == 4);
  x.table.ended(2, "r");
  static_cast<void>(x.table.begin(2, "r", start));
  CHECK_FALSE(x.table.computed_from("r", 2));
  x.table.ended(1, "r");
  x.table.ended(2, "r");
  CHECK_FALSE(x.table.computed_from("r", 2));
}

TEST_CASE("lmcache sessions: the result of an abandoned lookup is not held", "[lmcache]") {
  lock_table x;
  const auto first = x.table.begin(1, "r", start);
  x.table.ended(1, "r");
  CHECK_FALSE(x.table.found(1, "r", *first, {5, 1, 1, 7}, start));
  // The repeated request is separate: the answer to the first lookup is not that of the second.
  const auto second = x.table.begin(1, "r", start);
  CHECK_FALSE(x.table.found(1, "r", *first, {5, 1, 1, 7}, start));
  CHECK(x.table.found(1, "r", *second, {4, 1, 1, 8}, start));
  // And a lookup of a request that holds something gives that back.
  CHECK(x.table.begin(1, "r", start));
  CHECK(x.ended() == leases{8});
}

TEST_CASE("lmcache sessions: the number of sessions is bounded", "[lmcache]") {
  lock_table x;
  for (int i = 0; i < 8; ++i)
    CHECK(x.table.begin(1, std::to_string(i), start));
  CHECK_FALSE(x.table.begin(1, "one more", start));
  CHECK(x.table.begin(1, "0", start));
}

TEST_CASE("lmcache sessions: no order of messages leaks a lock, or ends a lease twice", "[lmcache]") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  lock_table x;
  std::uint64_t last_lease = 0;
  // The model has every lease with its owner and deadline, and the unanswered lookups.
  struct taken {
    client_number client;
    std::string request;
    timestamp until;
  };
  std::map<std::uint64_t, taken> held;
  std::map<std::pair<client_number, std::string>, std::uint64_t> pending;
  const auto settle = [&] {
    for (const auto lease : x.ended()) {
      INFO("lease " << lease);
      REQUIRE(held.erase(lease) == 1);
    }
  };
  for (int step = 0; step < 4000; ++step) {
    const client_number client = 1 + random() % 3;
    const auto request = std::string(1, static_cast<char>('a' + random() % 3));
    const auto begin = random() % 4;
    const auto end = begin + random() % 3;
    const std::pair name(client, request);
    switch (random() % 9) {
    case 0:
    case 1:
      if (const auto lookup = x.table.begin(client, request, x.time))
        pending[name] = *lookup;
      break;
    case 2:
    case 3:
      if (pending.contains(name)) {
        const auto lease = ++last_lease;
        const auto chunks = random() % 4;
        if (x.table.found(client, request, pending[name],
                          {static_cast<std::uint32_t>(chunks), 1 + static_cast<std::uint32_t>(random() % 2),
                           static_cast<std::uint32_t>(random() % 3), lease},
                          x.time) &&
            chunks > 0)
          held[lease] = {client, request, x.time + std::chrono::seconds(10)};
        pending.erase(name);
      }
      break;
    case 4:
      x.table.retrieved(request, static_cast<std::uint32_t>(random() % 3), static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(end));
      break;
    case 5:
      x.table.freed(client, request, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
      break;
    case 6:
      x.table.ended(client, request);
      settle();
      for (const auto& [lease, y] : held)
        REQUIRE((y.client != client || y.request != request));
      break;
    case 7:
      if (random() % 8 == 0) {
        x.table.client_disconnected(client);
        settle();
        for (const auto& [lease, y] : held)
          REQUIRE(y.client != client);
      }
      break;
    default:
      x.time += std::chrono::seconds(random() % 3);
      x.table.tick(x.time);
      settle();
      for (const auto& [lease, y] : held)
        REQUIRE(y.until > x.time);
    }
    settle();
    // One lease of each request of a client at most, and locks exactly while there are leases.
    std::set<std::pair<client_number, std::string>> holders;
    for (const auto& [lease, y] : held)
      REQUIRE(holders.insert({y.client, y.request}).second);
    REQUIRE((x.table.locks() > 0) == !held.empty());
  }
  x.table.tick(x.time + std::chrono::hours(1));
  settle();
  CHECK(held.empty());
  CHECK(x.table.locks() == 0);
  CHECK(x.table.sessions() == 0);
}

} // namespace lmcache_sessions_test
