// Namespaces, matching, locating, leases.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_lease_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using codes_t = std::vector<errc>;

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};

} // namespace

TEST_CASE("registry lease: a namespace is registered once with one identity", "[registry]") {
  one_registry r;
  CHECK(r.state.add_namespace(r.spec).has_value());
  auto other = r.spec;
  other.model = "another";
  other.geometry.layers = 3;
  const auto refused = r.state.add_namespace(other);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::identity_mismatch);
  CHECK(refused.error().text.find("model \"test\" is not \"another\"") != std::string::npos);
  CHECK(refused.error().text.find("layers 0 is not 3") != std::string::npos);
  CHECK(refused.error().text.find("revision") == std::string::npos);
  CHECK(refused.error().text.find("further_layers") == std::string::npos);
  other.name = "other";
  CHECK(r.state.add_namespace(other).has_value());
  CHECK(r.state.add_namespace(namespace_of(0, "none")).error().code == errc::invalid_argument);
  CHECK(r.state.add_namespace(namespace_of(70000, "all")).error().code == errc::invalid_argument);
  CHECK(r.state.stats().refused == 3);
}

TEST_CASE("registry lease: layers of other shapes make another namespace, and the error names the first difference",
          "[registry]") {
  one_registry r;
  auto mixed = r.spec;
  mixed.name = mixed.model = "mixed";
  mixed.geometry.further = {{2, {1, 1, 132, 1}}, {1, {2, 8, 128, 2}}};
  REQUIRE(r.state.add_namespace(mixed).has_value());
  CHECK(r.state.add_namespace(mixed).has_value());
  const auto refusal = [&](std::vector<kv_layer_group> further) {
    auto other = mixed;
    other.geometry.further = std::move(further);
    const auto refused = r.state.add_namespace(other);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == errc::identity_mismatch);
    return refused.error().text;
  };
  const auto says = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(refusal({}), "number of further_layers 2 is not 0");
  says(refusal({{2, {1, 1, 132, 1}}}), "number of further_layers 2 is not 1");
  says(refusal({{2, {1, 1, 132, 1}}, {3, {1, 4, 64, 4}}}),
       "further_layers[1].layers 1 is not 3, further_layers[1].parts 2 is not 1, further_layers[1].heads 8 is not 4, "
       "further_layers[1].head_size 128 is not 64, further_layers[1].element_bytes 2 is not 4");
  const auto both = refusal({{2, {1, 1, 128, 1}}, {1, {2, 4, 128, 2}}, {1, {1, 1, 1, 1}}});
  says(both, "number of further_layers 2 is not 3, further_layers[0].head_size 132 is not 128");
  CHECK(both.find("further_layers[1]") == std::string::npos);
}

TEST_CASE("registry lease: the number of namespaces is bounded", "[registry]") {
  one_registry r(1, {.max_namespaces = 2});
  CHECK(r.state.add_namespace(namespace_of(1, "second")).has_value());
  CHECK(r.state.add_namespace(namespace_of(1, "third")).error().code == errc::limit_exceeded);
  CHECK(r.state.add_namespace(namespace_of(1, "second")).has_value());
}

TEST_CASE("registry lease: two namespaces never share a key", "[registry]") {
  one_registry r;
  const auto other = namespace_of(1, "other");
  must(r.state.add_namespace(other));
  const auto keys = some_keys(1, 3);
  r.save(keys);
  CHECK(r.count(keys) == 3);
  CHECK(r.state.match({other.id(), alice, std::chrono::seconds(1), keys}, at(0)).value().matched == 0);
  CHECK_FALSE(r.state.is_complete(other.id(), keys[0]));
}

TEST_CASE("registry lease: a match returns the leading complete keys only", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 5);
  r.save(keys, 0);
  CHECK(r.count(keys) == 0); // one of two ranks
  r.save({keys[0], keys[1], keys[3], keys[4]}, 1);
  CHECK(r.count(keys) == 2); // the gap hides the keys after it
  CHECK(r.count({keys[3], keys[4]}) == 2);
  CHECK(r.count({}) == 0);
  CHECK(r.state.stats().complete_keys == 4);
  CHECK(r.state.stats().keys == 5);
  CHECK(r.state.is_complete(r.ns, keys[0]));
  CHECK_FALSE(r.state.is_complete(r.ns, keys[2]));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry lease: a long match crosses the groups of the lookup", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2000);
  r.save(keys);
  CHECK(r.count(keys) == 2000);
  for (const std::size_t hole : {0U, 63U, 64U, 575U, 576U, 577U, 1999U}) {
    auto asked = keys;
    asked[hole] = key_of(100000 + hole);
    CHECK(r.count(asked) == hole);
  }
}

TEST_CASE("registry lease: locate returns the locations of pages of the rank, complete or not", "[registry]") {
  one_registry r(2);
  const auto keys = some_keys(1, 3);
  const auto saved = r.save({keys[0], keys[2]}, 1);
  const auto found = r.locate(alice, keys, 1);
  CHECK(codes(found) == codes_t{errc::ok, errc::not_found, errc::ok});
  CHECK(found[0].where == saved[0].where);
  CHECK(found[2].where == saved[1].where);
  CHECK(codes(r.locate(alice, keys, 0)) == codes_t{errc::not_found, errc::not_found, errc::not_found});
  CHECK(r.info(keys[0])->leases == 1);
}

TEST_CASE("registry lease: reserved pages are not located before they are committed", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto reply = r.reserve(alice, keys);
  CHECK(codes(r.locate(bob, keys)) == codes_t{errc::not_found, errc::not_found});
  CHECK(r.count(keys) == 0);
  r.commit(alice, {{keys[0], reply.results[0].where}});
  CHECK(codes(r.locate(bob, keys)) == codes_t{errc::ok, errc::not_found});
  r.state.tick(at(100)); // nothing becomes readable by a timeout
  CHECK(r.count(keys, 100) == 1);
}

TEST_CASE("registry lease: a repeated request does not lease twice", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 4);
  r.save(keys);
  CHECK(r.match(alice, keys) == 4);
  CHECK(r.match(alice, keys) == 4);
  r.locate(alice, {keys[1], keys[1], keys[3]});
  CHECK(r.match({1, 2}, {keys[0], keys[0]}) == 2); // also inside one batch
  CHECK(r.info(keys[0])->leases == 2);
  CHECK(r.info(keys[1])->leases == 1);
  CHECK(r.state.stats().leases == 2);
  r.release(alice);
  r.release({1, 2});
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.info(keys[3])->leases == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry lease: a lease is trimmed to its first keys, in the order in which they were leased",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 6);
  r.save(keys);
  r.match(alice, {keys[0], keys[1], keys[2], keys[3]});
  r.match(alice, {keys[2], keys[4]});
  r.release(alice, 3);
  CHECK(r.info(keys[2])->leases == 1);
  CHECK(r.info(keys[3])->leases == 0);
  CHECK(r.info(keys[4])->leases == 0);
  r.release(alice, 3); // repeated
  r.release(alice, 50);
  CHECK(r.info(keys[0])->leases == 1);
  CHECK(r.state.stats().leases == 1);
  r.release(alice);
  r.release(alice);
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.state.stats().leases == 0);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry lease: no match creates no lease", "[registry]") {
  one_registry r;
  CHECK(r.match(alice, some_keys(1, 3)) == 0);
  CHECK(r.state.stats().leases == 0);
  r.release(alice);
  CHECK(r.state.renew({r.ns, alice, std::chrono::seconds(1)}, at(0)).error().code == errc::not_found);
  CHECK(r.state.stats().refused == 0);
}

TEST_CASE("registry lease: leases expire, are renewed, and are found expired before the tick", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  r.save(keys);
  r.match(alice, keys, 0, 10);
  r.match(bob, {keys[0]}, 0, 5);
  CHECK(r.state.next_deadline() == at(5));
  CHECK(r.state.renew({r.ns, bob, std::chrono::seconds(20)}, at(4)).has_value());
  CHECK(r.state.renew({r.ns, bob, std::chrono::seconds(1)}, at(4)).has_value()); // never shortens
  CHECK_FALSE(r.state.tick(at(9)));
  CHECK(r.state.stats().leases == 2);
  r.state.tick(at(10));
  CHECK(r.state.stats().leases == 1);
  CHECK(r.info(keys[0])->leases == 1);
  CHECK(r.info(keys[1])->leases == 0);
  CHECK(r.state.renew({r.ns, bob, std::chrono::seconds(1)}, at(24)).error().code == errc::not_found);
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.state.stats().expired_leases == 2);

  // A reused ticket starts again with what it finds now.
  r.match(alice, keys, 30, 5);
  CHECK(r.match(alice, {keys[1]}, 35, 5) == 1);
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.info(keys[1])->leases == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry lease: a further match extends the lease", "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  r.save(keys);
  r.match(alice, keys, 0, 10);
  r.match(alice, {}, 8, 10);
  r.state.tick(at(12));
  CHECK(r.info(keys[0])->leases == 1);
  r.state.tick(at(18));
  CHECK(r.info(keys[0])->leases == 0);
}

TEST_CASE("registry lease: the work per tick is bounded, even for one long lease", "[registry]") {
  one_registry r(1, {.tick_work = 10});
  const auto keys = some_keys(1, 25);
  r.save(keys);
  r.match(alice, keys, 0, 5);
  CHECK(r.state.tick(at(6)));
  CHECK(r.info(keys[24])->leases == 0);
  CHECK(r.info(keys[0])->leases == 1);
  CHECK(r.state.check_invariants() == "");
  CHECK(r.state.renew({r.ns, bob, std::chrono::seconds(1)}, at(6)).error().code == errc::not_found);
  CHECK(r.state.tick(at(6)));
  CHECK_FALSE(r.state.tick(at(6)));
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.state.stats().expired_leases == 1);
  CHECK(r.state.stats().leases == 0);
}

TEST_CASE("registry lease: the death of an owner ends its leases and reservations, and no others", "[registry]") {
  one_registry r(1, {.tick_work = 4});
  const auto keys = some_keys(1, 6);
  r.save(keys);
  r.match({1, 1}, keys);
  r.match({1, 2}, {keys[0]});
  r.match({2, 1}, {keys[1]});
  const auto mine = r.reserve({1, 3}, some_keys(10, 3));
  const auto others = r.reserve({2, 3}, some_keys(20, 1));
  r.state.take_outbox();
  bool more = r.state.owner_died(1, at(0));
  CHECK(more);
  for (int i = 0; more && i < 10; ++i)
    more = r.state.tick(at(0));
  CHECK_FALSE(more);
  CHECK(r.info(keys[0])->leases == 0);
  CHECK(r.info(keys[1])->leases == 1);
  CHECK(r.state.stats().leases == 1);
  CHECK(r.state.stats().reservations == 1);
  CHECK(r.state.stats().expired_leases == 0);
  CHECK(r.state.stats().expired_reservations == 0);
  CHECK(r.for_rank(r.state.take_outbox(), 0).abort.slots.size() == 3);
  CHECK(r.commit({1, 3}, r.pages(some_keys(10, 3), mine)) == codes_t(3, errc::expired));
  CHECK(r.commit({2, 3}, r.pages(some_keys(20, 1), others)) == codes_t{errc::ok});
  CHECK_FALSE(r.state.owner_died(77, at(0)));
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry: locate reports on request which pages are in the slab", "[registry]") {
  registry_options options;
  const auto residence = std::make_shared<page_residence>();
  options.residence = residence;
  one_registry r(1, options);
  const auto keys = some_keys(10, 3);
  const ticket writer{50, 1};
  const auto pages = r.pages(keys, r.reserve(writer, keys, 0));
  r.commit(writer, {pages[0], pages[2]}, 0);
  const auto asked = [&](bool tell) {
    return r.state.locate({r.ns, 0, alice, std::chrono::seconds(9), keys, {}, tell}, at(0)).value().in_slab.items;
  };
  using notified = std::vector<std::uint8_t>;
  CHECK(asked(true).empty());
  const auto rank = residence->add(r.ns, 0, 100);
  CHECK(asked(true) == notified{1, 0, 1});
  rank->set_unwritten(pages[0].where.slot);
  CHECK(asked(true) == notified{0, 0, 1});
  CHECK(asked(false).empty());
  rank->clear_unwritten(pages[0].where.slot);
  CHECK(asked(true) == notified{1, 0, 1});
}

TEST_CASE("registry: a lookup reports on request which pages are in memory on all ranks", "[registry]") {
  registry_options options;
  const auto residence = std::make_shared<page_residence>();
  options.residence = residence;
  one_registry r(2, options);
  const auto keys = some_keys(10, 4);
  std::vector<std::vector<page_ref>> pages;
  for (const rank_number rank : {0, 1}) {
    pages.push_back(r.pages(keys, r.reserve(ticket{50, rank + 1U}, keys, rank)));
    r.commit(ticket{50, rank + 1U}, pages.back(), rank);
  }
  const auto asked = [&](bool tell) {
    return r.state.match({r.ns, alice, std::chrono::seconds(9), keys, {}, tell}, at(0)).value();
  };
  using notified = std::vector<std::uint8_t>;
  // The memory of one rank is unknown here.
  const auto first = residence->add(r.ns, 0, 100);
  CHECK(asked(true).on_disk.items.empty());
  const auto second = residence->add(r.ns, 1, 100);
  CHECK(asked(true).on_disk.items == notified{1, 1, 1, 1});
  for (const auto& page : pages[0])
    first->set(page.where.slot);
  CHECK(asked(true).on_disk.items == notified{1, 1, 1, 1});
  second->set(pages[1][0].where.slot);
  second->set(pages[1][2].where.slot);
  CHECK(asked(true).on_disk.items == notified{0, 1, 0, 1});
  first->clear(pages[0][2].where.slot);
  CHECK(asked(true).on_disk.items == notified{0, 1, 1, 1});
  CHECK(asked(false).on_disk.items.empty());
  CHECK(asked(false).matched == 4);
  residence->remove(r.ns, 1);
  CHECK(asked(true).on_disk.items.empty());
  // They are counted by tier where it is known: of four lookups.
  const auto counts = r.state.describe({}).value().namespaces.at(0).lookups;
  CHECK(counts.found_keys == 8 * 4);
  CHECK(counts.memory_keys == 2 + 1);
  CHECK(counts.disk_keys == 4 + 4 + 2 + 3);
  CHECK(counts.peer_keys == 0);
}

TEST_CASE("registry lease: invalid lookups are refused, counted, and change nothing", "[registry]") {
  one_registry r(2, {.max_batch = 4,
                     .max_lease = std::chrono::seconds(60),
                     .max_leases = 3,
                     .max_leases_per_owner = 2,
                     .max_lease_keys = 3});
  const auto keys = some_keys(1, 4);
  r.save(keys, 0);
  r.save(keys, 1);
  const auto match = [&](ticket lease, keys_t wanted, duration lease_for = std::chrono::seconds(1)) {
    const auto reply = r.state.match({r.ns, lease, lease_for, std::move(wanted)}, at(0));
    return reply ? errc::ok : reply.error().code;
  };
  CHECK(match(alice, some_keys(1, 5)) == errc::limit_exceeded);
  CHECK(match(alice, {key_of(1), {}}) == errc::invalid_argument);
  CHECK(match({0, 1}, keys) == errc::invalid_argument);
  CHECK(match(alice, {keys[0]}, duration{0}) == errc::invalid_argument);
  CHECK(match(alice, {keys[0]}, -std::chrono::seconds(1)) == errc::invalid_argument);
  CHECK(match(alice, {keys[0]}, std::chrono::seconds(61)) == errc::invalid_argument);
  CHECK(match(alice, keys) == errc::limit_exceeded); // four keys, three may be leased
  CHECK(r.state.locate({r.ns, 2, alice, std::chrono::seconds(1), keys_t{keys[0]}}, at(0)).error().code ==
        errc::out_of_range);
  CHECK(r.state.match({{1, 2}, alice, std::chrono::seconds(1), keys_t{keys[0]}}, at(0)).error().code ==
        errc::unknown_namespace);
  CHECK(r.state.release({{1, 2}, alice, 0}, at(0)).error().code == errc::unknown_namespace);
  CHECK(r.state.stats().refused == 10);
  CHECK(r.state.stats().leases == 0);

  CHECK(match(alice, {keys[0], keys[1]}) == errc::ok);
  CHECK(match(alice, {keys[0], keys[2], keys[3]}) == errc::limit_exceeded);
  CHECK(r.info(keys[2])->leases == 0); // all of it was undone
  CHECK(match({1, 2}, {keys[0]}) == errc::ok);
  CHECK(match({1, 3}, {keys[0]}) == errc::limit_exceeded); // of one owner
  CHECK(match({2, 1}, {keys[0]}) == errc::ok);
  CHECK(match({3, 1}, {keys[0]}) == errc::limit_exceeded); // of all

  const auto other = namespace_of(1, "other");
  must(r.state.add_namespace(other));
  CHECK(r.state.match({other.id(), alice, std::chrono::seconds(1), keys}, at(0)).error().code ==
        errc::invalid_argument);
  CHECK(r.state.release({other.id(), alice, 0}, at(0)).error().code == errc::invalid_argument);
  CHECK(r.info(keys[0])->leases == 3);
  CHECK(r.state.stats().refused == 15);
  CHECK(r.state.check_invariants() == "");
}

} // namespace registry_lease_test
