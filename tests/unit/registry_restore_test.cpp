// State that survives a restart: the change feed, and restoring from it.

#include "tests/catch.hpp"
#include "tests/unit/registry_slot_client_support.hpp"

#include <algorithm>
#include <random>
#include <tuple>
#include <type_traits>

namespace registry_restore_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};

/// The changes in words, so that they can be compared.
std::vector<std::string> words(const registry_outbox& out) {
  std::vector<std::string> lines;
  const auto n = [](std::uint64_t x) { return std::to_string(x); };
  for (const auto& change : out.changes)
    lines.push_back(std::visit(
        [&](const auto& x) -> std::string {
          using kind = std::decay_t<decltype(x)>;
          if constexpr (std::is_same_v<kind, namespace_added>)
            return "namespace " + x.spec->name + (x.options.automatic ? " automatic" : " fixed");
          else if constexpr (std::is_same_v<kind, namespace_removed>)
            return "no namespace";
          else if constexpr (std::is_same_v<kind, rank_added>)
            return "rank " + n(x.rank) + " of " + n(x.slots) + (x.incarnation == 0 ? "" : " life " + n(x.incarnation));
          else if constexpr (std::is_same_v<kind, page_published>)
            return "page " + n(x.page.key.hi) + " after " + n(x.page.parent.hi) + " rank " + n(x.page.rank) + " at " +
                   n(x.page.where.slot) + "/" + n(x.page.where.generation) +
                   (x.incarnation == 0 ? "" : " life " + n(x.incarnation));
          else if constexpr (std::is_same_v<kind, key_described>)
            return "described " + n(x.key.hi);
          else if constexpr (std::is_same_v<kind, description_ended>)
            return "not described " + n(x.key.hi);
          else
            return "no page " + n(x.key.hi) + " rank " + n(x.rank);
        },
        change));
  return lines;
}

using lines_t = std::vector<std::string>;

stored_page page_of(const slot_client_registry& r, std::uint64_t key, slot_ref where, rank_number rank = 0,
                    std::uint64_t parent = 0) {
  return {r.ns, key_of(key), parent == 0 ? key_digest{} : key_of(parent), where, rank, 0};
}

codes_t restore(slot_client_registry& r, const std::vector<stored_page>& pages) {
  return codes(r.state.restore(pages).value());
}

} // namespace

TEST_CASE("registry restore: the change feed has what must survive, in order", "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  auto out = r.state.take_outbox();
  CHECK(words(out) == lines_t{"namespace test automatic", "rank 0 of 1000"});
  const auto k = some_keys(1, 2);
  const auto given = r.allocate(k, 0, 0, 10, chain_parents(k));
  out = r.state.take_outbox();
  CHECK(out.changes.empty()); // a reservation does not survive
  r.confirm({{k[0], given[0].where.slot}, {k[1], given[1].where.slot}});
  out = r.state.take_outbox();
  CHECK(words(out) == lines_t{"page 1 after 0 rank 0 at 0/7", "page 2 after 1 rank 0 at 1/7"});
  r.confirm({{k[0], given[0].where.slot}});
  CHECK(r.state.take_outbox().changes.empty());
  r.evict(1);
  r.erase({k[0]});
  out = r.state.take_outbox();
  CHECK(words(out) == lines_t{"no page 2 rank 0", "no page 1 rank 0"});
  CHECK(out.slots.at(0).release.slots.size() == 2);
  must(r.state.add_rank(r.ns, 0, 1000));
  must(r.state.add_namespace(r.spec, {true, true, 4}));
  CHECK(r.state.take_outbox().changes.empty()); // known already
}

TEST_CASE("registry restore: pages beyond the slab are in memory only and not stored", "[registry]") {
  one_registry r(1, {.change_feed = true});
  must(r.state.add_rank(r.ns, 0, 2));
  r.state.take_outbox();
  const auto saved = r.save(some_keys(1, 4));
  CHECK(saved.back().where.slot == 3);
  CHECK(words(r.state.take_outbox()) == lines_t{"page 1 after 0 rank 0 at 0/1", "page 2 after 0 rank 0 at 1/1"});
  CHECK(r.count(some_keys(1, 4)) == 4);
  r.state.take_outbox();
  CHECK(r.evict(4).slots == 4);
  auto gone = words(r.state.take_outbox());
  std::ranges::sort(gone);
  CHECK(gone == lines_t{"no page 1 rank 0", "no page 2 rank 0"});
}

TEST_CASE("registry restore: pages are published with the incarnation of their rank, which is stored first",
          "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  r.state.take_outbox();
  must(r.state.add_rank(r.ns, 0, 1000, 77));
  must(r.state.add_rank(r.ns, 0, 1000, 77));
  must(r.state.add_rank(r.ns, 0, 1000)); // unchanged
  r.save(some_keys(1, 1));
  CHECK(words(r.state.take_outbox()) == lines_t{"rank 0 of 1000 life 77", "page 1 after 0 rank 0 at 0/7 life 77"});
  // Not as long as there are pages that would be the new one's.
  CHECK(r.state.add_rank(r.ns, 0, 1000, 78).error().code == errc::busy);
  r.erase(some_keys(1, 1));
  must(r.state.add_rank(r.ns, 0, 1000, 78));
  CHECK(words(r.state.take_outbox()) == lines_t{"no page 1 rank 0", "rank 0 of 1000 life 78"});
}

TEST_CASE("registry restore: a namespace that engines use by name alone is stored with that origin", "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  r.state.take_outbox();
  must(r.state.add_namespace(r.spec, {true, true, 4, namespace_origin::api}));
  CHECK(r.state.take_outbox().changes.empty());
  must(r.state.add_namespace(r.spec, {true, true, 4, namespace_origin::protocol}));
  auto out = r.state.take_outbox();
  REQUIRE(out.changes.size() == 1);
  CHECK(std::get<namespace_added>(out.changes[0]).options.origin == namespace_origin::protocol);
  must(r.state.add_namespace(r.spec, {true, true, 4, namespace_origin::protocol}));
  must(r.state.add_namespace(r.spec, {true, true, 4, namespace_origin::api}));
  CHECK(r.state.take_outbox().changes.empty());
}

TEST_CASE("registry restore: restored pages are protected as long as an earlier promise may last", "[registry]") {
  const auto k = some_keys(1, 1);
  const auto restored = [&](slot_client_registry& r) {
    const std::vector<stored_page> stored{{r.ns, k[0], {}, {3, 5}, 0, 0}};
    REQUIRE(codes(r.state.restore(stored).value()) == codes_t{errc::ok});
    REQUIRE(r.state.restored().has_value());
    r.tick(100);
  };
  SECTION("where engines own the slab") {
    slot_client_registry r(1, {.promised = std::chrono::milliseconds(4900)});
    restored(r);
    CHECK(r.evict(1, 104) == 0);
    CHECK(r.evict(1, 105) == 1);
  }
  SECTION("not where an io worker fences") {
    slot_client_registry r(1, {.promised = std::chrono::seconds(5)}, {true, false, 4});
    restored(r);
    CHECK(r.evict(1, 100) == 1);
  }
}

TEST_CASE("registry restore: a slot that is released late follows a change of an earlier outbox", "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  const auto k = some_keys(1, 1);
  r.save(k);
  r.protect(k, 0, 1000);
  r.erase(k);
  auto out = r.state.take_outbox();
  CHECK(words(out).back() == "no page 1 rank 0");
  CHECK(one_registry::for_rank(out, 0).release.slots.empty());
  r.tick(2);
  out = r.state.take_outbox();
  CHECK(out.changes.empty());
  CHECK(out.slots.size() == 1);
}

TEST_CASE("registry restore: the removal of a namespace is one change and comes first", "[registry]") {
  slot_client_registry r(1, {.max_clear_looks = 2, .change_feed = true});
  r.save(some_keys(1, 5));
  r.state.take_outbox();
  CHECK(r.state.remove_namespace({r.ns, true}, at(0)).value().more);
  CHECK(words(r.state.take_outbox()) == lines_t{"no namespace"});
  while (r.state.remove_namespace({r.ns, true}, at(0)).value().more) {
  }
  CHECK(r.state.take_outbox().changes.empty());
}

TEST_CASE("registry restore: without the change feed no change is reported", "[registry]") {
  slot_client_registry r;
  r.erase({key_of(1)});
  r.save(some_keys(1, 2));
  r.evict(1);
  const auto out = r.state.take_outbox();
  CHECK(out.changes.empty());
}

TEST_CASE("registry restore: pages are restored in any order with their children counted", "[registry]") {
  slot_client_registry r(2);
  std::vector<stored_page> pages;
  for (std::uint64_t n = 1; n <= 20; ++n)
    for (rank_number rank = 0; rank < 2; ++rank)
      pages.push_back(page_of(r, n, {static_cast<slot_number>(n), 5}, rank, n - 1));
  const auto seed = GENERATE(range(0U, 5U));
  INFO("seed " << seed);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
  CHECK(restore(r, {pages.begin(), pages.begin() + 7}) == codes_t(7, errc::ok));
  CHECK(restore(r, {pages.begin() + 5, pages.end()}) == codes_t(35, errc::ok)); // two of them again
  const auto report = r.state.restored().value();
  CHECK(report.pages == 40);
  CHECK(report.keys == 20);
  CHECK(report.displaced + report.refused == 0);
  CHECK(r.exists(some_keys(1, 20)) == codes_t(20, errc::ok));
  CHECK(r.look_up(key_of(1)).parent.is_null());
  CHECK(r.look_up(key_of(9)).parent == key_of(8));
  CHECK(r.look_up(key_of(9)).children == 1);
  CHECK(r.look_up(key_of(20)).children == 0);
  CHECK(r.state.check_invariants() == "");
  CHECK(r.given_back().empty());
  // The chain is evicted from its end, and slots are known by number.
  CHECK(r.evict(1) == 1);
  CHECK(r.exists({key_of(20)}, 0) == codes_t{errc::not_found});
  CHECK(r.reclaim({3}) == codes_t{errc::ok});
  CHECK(r.exists({key_of(3)}, 0) == codes_t{errc::not_found});
}

TEST_CASE("registry restore: children in other shards are notified", "[registry]") {
  slot_client_registry r(1, {.shard = 0, .shard_count = 2});
  std::uint64_t mine = 1;
  while (shard_of(key_of(mine), 2) != 0)
    ++mine;
  std::uint64_t theirs = 1;
  while (shard_of(key_of(theirs), 2) != 1)
    ++theirs;
  CHECK(restore(r, {page_of(r, mine, {1, 1}, 0, theirs), page_of(r, theirs, {2, 1})}) ==
        codes_t{errc::ok, errc::invalid_argument});
  const auto out = r.state.take_outbox();
  REQUIRE(out.children.size() == 1);
  CHECK(out.children[0].request.changes.items == std::vector<child_delta>{{key_of(theirs), 1}});
}

TEST_CASE("registry restore: a slot that several keys claim is given to none, in any order and for any generations",
          "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  r.state.take_outbox();
  std::vector<stored_page> claims{page_of(r, 1, {4, 5}, 0, 9), page_of(r, 2, {4, 6}, 0, 1), page_of(r, 3, {4, 6})};
  const auto order = GENERATE(range(0, 6));
  for (int i = 0; i < order; ++i)
    std::next_permutation(claims.begin(), claims.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  CHECK(restore(r, claims) == codes_t{errc::ok, errc::stale, errc::stale});
  CHECK(r.state.keys() == 0);
  CHECK(restore(r, {page_of(r, 5, {5, 6})}) == codes_t{errc::ok});
  auto out = r.state.take_outbox();
  lines_t gone; // to be forgotten by the store as well
  for (const auto& x : claims)
    gone.push_back("no page " + std::to_string(x.key.hi) + " rank 0");
  CHECK(words(out) == gone);
  CHECK(out.slots.empty()); // the slot is not these pages' to give back
  const auto report = r.state.restored().value();
  CHECK(report.pages == 1);
  CHECK(report.displaced == 1);
  CHECK(report.refused == 2);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry restore: invalid pages are not restored", "[registry]") {
  slot_client_registry r(1, {}, {true, true, 4}, 10);
  auto elsewhere = page_of(r, 1, {1, 1});
  elsewhere.ns = {7, 7};
  CHECK(restore(r, {page_of(r, 1, {10, 1}), page_of(r, 1, {1, 1}, 3), page_of(r, 8, {1, 1}), page_of(r, 1, {2, 0}),
                    elsewhere}) ==
        codes_t{errc::out_of_range, errc::out_of_range, errc::ok, errc::invalid_argument, errc::unknown_namespace});
  auto null = page_of(r, 1, {2, 1});
  null.key = {};
  CHECK(restore(r, {null}) == codes_t{errc::invalid_argument});
  CHECK(restore(r, {page_of(r, 5, {5, 1}), page_of(r, 5, {6, 1}), page_of(r, 5, {5, 2})}) ==
        codes_t{errc::ok, errc::exists, errc::exists});
  CHECK(r.state.restored().value().pages == 2);
  CHECK(r.state.restored().error().code == errc::invalid_argument);
  CHECK(r.state.restore({}).error().code == errc::invalid_argument);
  CHECK(r.state.drop_restored(r.ns, 0, {}).error().code == errc::invalid_argument);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry restore: the number of pages in one restore message is bounded, and so are dropped slots",
          "[registry]") {
  slot_client_registry r;
  const std::vector<stored_page> pages(restored_pages_max + 1, page_of(r, 1, {4, 5}));
  CHECK(r.state.restore(pages).error().code == errc::limit_exceeded);
  CHECK(codes(r.state.restore(std::span(pages).first(restored_pages_max)).value()) ==
        codes_t(restored_pages_max, errc::ok));
  const std::vector<slot_ref> lost(restored_pages_max + 1, {4, 5});
  CHECK(r.state.drop_restored(r.ns, 0, lost).error().code == errc::limit_exceeded);
  CHECK(r.exists(some_keys(1, 1)) == codes_t{errc::ok});
  CHECK(codes(r.state.drop_restored(r.ns, 0, std::span(lost).first(restored_pages_max)).value()).front() == errc::ok);
}

TEST_CASE("registry restore: a page that loses its slot to another shard is dropped", "[registry]") {
  slot_client_registry r(1, {.change_feed = true});
  restore(r, {page_of(r, 1, {4, 5}), page_of(r, 2, {5, 5}, 0, 1)});
  r.state.take_outbox();
  const std::vector<slot_ref> lost{{5, 5}, {4, 4}, {5, 5}, {6, 1}, {100000, 1}};
  CHECK(codes(r.state.drop_restored(r.ns, 0, lost).value()) ==
        codes_t{errc::ok, errc::not_found, errc::not_found, errc::not_found, errc::not_found});
  CHECK(r.exists(some_keys(1, 2)) == codes_t{errc::ok, errc::not_found});
  CHECK(r.look_up(key_of(1)).children == 0);
  CHECK(words(r.state.take_outbox()) == lines_t{"no page 2 rank 0"});
  // The slot is not given out with this generation again.
  CHECK(restore(r, {page_of(r, 3, {5, 5})}) == codes_t{errc::stale});
  CHECK(r.state.restored().value().displaced == 1);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry restore: a restored shard serves like any other", "[registry]") {
  slot_client_registry r;
  r.granted[0] = 500;
  restore(r, {page_of(r, 1, {4, 5}), page_of(r, 2, {5, 5}, 0, 1)});
  r.state.restored().value();
  CHECK(codes(r.allocate(some_keys(1, 3))) == codes_t{errc::exists, errc::exists, errc::ok});
  CHECK(r.state.match({r.ns, alice, std::chrono::seconds(1), some_keys(1, 3)}, at(0)).value().matched == 2);
  CHECK(r.erase({key_of(1)}) == codes_t{errc::ok});
  CHECK(r.state.check_invariants() == "");
}

} // namespace registry_restore_test
