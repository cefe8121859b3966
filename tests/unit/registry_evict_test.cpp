// Eviction, and the parents that it must not evict.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <algorithm>

namespace registry_evict_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using codes_t = std::vector<errc>;

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};

/// The keys of `all` that are still there with a page.
keys_t left_of(const one_registry& r, const keys_t& all) {
  keys_t out;
  for (const auto& key : all)
    if (const auto info = r.info(key); info && info->live > 0)
      out.push_back(key);
  return out;
}

keys_t first_of(const keys_t& keys, std::size_t n) {
  return {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n)};
}

} // namespace

TEST_CASE("registry evict: the least recently used key is evicted first, and of one batch the last one", "[registry]") {
  one_registry r;
  const auto a = some_keys(1, 3);
  const auto b = some_keys(11, 3);
  r.save(a);
  r.save(b);
  const auto reply = r.evict(2);
  CHECK(reply.slots == 2);
  CHECK(reply.more);
  CHECK(left_of(r, a) == first_of(a, 1));
  r.count(a); // used: b is older now
  r.evict(3);
  CHECK(left_of(r, a) == first_of(a, 1));
  CHECK(left_of(r, b).empty());
  CHECK(r.state.stats().evicted_keys == 5);
  CHECK(r.evict(5).slots == 1);
  CHECK_FALSE(r.evict(1).more);
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a key that is evicted for one rank counts for the others", "[registry]") {
  one_registry r(3);
  const auto keys = some_keys(1, 20);
  for (rank_number rank = 0; rank < 3; ++rank)
    r.save(keys, rank);
  const auto evict = [&](rank_number rank, std::uint32_t wanted, std::uint64_t seen) {
    return r.state.evict({r.ns, rank, wanted, false, seen}, at(0)).value();
  };
  // All ranks are short and have no progress yet.
  CHECK(evict(0, 4, 0).slots == 4);
  const auto answer = evict(1, 4, 0);
  CHECK(answer.slots == 4);
  CHECK(answer.more);
  CHECK(answer.progress == release_progress{0, 4, 16});
  CHECK(left_of(r, keys).size() == 16);
  SECTION("a rank that wants more asks again for the difference") {
    const auto first = evict(2, 7, 0);
    CHECK(first.slots == 4);
    CHECK(first.more);
    CHECK(left_of(r, keys).size() == 16);
    CHECK(evict(2, 3, first.progress.released).slots == 3);
    CHECK(left_of(r, keys).size() == 13);
  }
  SECTION("a repeated request evicts nothing") {
    CHECK(evict(0, 4, 0).slots == 4);
    CHECK(evict(0, 2, 3).slots == 1);
    CHECK(left_of(r, keys).size() == 16);
  }
  SECTION("a count from before a restart of the shard is ignored") {
    CHECK(evict(2, 3, 1000).slots == 3);
    CHECK(left_of(r, keys).size() == 13);
  }
  SECTION("a rank with more pages than the others gets its slots") {
    const auto mine = some_keys(101, 5);
    r.save(mine, 2);
    CHECK(evict(2, 30, 4).slots == 21);
    CHECK(r.state.keys() == 0);
    CHECK(evict(2, 30, 25).slots == 0);
    CHECK_FALSE(evict(2, 30, 25).more);
  }
  SECTION("released slots carry the progress for each rank") {
    CHECK(evict(0, 2, 4).slots == 2);
    auto out = r.state.take_outbox();
    REQUIRE(out.slots.size() == 3);
    for (const auto& x : out.slots) {
      CHECK(x.release.slots.size() == 6);
      CHECK(x.release.progress == release_progress{0, 6, 14});
    }
  }
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: every kind of use updates the recency", "[registry]") {
  one_registry r(1);
  const auto keys = some_keys(1, 4);
  for (const auto& key : keys)
    r.save({key});
  const auto oldest_but_one = [&] {
    r.evict(1);
    return left_of(r, keys);
  };
  SECTION("locate") {
    r.locate(alice, {keys[0]});
    r.release(alice);
  }
  SECTION("match") {
    r.count({keys[0]});
  }
  SECTION("reserve of an existing key") {
    r.begin(alice, {keys[0]});
  }
  CHECK(oldest_but_one() == keys_t{keys[0], keys[2], keys[3]});
}

TEST_CASE("registry evict: slots of all ranks are released, after the key is unpublished", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 1);
  const auto zero = r.save(keys, 0);
  const auto one = r.save(keys, 1);
  r.state.take_outbox();
  CHECK(r.evict(1, 1).slots == 1);
  const auto out = r.state.take_outbox();
  CHECK(r.for_rank(out, 0).release.slots.items == std::vector<slot_ref>{zero[0].where});
  CHECK(r.for_rank(out, 1).release.slots.items == std::vector<slot_ref>{one[0].where});
  CHECK(codes(r.locate(alice, keys, 0)) == codes_t{errc::not_found});
}

TEST_CASE("registry evict: incomplete keys are evicted like others, even where the rank has no page of them",
          "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 2);
  r.save(keys, 0, chain_parents(keys));
  r.save({keys[0]}, 1);
  // The only page of rank 1 lies under a child that has none there: the child has to go.
  const auto reply = r.evict(1, 1);
  CHECK(reply.slots == 1);
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: leased and reserved keys stay, and no key is considered twice in vain", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 3);
  r.save(keys, 0);
  r.match(alice, {keys[0]}); // incomplete: matches nothing
  r.locate(alice, {keys[0]}, 0);
  r.begin(bob, {keys[1]}, 1).value();
  auto reply = r.evict(3);
  CHECK(reply.slots == 1);
  CHECK(left_of(r, keys) == first_of(keys, 2));
  for (int i = 0; i < 3 && reply.more; ++i)
    reply = r.evict(3);
  CHECK_FALSE(reply.more);
  CHECK(r.evict(3).slots == 0);
  r.release(alice);
  CHECK(r.evict(3).slots == 1);
  r.abort(bob, {}, 1);
  CHECK(r.evict(3).slots == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a round without a victim ends over several calls and is not repeated needlessly",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 1000);
  r.save(keys);
  r.match(alice, keys);
  int calls = 0;
  for (auto reply = r.evict(1); reply.more; reply = r.evict(1)) {
    CHECK(reply.slots == 0);
    REQUIRE(++calls < 20); // 68 keys a call: 15 calls for a round
  }
  CHECK(calls == 14);
  CHECK_FALSE(r.evict(1).more); // known, without looking
  r.release(alice, 999);
  auto reply = r.evict(1);
  for (calls = 0; reply.slots == 0 && calls < 20; ++calls) {
    CHECK(reply.more);
    reply = r.evict(1);
  }
  CHECK(reply.slots == 1);
  CHECK(left_of(r, {keys[999]}).empty());
}

TEST_CASE("registry evict: a key that becomes free behind the current position is found by the next round",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 100);
  r.save(keys);
  r.match(alice, keys);
  CHECK(r.evict(1).more); // 68 of 100 looked at, from the last to the first
  r.release(alice, 99);   // the first that was looked at
  const auto second = r.evict(1);
  CHECK(second.slots == 0);
  CHECK(second.more);
  CHECK(r.evict(1).slots + r.evict(1).slots == 1);
}

TEST_CASE("registry evict: evictions per call are bounded", "[registry]") {
  one_registry r(1, {.max_eviction_looks = 100});
  r.save(some_keys(1, 500));
  const auto reply = r.evict(400);
  CHECK(reply.slots == 100);
  CHECK(reply.more);
  CHECK(r.evict(0).slots == 0);
}

TEST_CASE("registry evict: a parent is never evicted before its children", "[registry]") {
  one_registry r;
  const auto trunk = some_keys(1, 3);
  const auto branch = some_keys(11, 2);
  r.save(trunk, 0, chain_parents(trunk));
  r.save(branch, 0, {trunk[2], branch[0]});
  CHECK(r.info(trunk[2])->children == 1);
  // The branch is used alone, so that the trunk is the oldest.
  r.count(branch);
  r.evict(1);
  CHECK(left_of(r, trunk) == trunk);
  CHECK(left_of(r, branch) == first_of(branch, 1));
  r.evict(2);
  CHECK(left_of(r, branch).empty());
  CHECK(left_of(r, trunk) == first_of(trunk, 2));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: the stem of a chain is evicted with it, although it was used before its end was stored",
          "[registry]") {
  one_registry r;
  const auto chain = some_keys(1, 6);
  const auto parents = chain_parents(chain);
  r.save(first_of(chain, 3), 0, first_of(parents, 3));
  // As in a conversation, existing keys are found, and the rest is stored after them.
  r.count(chain);
  r.save({chain.begin() + 3, chain.end()}, 0, {parents.begin() + 3, parents.end()});
  const auto other = some_keys(11, 4);
  r.save(other, 0, chain_parents(other));
  CHECK(r.evict(4).slots == 4);
  CHECK(left_of(r, chain) == first_of(chain, 2));
  CHECK(r.evict(2).slots == 2);
  CHECK(left_of(r, chain).empty());
  CHECK(left_of(r, other) == other);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a shard waits for others to evict children of its oldest keys, unless it is forced",
          "[registry]") {
  one_registry r(1, {.shard = 0, .shard_count = 2});
  keys_t mine;
  for (std::uint64_t n = 1; mine.size() < 10; ++n)
    if (shard_of(key_of(n), 2) == 0)
      mine.push_back(key_of(n));
  const auto count = [&](const key_digest& key, std::int64_t delta) {
    must(r.state.count_children({r.ns, std::vector<child_delta>{{key, delta}}}, at(0)));
  };
  for (const auto& key : mine)
    r.save({key});
  for (std::size_t i = 0; i < 9; ++i)
    count(mine[i], 1);
  const auto evict = [&](bool force) { return r.state.evict({r.ns, 0, 1, force}, at(0)).value(); };
  // The last one could go, and is the youngest.
  auto reply = evict(false);
  CHECK(reply.slots == 0);
  CHECK(reply.more);
  CHECK(reply.progress == release_progress{0, 0, 10});
  // The key that waited longest for its children is evicted as soon as possible.
  count(mine[2], -1);
  CHECK(evict(false).slots == 1);
  CHECK_FALSE(r.info(mine[2]).has_value());
  CHECK(evict(false).slots == 0);
  CHECK(evict(true).slots == 1);
  CHECK_FALSE(r.info(mine[9]).has_value());
  // A key that is used does not wait any more.
  CHECK(r.count({mine[0]}) == 1);
  count(mine[0], -1);
  r.save({mine[9]});
  count(mine[1], -1);
  CHECK(evict(true).slots == 1);
  CHECK_FALSE(r.info(mine[1]).has_value());
  CHECK(r.info(mine[0]).has_value());
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a leased child protects its parents", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 4);
  r.save(keys, 0, chain_parents(keys));
  r.match(alice, {keys[3]});
  auto reply = r.evict(4);
  for (int i = 0; i < 5 && reply.more; ++i)
    reply = r.evict(4);
  CHECK(left_of(r, keys) == keys);
  CHECK_FALSE(reply.more);
}

TEST_CASE("registry evict: a parent that is stored later has its children counted", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  r.save({keys[2]}, 0, {keys[1]});
  auto ghost = r.info(keys[1]);
  REQUIRE(ghost.has_value());
  CHECK(ghost->ghost);
  CHECK(ghost->children == 1);
  // Neither a key, nor found, nor evicted.
  CHECK(r.state.keys() == 1);
  CHECK(r.count({keys[1]}) == 0);
  CHECK(codes(r.locate(alice, {keys[1]})) == codes_t{errc::not_found});
  r.save({keys[1]}, 0, {keys[0]});
  CHECK_FALSE(r.info(keys[1])->ghost);
  r.count({keys[2]});
  CHECK(r.evict(1).slots == 1);
  CHECK(left_of(r, keys) == keys_t{keys[1]});
  CHECK(r.evict(1).slots == 1);
  CHECK_FALSE(r.info(keys[0]).has_value()); // the ghost went with its last child
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: an entry without a parent adopts one that is named later, and keeps it", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  r.save(keys);
  r.begin(alice, {keys[1]}, 0, {keys[0]}).value();
  CHECK(r.info(keys[0])->children == 1);
  r.begin(alice, {keys[1]}, 0, {keys[2]}).value();
  CHECK(r.info(keys[1])->parent == keys[0]);
  CHECK(r.info(keys[2])->children == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a key that occurs twice in a request does not become its own ancestor", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const keys_t twice{keys[0], keys[1], keys[0]};
  SECTION("new keys") {
    r.save(twice, 0, chain_parents(twice));
  }
  SECTION("keys that are there already, without a parent") {
    r.save(keys);
    r.begin(alice, twice, 0, chain_parents(twice)).value();
  }
  CHECK(r.info(keys[0])->parent.is_null());
  CHECK(r.info(keys[1])->parent == keys[0]);
  CHECK(r.evict(2).slots == 2);
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a key that loses its only page below a child becomes a ghost and releases its parent",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  const auto saved = r.save(keys, 0, chain_parents(keys));
  r.state.invalidate({r.ns, 0, std::vector{saved[1]}}, at(0)).value();
  CHECK(r.info(keys[1])->ghost);
  CHECK(r.info(keys[0])->children == 0);
  r.save({keys[1]}, 0, {keys[0]});
  CHECK(r.info(keys[0])->children == 1);
  CHECK(r.info(keys[1])->children == 1);
  CHECK(r.count(keys) == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: an aborted child is not counted", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  r.save({keys[0]});
  r.reserve(alice, {keys[1]}, 0, {keys[0]});
  CHECK(r.info(keys[0])->children == 1);
  CHECK(r.evict(1).slots == 0);
  r.abort(alice, {});
  CHECK(r.info(keys[0])->children == 0);
  CHECK(r.evict(1).slots == 1);
}

TEST_CASE("registry evict: children in other shards count in any order of messages", "[registry]") {
  one_registry r(1, {.shard = 0, .shard_count = 2});
  std::uint64_t n = 1;
  const auto next_of = [&](std::uint32_t shard) {
    while (shard_of(key_of(n), 2) != shard)
      ++n;
    return key_of(n++);
  };
  const auto mine = next_of(0);
  const auto theirs = next_of(1);
  r.save({mine}, 0, {theirs});
  auto out = r.state.take_outbox();
  REQUIRE(out.children.size() == 1);
  CHECK(out.children[0].shard == 1);
  CHECK(out.children[0].request.changes.items == std::vector<child_delta>{{theirs, 1}});

  const auto count = [&](const key_digest& key, std::int64_t delta) {
    return r.state.count_children({r.ns, std::vector<child_delta>{{key, delta}}}, at(0));
  };
  CHECK(count(mine, 2).has_value());
  CHECK(r.evict(1).slots == 0);
  CHECK(count(mine, -2).has_value());
  CHECK(r.evict(1).slots == 1);
  out = r.state.take_outbox();
  REQUIRE(out.children.size() == 1);
  CHECK(out.children[0].request.changes.items == std::vector<child_delta>{{theirs, -1, 1}});

  const auto later = next_of(0);
  CHECK(count(later, -1).has_value());
  CHECK(r.info(later)->children == -1);
  r.save({later});
  CHECK(r.evict(1).slots == 1); // a negative count does not hold it
  CHECK(count(later, 1).has_value());
  CHECK_FALSE(r.info(later).has_value());
  CHECK(r.state.check_invariants() == "");

  CHECK(count({}, 1).error().code == errc::invalid_argument);
  CHECK(count(later, std::int64_t{1} << 40).error().code == errc::invalid_argument);
  CHECK(r.state.count_children({{1, 1}, {}}, at(0)).error().code == errc::unknown_namespace);
  CHECK(r.state.stats().refused == 3);
}

TEST_CASE("registry evict: a ghost that is dropped while a batch is reserved may be a later key of the batch",
          "[registry]") {
  one_registry r(1, {.shard = 0, .shard_count = 2});
  keys_t mine;
  for (std::uint64_t n = 1; mine.size() < 2; ++n)
    if (shard_of(key_of(n), 2) == 0)
      mine.push_back(key_of(n));
  must(r.state.count_children({r.ns, std::vector<child_delta>{{mine[1], -1}}}, at(0)));
  REQUIRE(r.info(mine[1])->children == -1);
  r.save(mine, 0, {mine[1], key_digest{}}); // the first is the second's child: its count is 0 for a moment
  CHECK(r.count(mine) == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a chain used in order is evicted from its end, each key when first considered",
          "[registry]") {
  one_registry r(1, {.max_eviction_looks = 512});
  for (std::uint64_t chain = 0; chain < 8; ++chain) {
    const auto keys = some_keys(1 + chain * 1000, 512);
    r.save(keys, 0, chain_parents(keys));
  }
  for (const std::uint64_t chain : {3U, 1U, 7U})
    r.count(some_keys(1 + chain * 1000, 512));
  for (int i = 0; i < 8; ++i)
    CHECK(r.evict(512).slots == 512);
  CHECK(r.state.keys() == 0);
}

TEST_CASE("registry evict: keys that name each other as parents are evicted in the end", "[registry]") {
  one_registry r(1, {.children_hold = std::chrono::seconds(20)});
  const auto ring = some_keys(1, 3);
  const auto others = some_keys(11, 2);
  SECTION("named in one request") {
    r.save(ring, 0, {ring[2], ring[0], ring[1]});
  }
  SECTION("named in several, also by keys that were there before") {
    r.save({ring[0]}, 0, {ring[2]});
    r.save({ring[1], ring[2]});
    r.begin(alice, {ring[1], ring[2]}, 0, {ring[0], ring[1]}).value();
  }
  CHECK(r.info(ring[0])->children == 1);
  r.save(others);
  const auto evict = [&](std::uint32_t wanted, std::int64_t now) {
    evict_reply reply;
    int asked = 0;
    do {
      REQUIRE(++asked < 100); // else there is always more, and never anything
      reply = r.state.evict({r.ns, 0, wanted}, at(now)).value();
    } while (reply.slots == 0 && reply.more);
    return reply.slots;
  };
  // Others go first, and the time counts from the moment when it would have been the ring's turn.
  CHECK(evict(1, 100) == 1);
  CHECK(left_of(r, ring) == ring);
  CHECK(evict(1, 110) == 1);
  CHECK(left_of(r, others).empty());
  CHECK(evict(3, 119) == 0);
  CHECK(left_of(r, ring) == ring);
  CHECK(evict(3, 121) == 3);
  CHECK(r.state.keys() == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: the time for which children protect a key restarts when it is used", "[registry]") {
  one_registry r(1, {.children_hold = std::chrono::seconds(20)});
  const auto keys = some_keys(1, 2);
  r.save(keys, 0, chain_parents(keys));
  const auto evict = [&](std::int64_t now) { return r.state.evict({r.ns, 0, 2}, at(now)).value().slots; };
  const auto hold_child = [&](std::int64_t now) {
    REQUIRE(r.state.locate({r.ns, 0, bob, std::chrono::seconds(500), keys_t{keys[1]}}, at(now)).has_value());
  };
  hold_child(0);
  CHECK(evict(10) == 0); // it would be the parent's turn
  SECTION("under a lease") {
    REQUIRE(r.state.locate({r.ns, 0, alice, std::chrono::seconds(5), keys_t{keys[0]}}, at(25)).has_value());
    r.state.tick(at(30));
  }
  SECTION("under protection") {
    r.state.protect({r.ns, 0, false, std::chrono::seconds(5), keys_t{keys[0]}}, at(25)).value();
  }
  CHECK(evict(35) == 0);
  CHECK(evict(54) == 0);
  CHECK(evict(56) == 1);
  CHECK(left_of(r, keys) == keys_t{keys[1]});
  r.release(bob);
  CHECK(evict(57) == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry evict: a parent cycle over two shards is evicted in the end", "[registry]") {
  one_registry r(1, {.shard = 0, .shard_count = 2, .children_hold = std::chrono::seconds(20)});
  std::uint64_t n = 1;
  while (shard_of(key_of(n), 2) != 0)
    ++n;
  const auto mine = key_of(n);
  while (shard_of(key_of(n), 2) != 1)
    ++n;
  const auto theirs = key_of(n);
  r.save({mine}, 0, {theirs});
  must(r.state.count_children({r.ns, std::vector<child_delta>{{theirs, 0}, {mine, 1}}}, at(0)));
  r.state.take_outbox();
  CHECK(r.state.evict({r.ns, 0, 1}, at(100)).value().slots == 0);
  CHECK(r.state.evict({r.ns, 0, 1}, at(121)).value().slots == 1);
  // The other shard is notified and has a key without children.
  const auto out = r.state.take_outbox();
  REQUIRE(out.children.size() == 1);
  CHECK(out.children[0].request.changes.items == std::vector<child_delta>{{theirs, -1, 1}});
}

TEST_CASE("registry evict: of keys written together the last one is evicted first, even if some existed before",
          "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 4);
  r.save({keys[1], keys[3]}, 0); // by another rank
  r.save(keys, 1);
  r.evict(1, 1);
  CHECK(left_of(r, keys) == first_of(keys, 3));
  r.evict(1, 1);
  CHECK(left_of(r, keys) == first_of(keys, 2));
  r.evict(1, 1);
  CHECK(left_of(r, keys) == first_of(keys, 1));
}

} // namespace registry_evict_test
