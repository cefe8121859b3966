#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace registry_groups_test {

/// What is evicted where a model has several groups of layers, with a namespace each.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket reader{8, 1};

namespace_spec group(const char* label, const char* of = "both") {
  auto spec = namespace_of(1, std::string(label) + " of " + of);
  spec.model = "model";
  spec.layout = label;
  spec.group_of = of;
  return spec;
}

/// A group of full attention, in which a page has the one before it as parent, and one of states.
struct two_groups : one_registry {
  explicit two_groups(eviction_factory policy = make_lru_policy, std::uint32_t shard_count = 1)
      : one_registry(1, options_with(policy, shard_count)) {
    must(state.add_namespace(group("full")));
    must(state.add_namespace(group("state")));
  }

  two_groups& in(const char* label, const char* of = "both") {
    ns = group(label, of).id();
    return *this;
  }

  void save_prefix(const keys_t& keys) {
    in("full").save(keys, 0, chain_parents(keys));
    in("state").save(keys);
  }

  /// Evicts pages, and delivers what follows, as an actor does.
  std::uint32_t evict_in(const char* label, std::uint32_t wanted) {
    const auto n = in(label).evict(wanted).slots;
    state.take_outbox();
    CHECK(state.check_invariants() == "");
    return n;
  }

  bool has_in(const char* label, const key_digest& key) { return in(label).has(key); }
};

} // namespace

TEST_CASE("registry groups: where a prefix has become shorter, the states behind its end are evicted first",
          "[registry]") {
  two_groups r(GENERATE(from_range(policies())));
  const auto older = some_keys(1, 4);
  const auto newer = some_keys(100, 4);
  r.save_prefix(older);
  r.save_prefix(newer);
  // In the group of full attention the newer prefix is not used, in the other group the older one is not.
  CHECK(r.in("full").match(reader, older) == 4);
  CHECK(r.in("state").match({9, 1}, newer) == 4);
  r.in("full").release(reader);
  r.in("state").release({9, 1});
  const auto lost = r.evict_in("full", 2);
  REQUIRE(lost == 2);
  keys_t gone;
  for (const auto& key : r.in("full").has(newer[3]) ? older : newer)
    if (!r.has_in("full", key))
      gone.push_back(key);
  REQUIRE(gone.size() == 2);
  // The state's own order would be another one.
  CHECK(r.evict_in("state", 2) == 2);
  for (const auto& key : gone)
    CHECK_FALSE(r.has_in("state", key));
}

TEST_CASE("registry groups: the end of a prefix without a state is evicted first, back to the last state",
          "[registry]") {
  two_groups r;
  const auto other = some_keys(100, 6);
  const auto keys = some_keys(1, 6);
  r.save_prefix(other);
  r.in("full").save(keys, 0, chain_parents(keys));
  r.in("state").save({keys[1], keys[5]});
  // The older prefix is in use again: its pages are younger than all others.
  CHECK(r.in("full").match(reader, other) == 6);
  CHECK(r.in("state").match({9, 1}, other) == 6);
  r.in("full").release(reader);
  r.in("state").release({9, 1});
  CHECK(r.in("full").match(reader, keys) == 6);
  r.in("full").release(reader);
  // The state behind all six pages goes: it is the oldest one but for that of keys[1].
  CHECK(r.evict_in("state", 2) == 2);
  REQUIRE_FALSE(r.has_in("state", keys[5]));
  REQUIRE_FALSE(r.has_in("state", keys[1]));
  r.in("state").save({keys[1]});
  // Left to itself the group of full attention would evict the other prefix, which was used before this one.
  for (std::size_t left = 6; left > 2; --left) {
    CHECK(r.evict_in("full", 1) == 1);
    CHECK_FALSE(r.has_in("full", keys[left - 1]));
  }
  CHECK(r.evict_in("full", 1) == 1);
  CHECK(r.has_in("full", keys[1]));
  CHECK_FALSE(r.has_in("full", other[5]));
}

TEST_CASE("registry groups: a page that others follow stays without its state, and so does a page that is in use",
          "[registry]") {
  two_groups r;
  const auto other = some_keys(100, 3);
  const auto keys = some_keys(1, 3);
  r.save_prefix(keys);
  r.save_prefix(other);
  CHECK(r.in("full").match(reader, keys) == 3);
  r.in("full").release(reader);
  SECTION("states in the middle") {
    CHECK(r.in("state").match(reader, {keys[2]}) == 1);
    r.in("state").release(reader);
    CHECK(r.evict_in("state", 2) == 2); // those of keys[1] and keys[0]
    REQUIRE(r.has_in("state", keys[2]));
    CHECK(r.evict_in("full", 3) == 3);
    CHECK(r.in("full").count_of(keys) == 3);
  }
  SECTION("in use") {
    CHECK(r.in("full").match(reader, keys) == 3);
    CHECK(r.evict_in("state", 3) == 3);
    REQUIRE(r.in("state").count_of(keys) == 0);
    r.in("full").release(reader);
    CHECK(r.evict_in("full", 3) == 3);
    CHECK(r.in("full").count_of(keys) == 3);
  }
  SECTION("used again") {
    CHECK(r.evict_in("state", 3) == 3);
    CHECK(r.in("full").match(reader, keys) == 3);
    r.in("full").release(reader);
    CHECK(r.evict_in("full", 3) == 3);
    CHECK(r.in("full").count_of(keys) == 3);
  }
}

TEST_CASE("registry groups: a page of a window says nothing about a state, and other models' groups follow nothing",
          "[registry]") {
  two_groups r;
  must(r.state.add_namespace(group("window")));
  must(r.state.add_namespace(group("state", "another model")));
  const auto keys = some_keys(1, 3);
  const auto other = some_keys(100, 3);
  for (const auto& [label, of] : {std::pair{"window", "both"}, {"state", "both"}, {"state", "another model"}}) {
    r.in(label, of).save(other);
    r.in(label, of).save(keys);
  }
  // Nothing has chains yet, so nothing follows.
  r.in("window").match(reader, other);
  r.in("window").release(reader);
  CHECK(r.evict_in("window", 3) == 3);
  REQUIRE(r.in("window").count_of(keys) == 0);
  CHECK(r.evict_in("state", 3) == 3);
  CHECK(r.in("state").count_of(keys) == 3);
  // The group of full attention has the same keys, and loses them.
  r.in("full").save(keys, 0, chain_parents(keys));
  CHECK(r.evict_in("full", 3) == 3);
  r.in("state", "another model");
  CHECK(r.evict(3).slots == 3);
  CHECK(r.count_of(keys) == 3);
}

TEST_CASE("registry groups: groups are related until one of them is removed, and again when it comes back",
          "[registry]") {
  two_groups r;
  const auto keys = some_keys(1, 2);
  const auto other = some_keys(100, 2);
  must(r.state.add_namespace(group("full"))); // changes nothing
  for (const bool removed : {true, false}) {
    if (removed) {
      CHECK(r.state.remove_namespace({group("full").id(), false}, at(0)));
      must(r.state.add_namespace(group("full")));
    } else {
      // Without the group of full attention, states are evicted in their own order.
      CHECK(r.state.remove_namespace({group("full").id(), false}, at(0)));
    }
    r.in("state").save(other);
    r.in("state").save(keys);
    if (removed) {
      r.in("full").save(keys, 0, chain_parents(keys));
      CHECK(r.evict_in("full", 2) == 2);
    }
    CHECK(r.evict_in("state", 2) == 2);
    CHECK(r.in("state").count_of(keys) == (removed ? 0 : 2));
    CHECK(r.evict_in("state", 4) == 2);
  }
  CHECK(r.state.remove_namespace({group("state").id(), false}, at(0)));
  r.state.take_outbox();
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry groups: children in other shards count for the end of a prefix", "[registry]") {
  two_groups r(make_lru_policy, 2);
  // All keys of this registry are in its shard; that of the child is not.
  keys_t mine;
  for (std::uint64_t n = 1; mine.size() < 4; ++n)
    if (shard_of(key_of(n), 2) == 0)
      mine.push_back(key_of(n));
  r.in("full").save({mine[0], mine[1]}, 0, {key_digest{}, mine[0]});
  r.in("full").save({mine[2], mine[3]}, 0, {key_digest{}, mine[2]});
  r.in("state").save({mine[2], mine[3]});
  const auto children = [&](std::int64_t delta, std::uint64_t evicted) {
    must(r.state.count_children({r.in("full").ns, std::vector<child_delta>{{mine[1], delta, evicted}}}, at(0)));
    r.state.take_outbox();
  };
  children(1, 0);
  CHECK(r.in("full").match(reader, {mine[0], mine[1]}) == 2);
  r.in("full").release(reader);
  const bool was_evicted = GENERATE(false, true);
  // A child that was never stored, as there was no slot for it, says nothing: it will be asked for again.
  children(-1, was_evicted ? 1 : 0);
  CHECK(r.evict_in("full", 1) == 1);
  CHECK(r.has_in("full", mine[1]) == !was_evicted);
}

TEST_CASE("registry groups: a save that gets no slot, and a page that is being written, do not make a prefix worthless",
          "[registry]") {
  two_groups r;
  const auto keys = some_keys(1, 3);
  const auto other = some_keys(100, 3);
  r.save_prefix(other);
  r.in("full").save({keys[0], keys[1]}, 0, {key_digest{}, keys[0]});
  SECTION("no slot") {
    const auto plan = r.in("full").begin({99, 77}, {keys[2]}, 0, {keys[1]}).value();
    static_cast<void>(r.state.finish_reserve(plan.plan, {}, at(0)));
    r.state.take_outbox();
  }
  SECTION("being written in the other group") {
    r.in("full").save({keys[2]}, 0, {keys[1]});
    r.in("state").reserve({99, 78}, {keys[1]});
    r.state.take_outbox();
    CHECK(r.in("full").match(reader, keys) == 3);
    r.in("full").release(reader);
    // The other prefix and then the last key.
    CHECK(r.evict_in("full", 4) == 4);
    REQUIRE(r.in("full").count_of(keys) == 2);
    r.in("full").save(other, 0, chain_parents(other));
    CHECK(r.in("full").match(reader, keys) == 2);
    r.in("full").release(reader);
  }
  CHECK(r.evict_in("full", 3) == 3);
  CHECK(r.in("full").count_of(keys) == 2);
}

TEST_CASE("registry groups: where attention is chunked, a prefix without a page of the chunk stays", "[registry]") {
  two_groups r;
  const auto of = std::string("both") + std::string(namespace_spec::ends_anywhere);
  for (const auto* label : {"full", "chunk"})
    must(r.state.add_namespace(group(label, of.c_str())));
  const auto keys = some_keys(1, 3);
  const auto other = some_keys(100, 3);
  r.in("full", of.c_str()).save(other, 0, chain_parents(other));
  r.save(keys, 0, chain_parents(keys));
  r.in("chunk", of.c_str()).save(keys);
  CHECK(r.evict(3).slots == 3);
  r.state.take_outbox();
  r.in("full", of.c_str());
  CHECK(r.evict(3).slots == 3);
  CHECK(r.count_of(keys) == 3);
  r.state.take_outbox();
  // What lies behind the end of a prefix is worth nothing here either.
  r.in("chunk", of.c_str()).save(keys);
  r.save(other);
  r.match(reader, keys);
  r.release(reader);
  r.in("full", of.c_str());
  CHECK(r.evict(1).slots == 1);
  r.state.take_outbox();
  r.in("chunk", of.c_str());
  CHECK(r.evict(1).slots == 1);
  CHECK_FALSE(r.has(keys[2]));
}

TEST_CASE("registry groups: two groups that need whole prefixes are evicted from the end", "[registry]") {
  two_groups r;
  must(r.state.add_namespace(group("full-1")));
  const auto keys = some_keys(1, 12);
  const auto other = some_keys(100, 12);
  for (const auto* label : {"full", "full-1"}) {
    r.in(label).save(keys, 0, chain_parents(keys));
    r.save(other, 0, chain_parents(other));
  }
  r.in("state").save(other);
  r.in("state").save(keys);
  CHECK(r.in("full-1").match(reader, keys) == 12);
  r.release(reader);
  CHECK(r.evict_in("full", 8) == 8);
  REQUIRE(r.in("full").count_of(keys) == 4);
  for (std::size_t left = 12; left > 4; --left) {
    CHECK(r.evict_in("full-1", 1) == 1);
    CHECK_FALSE(r.has_in("full-1", keys[left - 1]));
  }
  CHECK(r.in("full-1").count_of(other) == 12);
}

TEST_CASE("registry groups: whatever is evicted, saved and used, groups keep the registry's invariants", "[registry]") {
  const auto seed = GENERATE(range(1U, 9U));
  two_groups r(policies()[seed % policies().size()]);
  std::mt19937 random(seed);
  const auto pick = [&](std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random); };
  std::vector<std::pair<const char*, ticket>> leases;
  for (int step = 0; step < 600; ++step) {
    const auto keys = some_keys(100 * pick(6), 1 + pick(12));
    const auto* label = pick(2) == 0 ? "full" : "state";
    switch (pick(5)) {
    case 0:
    case 1:
      r.in(label).save(keys, 0, label == std::string("full") ? chain_parents(keys) : keys_t{});
      break;
    case 2:
      leases.emplace_back(label, r.next_ticket());
      r.in(label).match(leases.back().second, keys);
      r.release(leases.back().second, static_cast<std::uint32_t>(pick(3)));
      break;
    case 3:
      if (!leases.empty()) {
        r.in(leases.front().first).release(leases.front().second);
        leases.erase(leases.begin());
      }
      break;
    default:
      r.in(label).evict(static_cast<std::uint32_t>(1 + pick(8)));
    }
    r.state.take_outbox();
    INFO("step " << step);
    REQUIRE(r.state.check_invariants() == "");
  }
}

} // namespace registry_groups_test
