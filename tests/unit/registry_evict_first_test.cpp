#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <random>
#include <vector>

namespace registry_evict_first_test {

/// Keys of which a peer has pages too, and which are therefore evicted first.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket theirs{7, 1};
constexpr ticket ours{8, 1};

struct home : one_registry {
  explicit home(eviction_factory policy = make_lru_policy, std::uint32_t world_size = 1)
      : one_registry(world_size, options_with(policy)) {}
  /// Another node gives its lease back, and keeps these.
  result<void> kept_there(ticket lease, const keys_t& keys, std::int64_t now = 0) {
    release_request x{ns, lease, 0};
    x.kept_there.items = keys;
    return state.release(x, at(now));
  }
  void save_transient(const keys_t& keys, rank_number rank = 0) { save(keys, rank, {}, 0, page_origin::transient); }
};

} // namespace

TEST_CASE("registry evict first: keys that a peer keeps are evicted before all others, from the end of the chain",
          "[registry]") {
  home r(GENERATE(from_range(policies())));
  const auto old = some_keys(100, 10);
  const auto taken = some_keys(1, 6);
  r.save(old);
  r.save(taken, 0, chain_parents(taken));
  CHECK(r.match(theirs, taken) == 6);
  must(r.kept_there(theirs, taken));
  CHECK(r.state.stats().evict_first_keys == 6);
  CHECK(r.state.check_invariants() == "");
  CHECK(r.evict(2).slots == 2);
  CHECK(r.count_of(taken) == 4);
  CHECK_FALSE(r.has(taken[5]));
  CHECK_FALSE(r.has(taken[4]));
  CHECK(r.evict(4).slots == 4);
  CHECK(r.count_of(taken) == 0);
  CHECK(r.count_of(old) == 10);
  CHECK(r.state.stats().evict_first_keys == 0);
  CHECK(r.evict(10).slots == 10);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: an evict-first key neither waits for its children nor delays others", "[registry]") {
  home r;
  const auto chain = some_keys(1, 8);
  r.save(chain, 0, chain_parents(chain));
  // The first five are read elsewhere; what follows has been used no longer ago.
  const keys_t first(chain.begin(), chain.begin() + 5);
  CHECK(r.match(theirs, first) == 5);
  must(r.kept_there(theirs, first));
  CHECK(r.evict(5).slots == 5);
  CHECK(r.count_of(first) == 0);
  CHECK(r.count_of(chain) == 3);
  CHECK(r.state.check_invariants() == "");
  // It does not wait for a held one either.
  home s;
  s.save(chain, 0, chain_parents(chain));
  CHECK(s.match(ours, {chain[1]}) == 1);
  CHECK(s.match(theirs, {chain[0]}) == 1);
  CHECK(s.evict(8).slots == 6);
  must(s.kept_there(theirs, {chain[0]}));
  CHECK(s.evict(1).slots == 1);
  CHECK_FALSE(s.has(chain[0]));
  CHECK(s.state.check_invariants() == "");
}

TEST_CASE("registry evict first: an evict-first key that is used becomes a normal one", "[registry]") {
  home r(GENERATE(from_range(policies())));
  const auto old = some_keys(100, 4);
  const auto taken = some_keys(1, 4);
  r.save(old);
  r.save(taken);
  CHECK(r.match(theirs, taken) == 4);
  must(r.kept_there(theirs, taken));
  CHECK(r.count({taken[1]}) == 1);
  CHECK(r.state.stats().evict_first_keys == 3);
  CHECK(r.evict(3).slots == 3);
  CHECK(r.has(taken[1]));
  CHECK(r.count_of(old) == 4);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: held keys stay, evict-first or not, and evict-first ones go first when released",
          "[registry]") {
  home r;
  const auto old = some_keys(100, 4);
  const auto taken = some_keys(1, 4);
  r.save(old);
  r.save(taken);
  CHECK(r.match(theirs, taken) == 4);
  CHECK(r.match(ours, {taken[2]}) == 1);
  must(r.kept_there(theirs, taken));
  CHECK(r.evict(4).slots == 4);
  CHECK(r.has(taken[2]));
  CHECK(r.count_of(old) == 3);
  r.release(ours);
  CHECK(r.evict(1).slots == 1);
  CHECK_FALSE(r.has(taken[2]));
  CHECK(r.count_of(old) == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: only keys of an existing lease become evict-first", "[registry]") {
  home r;
  const auto keys = some_keys(1, 4);
  r.save(keys);
  CHECK(r.match(theirs, {keys[0], keys[1]}) == 2);
  CHECK(r.match(ours, {keys[2]}) == 1);
  must(r.kept_there(theirs, keys));
  CHECK(r.info(keys[0])->evict_first);
  CHECK(r.info(keys[1])->evict_first);
  CHECK_FALSE(r.info(keys[2])->evict_first);
  CHECK_FALSE(r.info(keys[3])->evict_first);
  // A repeated message, or one after the lease has expired, succeeds without effect.
  must(r.kept_there(theirs, keys));
  CHECK(r.match({7, 2}, {keys[3]}) == 1);
  must(r.kept_there({7, 2}, {keys[3]}, 60));
  CHECK_FALSE(r.info(keys[3])->evict_first);
  CHECK(r.state.stats().evict_first_keys == 2);
  // Not a key at all.
  CHECK(r.match({7, 3}, {keys[3]}) == 1);
  CHECK(r.kept_there({7, 3}, {key_digest{}}).error().code == errc::invalid_argument);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: a page that is erased under the lease is not evict-first when it is stored again",
          "[registry]") {
  home r;
  const auto keys = some_keys(1, 2);
  const auto pages = r.save(keys);
  CHECK(r.match(theirs, keys) == 2);
  REQUIRE(r.state.invalidate({r.ns, 0, {pages}, {}}, at(0)));
  must(r.kept_there(theirs, keys));
  CHECK(r.state.stats().evict_first_keys == 0);
  r.save(keys);
  CHECK_FALSE(r.info(keys[0])->evict_first);
  // An evict-first page that is evicted is normal when it is stored again.
  CHECK(r.match({7, 2}, keys) == 2);
  must(r.kept_there({7, 2}, keys));
  CHECK(r.evict(2).slots == 2);
  r.save(keys);
  CHECK(r.state.stats().evict_first_keys == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: a page that is replaced under the lease is not made evict-first by the lease",
          "[registry]") {
  home r;
  const auto keys = some_keys(1, 2);
  const auto pages = r.save(keys);
  CHECK(r.match(theirs, keys) == 2);
  REQUIRE(r.state.invalidate({r.ns, 0, {{pages[0]}}, {}}, at(0)));
  r.save({keys[0]});
  must(r.kept_there(theirs, keys));
  CHECK_FALSE(r.info(keys[0])->evict_first);
  CHECK(r.info(keys[1])->evict_first);
  // Later reads by a peer concern the new page.
  CHECK(r.match({7, 2}, keys) == 2);
  must(r.kept_there({7, 2}, keys));
  CHECK(r.info(keys[0])->evict_first);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE(
    "registry evict first: a transient key stays until it is read, is evicted first afterwards, and stays transient",
    "[registry]") {
  home r(GENERATE(from_range(policies())));
  const auto old = some_keys(100, 4);
  const auto transients = some_keys(1, 4);
  r.save(old);
  r.save_transient(transients);
  CHECK(r.state.stats().evict_first_keys == 0);
  CHECK(r.match(ours, transients) == 4);
  CHECK(r.state.stats().evict_first_keys == 0);
  r.release(ours);
  CHECK(r.state.stats().evict_first_keys == 4);
  CHECK(r.count(transients) == 4);
  CHECK(r.state.stats().evict_first_keys == 4);
  CHECK(r.evict(4).slots == 4);
  CHECK(r.count_of(old) == 4);
  CHECK(r.state.check_invariants() == "");
  // A new key in the entry of an evict-first one is normal.
  r.save(transients);
  CHECK(r.count(transients) == 4);
  CHECK(r.state.stats().evict_first_keys == 0);
}

TEST_CASE(
    "registry evict first: a key with a page of its own is not transient, whichever client stores the other ranks",
    "[registry]") {
  home r(make_lru_policy, 2);
  const auto keys = some_keys(1, 3);
  r.save(keys, 0);
  r.save_transient(keys, 1);
  CHECK(r.count(keys) == 3);
  CHECK(r.state.stats().evict_first_keys == 0);
  const auto transients = some_keys(10, 3);
  r.save_transient(transients, 0);
  r.save_transient(transients, 1);
  CHECK(r.count(transients) == 3);
  CHECK(r.state.stats().evict_first_keys == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: any order of saving, reading, marking and evicting leaves nothing behind",
          "[registry]") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  home r(policies()[seed % policies().size()]);
  std::vector<std::pair<ticket, keys_t>> held;
  std::uint64_t sequence = 0;
  for (int step = 0; step < 1500; ++step) {
    const auto keys = some_keys(1 + 20 * (random() % 5), 1 + random() % 12);
    switch (random() % 5) {
    case 0:
      r.save(keys, 0, chain_parents(keys));
      break;
    case 1:
      r.save_transient(keys);
      break;
    case 2: {
      const ticket lease{7, ++sequence};
      if (r.match(lease, keys) > 0)
        held.emplace_back(lease, keys);
      break;
    }
    case 3:
      if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        must(r.kept_there(held.back().first, random() % 2 == 0 ? held.back().second : keys_t{}));
        held.pop_back();
      }
      break;
    default:
      r.evict(static_cast<std::uint32_t>(random() % 10));
    }
    REQUIRE(r.state.check_invariants() == "");
  }
  for (const auto& [lease, keys] : held)
    r.release(lease);
  // Some transient keys were not read.
  while (r.evict(64, 0, 10).slots > 0) {
  }
  CHECK(r.state.keys() == 0);
  CHECK(r.state.stats().evict_first_keys == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict first: a lookup by a peer counts as a use there, for found and missing keys", "[registry]") {
  home r(make_reuse_policy);
  const auto keys = some_keys(1, 4);
  r.save(keys);
  const auto uses = [&] {
    const auto notified = r.state.report_reuse({r.ns}).value();
    CHECK(notified.clock == 4);
    return reuse_counts::of_numbers(notified.counts.items).value().used[0][0];
  };
  CHECK(r.evict(1).slots == 1);
  // For a local engine missing keys are not uses, and they are tracked.
  CHECK(r.match(ours, keys) < 4);
  const auto before = uses();
  match_request asked{r.ns, theirs, std::chrono::seconds(10), keys};
  asked.by_peer = true;
  CHECK(r.state.match(asked, at(0)).value().matched < 4);
  r.release(ours);
  match_request again{r.ns, {7, 9}, std::chrono::seconds(10), keys};
  again.by_peer = true;
  REQUIRE(r.state.match(again, at(0)));
  CHECK(uses() == before + 1);
}

TEST_CASE("registry evict first: a shard exports its statistics and imports those of others where its policy learns",
          "[registry]") {
  home r(make_reuse_policy);
  const auto notified = r.state.report_reuse({r.ns}).value();
  CHECK(notified.clock == 0);
  CHECK(r.state.learn_reuse({r.ns, notified.counts}));
  CHECK(r.state.learn_reuse({r.ns, {}}).error().code == errc::invalid_argument);
  CHECK(r.state.report_reuse({namespace_id{}}).error().code == errc::unknown_namespace);
  CHECK(r.state.learn_reuse({namespace_id{}, notified.counts}).error().code == errc::unknown_namespace);
  home plain(make_lru_policy);
  CHECK(plain.state.report_reuse({plain.ns}).error().code == errc::unsupported);
  CHECK(plain.state.learn_reuse({plain.ns, notified.counts}));
}

} // namespace registry_evict_first_test
