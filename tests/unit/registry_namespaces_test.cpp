// Namespaces and ranks at run time; erasing, clearing, removing; what administrators see.

#include "tests/catch.hpp"
#include "tests/unit/registry_slot_client_support.hpp"

#include <algorithm>

namespace registry_namespaces_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};

errc code_of(const auto& reply) {
  return reply ? errc::ok : reply.error().code;
}

const namespace_options automatic{true, true, 4};

} // namespace

TEST_CASE("registry namespaces: a key is complete when every current rank has it", "[registry]") {
  slot_client_registry r(0);
  const auto keys = some_keys(1, 3);
  CHECK(code_of(r.begin(keys)) == errc::out_of_range);
  CHECK(r.exists(keys) == codes_t(3, errc::not_found));
  must(r.state.add_rank(r.ns, 2, 100));
  r.save(keys, 2);
  CHECK(r.exists(keys) == codes_t(3, errc::ok));
  CHECK(r.state.stats().complete_keys == 3);
  // A rank that is added late makes keys incomplete until it has them, and not permanently.
  must(r.state.add_rank(r.ns, 0, 100));
  CHECK(r.exists(keys) == codes_t(3, errc::not_found));
  CHECK(r.state.stats().complete_keys == 0);
  CHECK(codes(r.protect(keys, 0, 1000, 2, true)) == codes_t(3, errc::not_found));
  CHECK(codes(r.protect(keys, 0, 1000, 2, false)) == codes_t(3, errc::ok));
  r.save({keys[1]}, 0);
  CHECK(r.exists(keys) == codes_t{errc::not_found, errc::ok, errc::not_found});
  CHECK(r.state.stats().complete_keys == 1);
  r.save({keys[0], keys[2]}, 0);
  CHECK(r.state.stats().complete_keys == 3);
  CHECK(r.state.match({r.ns, alice, std::chrono::seconds(1), keys}, at(0)).value().matched == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: nothing is complete in a namespace without ranks", "[registry]") {
  slot_client_registry r(0, {.shard = 0, .shard_count = 2});
  std::uint64_t n = 1;
  while (shard_of(key_of(n), 2) != 0)
    ++n;
  must(r.state.count_children({r.ns, std::vector<child_delta>{{key_of(n), 1}}}, at(0))); // a key with no page at all
  CHECK(r.exists({key_of(n)}) == codes_t{errc::not_found});
  CHECK(r.state.match({r.ns, alice, std::chrono::seconds(1), keys_t{key_of(n)}}, at(0)).value().matched == 0);
  CHECK(r.state.stats().complete_keys == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: a rank is registered once, with one number of slots", "[registry]") {
  slot_client_registry r(0);
  must(r.state.add_rank(r.ns, 1, 100));
  r.save(some_keys(1, 2), 1);
  CHECK(code_of(r.state.add_rank(r.ns, 1, 100)) == errc::ok);
  CHECK(r.exists(some_keys(1, 2)) == codes_t(2, errc::ok));
  const auto other = r.state.add_rank(r.ns, 1, 200);
  REQUIRE(code_of(other) == errc::identity_mismatch);
  CHECK(other.error().text.find("100") != std::string::npos);
  CHECK(other.error().text.find("200") != std::string::npos);
  CHECK(code_of(r.state.add_rank(r.ns, 4, 100)) == errc::out_of_range); // max_ranks is 4
  CHECK(code_of(r.state.add_rank(r.ns, 3, 0)) == errc::invalid_argument);
  CHECK(code_of(r.state.add_rank({5, 5}, 0, 1)) == errc::unknown_namespace);
  CHECK(r.state.stats().refused == 4);
  CHECK(r.info().ranks.size() == 1);
  CHECK(r.exists(some_keys(1, 2)) == codes_t(2, errc::ok));
}

TEST_CASE("registry namespaces: the ranks of a fixed namespace exist from the start, and registration adds their slots",
          "[registry]") {
  slot_client_registry r(2, {}, {false, true, 64}, 10);
  const auto keys = some_keys(1, 1);
  r.save(keys, 0);
  CHECK(r.exists(keys) == codes_t{errc::not_found});
  CHECK(code_of(r.state.add_rank(r.ns, 2, 10)) == errc::out_of_range);
  CHECK(code_of(r.state.add_rank(r.ns, 1, 11)) == errc::identity_mismatch);
  r.save(keys, 1);
  CHECK(r.exists(keys) == codes_t{errc::ok});
}

TEST_CASE("registry namespaces: options are part of the identity of a namespace and are checked", "[registry]") {
  slot_client_registry r;
  CHECK(code_of(r.state.add_namespace(r.spec, automatic)) == errc::ok);
  auto other = automatic;
  other.slot_index = false;
  other.max_ranks = 8;
  const auto refused = r.state.add_namespace(r.spec, other);
  REQUIRE(code_of(refused) == errc::identity_mismatch);
  CHECK(refused.error().text.find("slot_index 1 is not 0") != std::string::npos);
  CHECK(refused.error().text.find("max_ranks 4 is not 8") != std::string::npos);
  CHECK(code_of(r.state.add_namespace(namespace_of(2, "x"), automatic)) == errc::invalid_argument);
  CHECK(code_of(r.state.add_namespace(namespace_of(0, "x"), {true, true, 0})) == errc::invalid_argument);
  CHECK(code_of(r.state.add_namespace(namespace_of(0, "x"), {true, true, 5000})) == errc::invalid_argument);
  CHECK(code_of(r.state.add_namespace(namespace_of(0, "x"), {})) == errc::invalid_argument);
  CHECK(r.state.describe({}).value().namespaces.size() == 1);
}

TEST_CASE("registry namespaces: pages of all ranks are evicted together, whichever of the ranks is full",
          "[registry]") {
  slot_client_registry r(3);
  const auto keys = some_keys(1, 2);
  const keys_t parents{key_digest{}, keys[0]};
  const auto zero = r.save(keys, 0, 0, parents);
  const auto two = r.save(keys, 2, 0, parents);
  r.given_back();
  CHECK(r.evict(1, 0, 2) == 1);
  const auto out = r.state.take_outbox();
  CHECK(one_registry::for_rank(out, 0).release.slots.items == std::vector<slot_ref>{{zero[1], 7}}); // the child
  CHECK(one_registry::for_rank(out, 2).release.slots.items == std::vector<slot_ref>{{two[1], 7}});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: an erased key disappears at once, and its children stay", "[registry]") {
  slot_client_registry r(2);
  const auto k = some_keys(1, 3);
  const auto slots = r.save(k, 0, 0, chain_parents(k));
  r.save(k, 1, 0, chain_parents(k));
  r.given_back();
  CHECK(r.erase({k[1], k[1], key_of(9)}) == codes_t{errc::ok, errc::not_found, errc::not_found});
  CHECK(r.exists(k) == codes_t{errc::ok, errc::not_found, errc::ok});
  CHECK(r.given_back() == slots_t{slots[1]});
  CHECK(r.look_up(k[0]).children == 0);
  CHECK_FALSE(r.knows(k[1]));
  CHECK(r.state.check_invariants() == "");
  r.save({k[1]}, 0, 0, {k[0]});
  CHECK(r.look_up(k[1]).children == 1); // it was kept in mind
  CHECK(r.look_up(k[0]).children == 1);
  CHECK(r.erase({k[2]}, 1) == codes_t{errc::ok}); // on one rank only
  CHECK(r.exists({k[2]}, 0) == codes_t{errc::ok});
  CHECK(r.exists({k[2]}, 1) == codes_t{errc::not_found});
  CHECK(r.state.stats().erased_pages == 3);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: erasing skips pages that are being written, and slots held by readers are not released",
          "[registry]") {
  slot_client_registry r(2);
  const auto k = some_keys(1, 2);
  const auto slots = r.save(k, 0);
  const auto given = r.allocate({k[0]}, 1);
  r.state.match({r.ns, alice, std::chrono::seconds(5), {}}, at(0)).value();
  r.state.locate({r.ns, 0, alice, std::chrono::seconds(5), keys_t{k[1]}}, at(0)).value();
  r.given_back();
  CHECK(r.erase(k) == codes_t{errc::ok, errc::ok});
  CHECK(r.given_back() == slots_t{slots[0]});
  CHECK(r.confirm({{k[0], given[0].where.slot}}, 1) == codes_t{errc::ok});
  CHECK(r.exists({k[0]}, 1) == codes_t{errc::ok});
  must(r.state.release({r.ns, alice, 0}, at(1)));
  CHECK(r.given_back() == slots_t{slots[1]});
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: a namespace is cleared in bounded parts, on one rank or on all", "[registry]") {
  slot_client_registry r(2, {.max_clear_looks = 10});
  const auto keys = some_keys(1, 25);
  r.save(keys, 0, 0, chain_parents(keys));
  r.save(keys, 1, 0, chain_parents(keys));
  r.given_back();
  const auto clear = [&](rank_number rank) {
    clear_reply step;
    std::uint64_t pages = 0;
    int calls = 0;
    do {
      step = r.state.clear({r.ns, rank, step.next}, at(0)).value();
      pages += step.pages;
      REQUIRE(++calls < 10);
      CHECK(step.pages <= 20);
    } while (step.more);
    CHECK(calls == 3);
    return pages;
  };
  CHECK(clear(1) == 25);
  CHECK(r.exists(keys, 0) == codes_t(25, errc::ok));
  CHECK(r.exists(keys, 1) == codes_t(25, errc::not_found));
  CHECK(r.given_back().empty());
  r.save({keys[3]}, 1);
  CHECK(clear(all_ranks) == 26);
  CHECK(r.given_back().size() == 25);
  CHECK(r.state.keys() == 0);
  CHECK(r.info().ranks.size() == 2); // ranks stay
  CHECK(clear(all_ranks) == 0);
  CHECK(r.state.clear({r.ns, all_ranks, 12345678}, at(0)).value().more == false);
  r.save(keys, 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: a namespace is removed in bounded parts, and all its slots are released",
          "[registry]") {
  slot_client_registry r(1, {.shard = 0, .tick_work = 4, .max_clear_looks = 10});
  must(r.state.add_namespace(namespace_of(1, "other")));
  const auto keys = some_keys(1, 25);
  r.save(keys);
  r.protect(keys, 0, 60'000);
  r.erase({keys[7]});
  r.given_back();
  const auto pass = [&](bool force) { return r.state.remove_namespace({r.ns, force}, at(0)); };
  int calls = 1;
  for (auto reply = pass(false); reply.value().more; reply = pass(false)) {
    CHECK(code_of(r.state.exists({r.ns, all_ranks, keys})) == errc::unknown_namespace);
    CHECK(code_of(r.state.add_namespace(r.spec, automatic)) == errc::busy);
    CHECK(code_of(r.state.count_children({r.ns, std::vector<child_delta>{{keys[0], 1}}}, at(0))) == errc::ok);
    REQUIRE(r.state.check_invariants() == "");
    REQUIRE(++calls < 20);
  }
  CHECK(calls == 3);
  CHECK(r.given_back().size() == 25);
  CHECK(code_of(pass(false)) == errc::unknown_namespace);
  CHECK(r.state.describe({}).value().namespaces.size() == 1);
  CHECK(r.state.stats().keys == 0);
  CHECK_FALSE(r.state.tick(at(100)));
  // The name is free for another, in the place of the first.
  CHECK(code_of(r.state.add_namespace(namespace_of(3, r.spec.name))) == errc::ok);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry namespaces: a namespace in use is removed only by force, which ends leases and reservations",
          "[registry]") {
  slot_client_registry r(1, {.tick_work = 4});
  const auto keys = some_keys(1, 9);
  const auto slots = r.save(keys);
  enum open { lease, ticketed, shared, ticketed_plan, shared_plan };
  const int what = GENERATE(range(0, 5));
  INFO("open: " << what);
  plan_id plan = 0;
  const auto fresh = some_keys(100, 3);
  std::size_t more_slots = 0;
  if (what == lease) {
    r.state.match({r.ns, alice, std::chrono::seconds(5), keys}, at(0)).value();
  } else if (what == shared) {
    r.allocate(fresh);
    more_slots = 3;
  } else if (what == shared_plan) {
    plan = r.begin(fresh).value().plan;
  } else {
    plan = r.state.begin_reserve({r.ns, 0, alice, std::chrono::seconds(5), fresh, {}}, at(0)).value().plan;
    if (what == ticketed) {
      r.state.finish_reserve(plan, r.fresh_slots(3), at(0)).value();
      more_slots = 3;
    }
  }
  r.given_back();
  CHECK(code_of(r.state.remove_namespace({r.ns, false}, at(0))) == errc::busy);
  CHECK(r.exists(keys) == codes_t(9, errc::ok));
  const bool waits = what == ticketed_plan || what == shared_plan;
  for (int i = 0; i < 10; ++i) {
    const auto reply = r.state.remove_namespace({r.ns, true}, at(0));
    REQUIRE(r.state.check_invariants() == "");
    if (!reply.value().more)
      break;
    REQUIRE(i < (waits ? 10 : 9));
  }
  if (waits) {
    // Slots were requested: the namespace exists until they have arrived and are released.
    CHECK(r.state.remove_namespace({r.ns, true}, at(0)).value().more);
    const auto late = r.fresh_slots(3);
    CHECK(r.state.finish_reserve(plan, late, at(0)).error().code == errc::expired);
    CHECK_FALSE(r.state.remove_namespace({r.ns, true}, at(0)).value().more);
    more_slots = 3;
  }
  CHECK(r.given_back().size() == slots.size() + more_slots);
  CHECK(r.state.stats().leases == 0);
  CHECK(r.state.stats().reservations == 0);
  CHECK(r.state.stats().expired_reservations == 0);
  CHECK(r.state.describe({}).value().namespaces.empty());
}

TEST_CASE("registry namespaces: administrators can list namespaces, ranks and single keys", "[registry]") {
  slot_client_registry r(2, {}, automatic, 50);
  must(r.state.add_namespace(namespace_of(1, "other")));
  const auto k = some_keys(1, 3);
  const auto slots = r.save({k[0], k[1]}, 0, 0, {key_digest{}, k[0]});
  r.save({k[0]}, 1);
  const auto given = r.allocate({k[2], k[1]}, 1, 0, 10, {k[1], k[0]});
  r.protect({k[0]}, 0, 3000);
  r.state.match({r.ns, alice, std::chrono::seconds(5), keys_t{k[0]}}, at(0)).value();
  r.save({key_of(9)}, 0);
  r.protect({key_of(9)}, 0, 1000);
  r.erase({key_of(9)});

  const auto all = r.state.describe({}).value().namespaces;
  REQUIRE(all.size() == 2);
  const auto info = r.info();
  CHECK(info.spec == r.spec);
  CHECK(info.options == automatic);
  CHECK(info.keys == 2);
  CHECK(info.complete_keys == 1);
  CHECK(info.leases == 1);
  CHECK(info.reservations == 2);
  CHECK(info.ranks.items == std::vector<rank_info>{{0, 50, 2, 0, 1}, {1, 50, 1, 2, 0}});
  CHECK(code_of(r.state.describe({{1, 1}})) == errc::unknown_namespace);

  const auto first = r.look_up(k[0], 1);
  CHECK(first.parent.is_null());
  CHECK(first.children == 1);
  CHECK(first.leases == 1);
  CHECK(first.complete);
  CHECK(first.protected_for == std::chrono::seconds(2));
  CHECK(first.pages.size() == 2);
  const auto second = r.look_up(k[1]);
  CHECK(second.parent == k[0]);
  CHECK_FALSE(second.complete);
  CHECK(second.pages.items ==
        std::vector<key_page>{{0, key_page::use::live, {slots[1], 7}}, {1, key_page::use::allocated, given[1].where}});
  CHECK(code_of(r.state.look_up({r.ns, key_of(77)}, at(0))) == errc::not_found);
  CHECK(code_of(r.state.look_up({{1, 1}, k[0]}, at(0))) == errc::unknown_namespace);
  CHECK(r.state.stats().refused == 1);
}

TEST_CASE("registry namespaces: the live pages of a rank are listed, part by part", "[registry]") {
  slot_client_registry r(0);
  must(r.state.add_rank(r.ns, 0, 100));
  must(r.state.add_rank(r.ns, 1, 100));
  const auto keys = some_keys(1, 10);
  std::vector<std::pair<key_digest, slot_number>> saved;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (const auto slots = r.save({keys[i]}, i % 3 == 0 ? 1 : 0); i % 3 != 0)
      saved.emplace_back(keys[i], slots.front());
  REQUIRE(r.begin(some_keys(20, 1))); // is no page yet
  std::vector<std::pair<key_digest, slot_number>> listed;
  list_pages_request what{r.ns, 0, 0, 4};
  for (bool more = true; more;) {
    const auto part = r.state.list_pages(what).value();
    CHECK(part.pages.size() <= 4);
    for (const auto& x : part.pages)
      listed.emplace_back(x.key, x.where.slot);
    CHECK((part.next > what.from || !part.more));
    what.from = part.next;
    more = part.more;
  }
  std::ranges::sort(listed);
  std::ranges::sort(saved);
  CHECK(listed == saved);
  what.from = 1000000;
  CHECK_FALSE(r.state.list_pages(what).value().more);
  what.rank = 7;
  CHECK(code_of(r.state.list_pages(what)) == errc::out_of_range);
  what.ns = {9, 9};
  CHECK(code_of(r.state.list_pages(what)) == errc::unknown_namespace);
}

} // namespace registry_namespaces_test
