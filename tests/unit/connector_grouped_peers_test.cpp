#include "tests/catch.hpp"
#include "tests/unit/grouped_scheduler_support.hpp"

#include <vector>

namespace connector_grouped_peers_test {

/// Lookups of a model with several groups of layers at a node that has peers.

using namespace troupe;
using namespace troupe::connector;
using namespace troupe::test::groups;

using std::chrono::seconds;

/// Full attention and a window of 5 tokens, of which this node has nothing, or only the first page of full attention.
struct searched : harness {
  explicit searched(const marks& full = {0, 0, 0}) : harness(two_groups()) {
    has_peers = true;
    ask("a", 13);
    answer(0, full);
    answer(1, {0, 0, 0});
  }
};

TEST_CASE(
    "connector grouped peers: peers are searched for what a longer hit may need, and exactly its pages are fetched",
    "[connector][groups]") {
  searched x({1, 0, 0});
  REQUIRE(x.lookups.size() == 2);
  for (const auto& each : x.lookups)
    CHECK(each.work.peers.what == peer_step::kind::search);
  CHECK(x.lookups[0].work.keys.size() == 2); // the first page is here
  CHECK(x.lookups[1].work.keys.size() == 3); // a hit of any length may be next
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(0, {1, 1}, {}, 5);
  CHECK(x.lookups.size() == 1);
  x.answer(1, {1, 1, 1}, {}, 6);
  REQUIRE(x.lookups.size() == 2);
  CHECK(x.lookups[0].work.peers.search == 5);
  CHECK(x.lookups[0].work.keys.size() == 2);
  CHECK(x.lookups[0].work.peers.parents.size() == 2);
  // A hit of three pages needs the last one of the window, which has no parent.
  CHECK(x.lookups[1].work.peers.search == 6);
  REQUIRE(x.lookups[1].work.keys.size() == 1);
  CHECK(x.lookups[1].work.keys[0] == x.lookups[0].work.keys[1]);
  CHECK(x.lookups[1].work.peers.parents.empty());
  CHECK_FALSE(x.ask("a", 13).tokens);
  x.answer(0, {1, 1});
  x.answer(1, {1});
  CHECK(x.ask("a", 13) == matched_tokens{12, true});
  CHECK(x.retained.size() == 3);
  CHECK(x.ended_searches.empty());
  CHECK(x.releases.empty());
}

TEST_CASE("connector grouped peers: where peers make no hit longer, what they hold is released, and nothing is fetched",
          "[connector][groups]") {
  searched x;
  x.answer(0, {1, 1, 1}, {}, 5);
  x.answer(1, {0, 0, 0});
  CHECK(x.lookups.empty());
  REQUIRE(x.ended_searches.size() == 1);
  CHECK(x.ended_searches[0].search == 5);
  CHECK(x.ended_searches[0].group == 0);
  CHECK(x.ask("a", 13) == matched_tokens{0, false});
}

TEST_CASE("connector grouped peers: a fetch that brought too little is followed by one search for a shorter hit",
          "[connector][groups]") {
  searched x;
  x.answer(0, {1, 1, 1}, {}, 5);
  x.answer(1, {1, 1, 1}, {}, 6);
  x.answer(0, {1, 1, 1});
  x.answer(1, {0}); // the window's page was damaged
  // All of full attention is here now. The window may have an earlier end.
  REQUIRE(x.lookups.size() == 1);
  CHECK(x.lookups[0].group == 1);
  CHECK(x.lookups[0].work.peers.what == peer_step::kind::search);
  x.answer(1, {1, 1, 0}, {}, 7);
  REQUIRE(x.lookups.size() == 1);
  CHECK(x.lookups[0].work.peers.what == peer_step::kind::fetch);
  CHECK(x.lookups[0].work.keys.size() == 1);
  SECTION("which is the hit") {
    x.answer(1, {1});
    CHECK(x.ask("a", 13) == matched_tokens{8, true});
    CHECK(x.retained.size() == 2);
    CHECK(x.retained[0].keys.size() == 2); // and not the third page, which was fetched
  }
  SECTION("and no other one") {
    x.answer(1, {0});
    CHECK(x.lookups.empty());
    CHECK(x.ask("a", 13) == matched_tokens{0, false});
    CHECK(x.state.leases_held() == 0);
  }
}

TEST_CASE(
    "connector grouped peers: at the end of its patience a lookup takes what is here, and later answers are released",
    "[connector][groups]") {
  searched x;
  SECTION("during a search") {
    x.answer(0, {1, 1, 1}, {}, 5);
    x.now += seconds(5);
    CHECK(x.ask("a", 13) == matched_tokens{0, false});
    CHECK(x.ended_searches.size() == 1);
    x.answer(1, {1, 1, 1}, {}, 6);
    CHECK(x.lookups.empty());
    CHECK(x.ended_searches.size() == 2);
  }
  SECTION("during a fetch") {
    x.answer(0, {1, 1, 1}, {}, 5);
    x.answer(1, {1, 1, 1}, {}, 6);
    x.answer(0, {1, 1, 1});
    x.now += seconds(5);
    CHECK(x.ask("a", 13) == matched_tokens{0, false});
    CHECK(x.releases.size() == 1);
    x.answer(1, {1});
    CHECK(x.releases.size() == 2);
  }
  CHECK(x.state.leases_held() == 0);
}

TEST_CASE("connector grouped peers: a request that ends while peers are asked leaves nothing with them",
          "[connector][groups]") {
  searched x;
  x.answer(0, {1, 1, 1}, {}, 5);
  x.finish("a");
  CHECK(x.ended_searches.size() == 1);
  x.answer(1, {1, 1, 1}, {}, 6);
  CHECK(x.ended_searches.size() == 2);
  CHECK(x.lookups.empty());
}

TEST_CASE("connector grouped peers: peers are not searched where all is here, or no hit could be longer",
          "[connector][groups]") {
  harness x(two_groups());
  x.has_peers = true;
  x.ask("a", 13);
  x.answer(0, {1, 1, 1});
  x.answer(1, {0, 0, 1});
  CHECK(x.lookups.empty());
  CHECK(x.ask("a", 13) == matched_tokens{12, true});
}

TEST_CASE("connector grouped peers: a search waits until there is room for its lookups", "[connector][groups]") {
  auto options = two_groups();
  options.lookups_max = 3;
  harness x(options);
  x.has_peers = true;
  x.ask("a", 13);
  x.answer(0, {0, 0, 0});
  x.ask("b", 13);
  CHECK(x.lookups.size() == 3);
  x.answer(1, {0, 0, 0});
  CHECK(x.lookups.size() == 2); // one lookup is free, and the search needs two
  CHECK_FALSE(x.ask("a", 13).tokens);
  CHECK(x.lookups.size() == 2);
  x.answer(0, {1, 1, 1});
  CHECK_FALSE(x.ask("a", 13).tokens);
  REQUIRE(x.lookups.size() == 3);
  CHECK(x.lookups[1].work.peers.what == peer_step::kind::search);
}

} // namespace connector_grouped_peers_test
