#include "tests/unit/events_support.hpp"
#include "tests/unit/registry_support.hpp"

#include <algorithm>
#include <variant>

namespace troupe::test {

namespace {

/// A registry that reports what is to be published, and the reports.
struct publishing_registry : one_registry {
  explicit publishing_registry(std::uint32_t world_size = 1, registry_options how = {})
      : one_registry(world_size, with_feed(std::move(how))) {}

  static registry_options with_feed(registry_options how) {
    how.events = std::make_shared<events::feed>();
    return how;
  }

  std::vector<errc> describe(const keys_t& keys) {
    std::vector<errc> out;
    const auto reply = state.describe_pages({ns, describe_keys(keys)}).value();
    for (const auto code : reply.results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  /// Keys that were reported as removed since the last call, and all reports.
  keys_t removed() {
    keys_t out;
    reports = state.take_outbox().events;
    for (const auto& x : reports)
      if (const auto* keys = std::get_if<events::keys_removed>(&x.what))
        out.insert(out.end(), keys->keys.begin(), keys->keys.end());
    std::ranges::sort(out);
    return out;
  }

  std::vector<events::change> reports;
};

} // namespace

TEST_CASE("registry events: a registry without a publisher refuses descriptions", "[registry][events]") {
  one_registry x;
  x.save(some_keys(1, 2));
  CHECK(x.state.describe_pages({x.ns, describe_keys(some_keys(1, 2))}).error().code == errc::unsupported);
  CHECK(x.state.take_outbox().events.empty());
}

TEST_CASE("registry events: only complete keys are described", "[registry][events]") {
  publishing_registry x(2);
  const auto keys = some_keys(1, 3);
  CHECK(x.removed().empty());
  REQUIRE(x.reports.size() == 1); // the namespace
  CHECK(std::holds_alternative<events::namespace_served>(x.reports[0].what));
  x.save(keys, 0);
  x.save({keys[1]}, 1);
  CHECK(x.describe(keys) == std::vector{errc::not_found, errc::ok, errc::not_found});
  x.removed();
  REQUIRE(x.reports.size() == 1);
  const auto& change = std::get<events::pages_described>(x.reports[0].what);
  CHECK(change.positions == std::vector<std::uint32_t>{1});
  CHECK(change.in_memory == std::vector<std::uint8_t>{0});
  CHECK(x.state.describe_pages({{9, 9}, describe_keys(keys)}).error().code == errc::unknown_namespace);
  auto bad = describe_keys(keys);
  bad.tokens.items.pop_back();
  CHECK(x.state.describe_pages({x.ns, bad}).error().code == errc::invalid_argument);
}

TEST_CASE("registry events: a described key that is not complete any more is reported once", "[registry][events]") {
  publishing_registry x(2);
  const auto keys = some_keys(1, 6);
  std::vector<page_ref> pages;
  for (const rank_number rank : {0U, 1U})
    pages = x.save(keys, rank);
  x.describe({keys[0], keys[1], keys[2], keys[3], keys[4]});
  CHECK(x.removed().empty());
  // Damaged on one rank, then on the other.
  x.state.invalidate({x.ns, 1, std::vector<page_ref>{pages[0]}}, at(1)).value();
  CHECK(x.removed() == keys_t{keys[0]});
  x.state.erase({x.ns, all_ranks, keys_t{keys[0], keys[1], keys[5]}}, at(1)).value();
  CHECK(x.removed() == keys_t{keys[1]});
  x.state.drop_pages({x.ns, 1, std::vector<page_ref>{pages[2]}}, at(1)).value();
  CHECK(x.removed() == keys_t{keys[2]});
  x.state.evict({x.ns, 0, 6, true}, at(2)).value();
  CHECK(x.removed() == keys_t{keys[3], keys[4]});
  // Saved again, it is not described.
  x.save({keys[3]}, 0);
  x.save({keys[3]}, 1);
  x.state.erase({x.ns, all_ranks, keys_t{keys[3]}}, at(3)).value();
  CHECK(x.removed().empty());
}

TEST_CASE("registry events: the end of a namespace is reported behind the removal of its keys", "[registry][events]") {
  publishing_registry x;
  const auto keys = some_keys(1, 5);
  x.save(keys);
  x.describe(keys);
  x.removed();
  for (int i = 0; i < 10 && x.state.remove_namespace({x.ns, true}, at(2)).value().more; ++i)
    x.state.tick(at(2));
  CHECK(x.removed() == keys);
  REQUIRE_FALSE(x.reports.empty());
  CHECK(std::holds_alternative<events::namespace_ended>(x.reports.back().what));
  CHECK(x.reports.back().ns == x.ns);
}

TEST_CASE("registry events: removals and descriptions of a key are reported in their order", "[registry][events]") {
  publishing_registry x;
  const auto keys = some_keys(1, 1);
  x.removed();
  for (int i = 0; i < 2; ++i) {
    x.save(keys);
    x.describe(keys);
    x.state.erase({x.ns, all_ranks, keys}, at(1)).value();
  }
  x.removed();
  std::vector<std::size_t> kinds;
  for (const auto& report : x.reports)
    kinds.push_back(report.what.index());
  CHECK(kinds == std::vector<std::size_t>{1, 2, 1, 2});
}

TEST_CASE("registry events: a rank that is added makes described keys incomplete", "[registry][events]") {
  publishing_registry x;
  auto spec = namespace_of(0, "automatic");
  must(x.state.add_namespace(spec, {.automatic = true}));
  x.ns = spec.id();
  must(x.state.add_rank(x.ns, 0, 100));
  const auto keys = some_keys(1, 3);
  x.save(keys);
  x.describe({keys[0], keys[2]});
  x.removed();
  must(x.state.add_rank(x.ns, 1, 100));
  CHECK(x.removed() == keys_t{keys[0], keys[2]});
}

TEST_CASE("registry events: the keys of a namespace that is removed are reported", "[registry][events]") {
  publishing_registry x;
  const auto keys = some_keys(1, 3);
  x.save(keys);
  x.describe(keys);
  x.removed();
  while (x.state.remove_namespace({x.ns, true}, at(5)).value().more) {
  }
  CHECK(x.removed() == keys);
}

TEST_CASE("registry events: a described key that moves between memory and disk is reported", "[registry][events]") {
  registry_options how;
  const auto residence = std::make_shared<page_residence>();
  how.residence = residence;
  publishing_registry x(1, how);
  const auto slots = residence->add(x.ns, 0, 100);
  const auto keys = some_keys(1, 3);
  const auto pages = x.save(keys);
  slots->set(pages[0].where.slot);
  x.describe({keys[0], keys[1]});
  x.removed();
  CHECK(std::get<events::pages_described>(x.reports.back().what).in_memory == std::vector<std::uint8_t>{1, 0});
  slots->clear(pages[0].where.slot);
  slots->set(pages[1].where.slot);
  slots->set(pages[2].where.slot);
  // What is known stays until the key is looked at, so that its move is reported.
  x.describe({keys[0]});
  x.removed();
  CHECK(std::get<events::pages_described>(x.reports.back().what).in_memory == std::vector<std::uint8_t>{1});
  for (int i = 0; i < 4; ++i)
    x.state.tick(at(1));
  x.removed();
  REQUIRE(x.reports.size() == 1);
  const auto& moved = std::get<events::keys_moved>(x.reports[0].what);
  CHECK(moved.keys == keys_t{keys[0], keys[1]});
  CHECK(moved.in_memory == std::vector<std::uint8_t>{0, 1});
}

} // namespace troupe::test
