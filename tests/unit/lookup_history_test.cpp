// What shards record about lookups and keys, so that misses can be explained.

#include "actors/node/registry/lookup_history.hpp"
#include "actors/node/supervisor/client_names.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <memory>
#include <thread>

namespace lookup_history_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};
constexpr std::size_t all = 100;

namespace_id any_namespace() {
  return namespace_of(1).id();
}

lookup_part lookup_of(std::uint64_t key, ticket name = alice, timestamp when = at(1)) {
  lookup_part out{.at = when, .name = name, .ns = any_namespace(), .asked = 1};
  out.state = missing_state::absent;
  out.missing = key_of(key);
  return out;
}

/// Constructed before the registry that gets it.
struct has_history {
  std::shared_ptr<lookup_history> history = std::make_shared<lookup_history>(64, 4096, at(0));
};

/// A registry whose lookups are recorded.
struct explained_registry : has_history, one_registry {
  explicit explained_registry(std::uint32_t world_size = 1, const registry_options& options = {})
      : one_registry(world_size, with_history(options)) {}

  registry_options with_history(registry_options options) const {
    options.history = history;
    return options;
  }

  /// The last lookup. The outbox is taken as the actor does after each call.
  explained_part last() {
    (void)state.take_outbox();
    const auto view = history->read({}, 1);
    REQUIRE(view.parts.size() == 1);
    return view.parts.front();
  }

  std::optional<key_event> last_event() {
    const auto x = last();
    return x.before ? std::optional(x.before->what) : std::nullopt;
  }
};

} // namespace

TEST_CASE("lookup history: a history keeps the newest lookups and events", "[explain]") {
  lookup_history history(2, 3, at(0));
  history.note(any_namespace(), key_of(1), key_event::erased, 7);
  for (std::uint64_t i = 1; i <= 3; ++i)
    history.record(lookup_of(1, {1, i}, at(static_cast<std::int64_t>(i))));

  auto seen = history.read({}, all);
  REQUIRE(seen.parts.size() == 2);
  CHECK(seen.parts[0].part.name.sequence == 3);
  CHECK(seen.parts[1].part.name.sequence == 2);
  REQUIRE(seen.parts[0].before);
  CHECK(seen.parts[0].before->what == key_event::erased);
  CHECK(seen.parts[0].before->rank == 7);
  CHECK(seen.events == 1);
  CHECK(seen.events_since == at(0));
  CHECK(history.read({}, 1).parts.size() == 1);

  // The fourth event overwrites the first one.
  history.advance(at(5));
  for (std::uint64_t i = 2; i <= 4; ++i)
    history.note(any_namespace(), key_of(i), key_event::evicted, 0);
  seen = history.read({}, all);
  CHECK_FALSE(seen.parts[0].before);
  CHECK(seen.events == 4);
  CHECK(seen.events_since == at(5));
}

TEST_CASE("lookup history: events of a batch are recorded together, or not at all where there is no history",
          "[explain]") {
  lookup_history history(1, 4, at(0));
  history.advance(at(2) + lookup_history::tick + std::chrono::milliseconds(1));
  {
    lookup_history::batch notes(&history, any_namespace(), 70'000);
    for (std::uint64_t i = 1; i <= 6; ++i)
      notes.add(key_of(i), i < 6 ? key_event::evicted : key_event::evicted_copy);
  }
  lookup_history::batch(nullptr, any_namespace(), 0).add(key_of(6), key_event::erased);
  history.record(lookup_of(6, alice, at(3)));
  const auto seen = history.read({}, all);
  CHECK(seen.events == 6);
  REQUIRE(seen.parts[0].before);
  CHECK(seen.parts[0].before->what == key_event::evicted_copy);
  CHECK(seen.parts[0].before->at == at(2) + lookup_history::tick); // rounded down
  CHECK(seen.parts[0].before->rank == 0xffff);
  history.record(lookup_of(2));
  CHECK_FALSE(history.read({}, all).parts[0].before);
  history.record(lookup_of(3));
  CHECK(history.read({}, all).parts[0].before);
}

TEST_CASE("lookup history: an event explains only lookups after it, of its key and its namespace", "[explain]") {
  lookup_history history(8, 8, at(0));
  history.record(lookup_of(1));
  history.note(any_namespace(), key_of(1), key_event::evicted, 0);
  history.note(any_namespace(), key_of(2), key_event::damaged, 0);
  history.record(lookup_of(1));
  auto elsewhere = lookup_of(1);
  elsewhere.ns = namespace_of(1, "other").id();
  history.record(elsewhere);
  const auto seen = history.read({}, all);
  CHECK_FALSE(seen.parts[0].before);
  REQUIRE(seen.parts[1].before);
  CHECK(seen.parts[1].before->what == key_event::evicted);
  CHECK_FALSE(seen.parts[2].before);
}

TEST_CASE("lookup history: the last removal explains a miss, and a later arrival is no removal", "[explain]") {
  lookup_history history(8, 8, at(0));
  history.note(any_namespace(), key_of(1), key_event::evicted, 0);
  history.note(any_namespace(), key_of(1), key_event::fetched, 0);
  history.note(any_namespace(), key_of(1), key_event::damaged, 0);
  history.record(lookup_of(1));
  history.advance(at(2));
  history.note(any_namespace(), key_of(1), key_event::fetched, 0);
  history.advance(at(3));
  history.note(any_namespace(), key_of(1), key_event::fetched, 0);
  const auto seen = history.read({}, all).parts[0];
  REQUIRE(seen.before);
  CHECK(seen.before->what == key_event::damaged);
  REQUIRE(seen.arrived);
  CHECK(seen.arrived->at == at(2));
}

TEST_CASE("lookup history: a reader selects lookups by namespace, owner and ticket", "[explain]") {
  lookup_history history(8, 8, at(0));
  history.record(lookup_of(1, {1, 1}));
  history.record(lookup_of(1, {1, 2}));
  history.record(lookup_of(1, {2, 1}));
  auto other = lookup_of(1, {2, 2});
  other.ns = namespace_of(1, "other").id();
  history.record(other);

  const std::array of_one{any_namespace()};
  CHECK(history.read({.namespaces = of_one}, all).parts.size() == 3);
  const std::vector<owner_id> owners{2};
  CHECK(history.read({.owners = owners}, all).parts.size() == 2);
  CHECK(history.read({.namespaces = of_one, .owners = owners}, all).parts.size() == 1);
  const auto one = history.read({.name = ticket{1, 2}}, all).parts;
  REQUIRE(one.size() == 1);
  CHECK(one[0].part.name == ticket{1, 2});
}

TEST_CASE("lookup history: lookups of other namespaces do not count towards those that a reader wants", "[explain]") {
  lookup_history history(8, 1, at(0));
  history.record(lookup_of(1, {1, 1}));
  const auto other = namespace_of(1, "other").id();
  for (std::uint64_t i = 2; i < 8; ++i) {
    auto x = lookup_of(static_cast<int>(i), {2, i});
    x.ns = other;
    history.record(x);
  }
  const std::array of_one{any_namespace()};
  CHECK(history.read({.namespaces = of_one}, 2).parts.size() == 1);
  std::array both{any_namespace(), other};
  std::ranges::sort(both);
  CHECK(history.read({.namespaces = both}, all).parts.size() == 7);
  // None is not all.
  CHECK(history.read({.namespaces = std::span<const namespace_id>()}, all).parts.empty());
}

TEST_CASE("lookup history: a trim concerns the last lookup under its ticket", "[explain]") {
  lookup_history history(2, 2, at(0));
  auto x = lookup_of(1, {1, 1});
  x.found = x.kept = 5;
  history.record(x);
  history.record(x);
  history.trim({1, 1}, 3);
  history.trim({1, 2}, 1); // unknown
  auto seen = history.read({}, all).parts;
  CHECK(seen[0].part.kept == 3);
  CHECK(seen[1].part.kept == 5);
  history.trim({1, 1}, 9);
  CHECK(history.read({}, all).parts[0].part.kept == 5);
}

TEST_CASE("lookup history: one thread writes a history while others read it", "[explain]") {
  lookup_history history(16, 16, at(0));
  std::thread reader([&] {
    for (int i = 0; i < 200; ++i)
      for (const auto& x : history.read({}, all).parts)
        if (x.part.name != alice)
          std::abort();
  });
  for (std::uint64_t i = 0; i < 2000; ++i) {
    history.note(any_namespace(), key_of(i), key_event::evicted, 0);
    history.record(lookup_of(i));
    history.trim(alice, 0);
  }
  reader.join();
  CHECK(history.read({}, all).parts.size() == 16);
}

// -- what a registry records ------------------------------------------------------------------------------------------

TEST_CASE("lookup history: a lookup is recorded with what it found and its first missing key", "[explain][registry]") {
  explained_registry r;
  const auto keys = some_keys(1, 4);
  r.save(some_keys(1, 3));
  CHECK(r.match(alice, keys, 5) == 3);
  const auto x = r.last().part;
  CHECK(x.at == at(5));
  CHECK(x.name == alice);
  CHECK(x.ns == r.ns);
  CHECK(x.asked == 4);
  CHECK(x.found == 3);
  CHECK(x.kept == 3);
  CHECK(x.first == key_of(1));
  CHECK(x.missing == key_of(4));
  CHECK(x.state == missing_state::absent);
  CHECK(x.refused == errc::ok);
  CHECK_FALSE(r.last_event());

  CHECK(r.match(alice, some_keys(1, 3), 6) == 3);
  CHECK(r.last().part.state == missing_state::none);
}

TEST_CASE("lookup history: a lookup of each key is recorded with its first missing key", "[explain][registry]") {
  explained_registry r;
  r.save({key_of(1), key_of(3)});
  match_request x{r.ns, alice, std::chrono::seconds(10), some_keys(1, 4)};
  x.each = true;
  REQUIRE(r.state.match(x, at(1)));
  const auto part = r.last().part;
  CHECK(part.each);
  CHECK(part.found == 2);
  CHECK(part.missing == key_of(2));

  x.keys = {{key_of(1), key_of(3)}};
  REQUIRE(r.state.match(x, at(2)));
  CHECK(r.last().part.state == missing_state::none);
}

TEST_CASE("lookup history: lookups of other nodes are not recorded", "[explain][registry]") {
  explained_registry r;
  match_request x{r.ns, alice, std::chrono::seconds(10), some_keys(1, 4)};
  x.by_peer = true;
  REQUIRE(r.state.match(x, at(1)));
  CHECK(r.history->read({}, all).parts.empty());
}

TEST_CASE("lookup history: a key that one rank lacks is recorded as incomplete, with that rank",
          "[explain][registry]") {
  explained_registry r(3);
  const auto key = some_keys(1, 1);
  r.save(key, 0);
  r.save(key, 2);
  r.match(alice, key);
  auto x = r.last().part;
  CHECK(x.state == missing_state::incomplete);
  CHECK(x.rank == 1);
  CHECK(x.ranks_with_page == 2);
  CHECK_FALSE(x.rank_being_written);

  r.reserve(r.next_ticket(), key, 1);
  r.match(alice, key);
  CHECK(r.last().part.rank_being_written);
}

TEST_CASE("lookup history: a key whose first page is being written is recorded as such", "[explain][registry]") {
  explained_registry r;
  const auto key = some_keys(1, 1);
  const auto by = r.next_ticket();
  const auto reply = r.reserve(by, key);
  r.match(alice, key);
  CHECK(r.last().part.state == missing_state::being_saved);
  r.abort(by, r.pages(key, reply));
  r.match(alice, key);
  CHECK(r.last().part.state == missing_state::absent);
  CHECK(r.last_event() == key_event::save_ended);
}

TEST_CASE("lookup history: an eviction is recorded with its time and the rank that needed slots",
          "[explain][registry]") {
  explained_registry r(2);
  const auto key = some_keys(1, 1);
  r.save(key, 0);
  r.save(key, 1);
  REQUIRE(r.evict(1, 1, 7).slots == 1);
  r.match(alice, key, 9);
  const auto x = r.last();
  REQUIRE(x.before);
  CHECK(x.before->what == key_event::evicted);
  CHECK(x.before->rank == 1);
  CHECK(x.before->at == at(7));
  CHECK(x.part.state == missing_state::absent);
}

TEST_CASE("lookup history: an eviction of a key that another node has as well is recorded as such",
          "[explain][registry]") {
  explained_registry r;
  const auto key = some_keys(1, 1);
  r.save(key);
  r.match(alice, key);
  release_request x{r.ns, alice, 0};
  x.kept_there.items = key;
  must(r.state.release(x, at(0)));
  REQUIRE(r.evict(1, 0, 1).slots == 1);
  r.match(alice, key, 2);
  CHECK(r.last_event() == key_event::evicted_copy);
}

TEST_CASE("lookup history: an eviction for the memory of the index is recorded as such", "[explain][registry]") {
  registry_options options;
  options.memory = std::make_shared<memory_budget>(std::uint64_t{1} << 20);
  explained_registry r(1, options);
  // Until the budget is used up, and the first keys have made room.
  for (std::uint64_t saved = 0; saved == 0 || (saved < 100'000 && r.has(key_of(1))); saved += 500)
    r.save(some_keys(saved + 1, 500));
  REQUIRE_FALSE(r.has(key_of(1)));
  r.match(alice, some_keys(1, 1), 1);
  CHECK(r.last_event() == key_event::evicted_for_index);
}

TEST_CASE("lookup history: a damaged page, a dropped one and an erased one are recorded", "[explain][registry]") {
  explained_registry r(2);
  const auto keys = some_keys(1, 3);
  r.save(keys, 0);
  const auto pages = r.save(keys, 1);
  REQUIRE(r.state.invalidate({r.ns, 1, {{pages[0]}}}, at(3)));
  REQUIRE(r.state.drop_pages({r.ns, 1, {{pages[1]}}}, at(4)));
  REQUIRE(r.state.erase({r.ns, all_ranks, {{keys[2]}}}, at(5)));
  const key_event expected[] = {key_event::damaged, key_event::dropped, key_event::erased};
  for (std::size_t i = 0; i < 3; ++i) {
    INFO(i);
    r.match(alice, {keys[i]}, 9);
    const auto x = r.last();
    REQUIRE(x.before);
    CHECK(x.before->what == expected[i]);
    CHECK(x.before->at == at(static_cast<std::int64_t>(3 + i)));
    CHECK(x.part.state == (i < 2 ? missing_state::incomplete : missing_state::absent));
  }
}

TEST_CASE("lookup history: a save that gets no slot is recorded", "[explain][registry]") {
  explained_registry r;
  const auto keys = some_keys(1, 2);
  const auto plan = r.begin(r.next_ticket(), keys).value();
  REQUIRE(r.state.finish_reserve(plan.plan, r.fresh_slots(1), at(2)));
  r.match(alice, {keys[1]}, 3);
  CHECK(r.last_event() == key_event::save_without_slot);
  r.match(alice, {keys[0]}, 3);
  CHECK(r.last().part.state == missing_state::being_saved);
}

TEST_CASE("lookup history: a save that is refused is recorded, but not for pages that are stored",
          "[explain][registry]") {
  registry_options options;
  options.max_reserved_pages = 2;
  options.condition = std::make_shared<node_condition>();
  explained_registry r(1, options);
  r.save(some_keys(1, 1));
  REQUIRE_FALSE(r.begin(r.next_ticket(), some_keys(1, 4)));
  r.match(alice, some_keys(2, 1));
  CHECK(r.last_event() == key_event::save_over_limit);

  REQUIRE(options.condition->slab_damaged(r.ns, 0, "rank 0 is damaged"));
  REQUIRE(r.begin(r.next_ticket(), some_keys(1, 2)));
  r.match(alice, some_keys(2, 1));
  CHECK(r.last_event() == key_event::save_refused);
  REQUIRE(r.evict(1).slots == 1);
  r.match(alice, some_keys(1, 1));
  CHECK(r.last_event() == key_event::evicted);
}

TEST_CASE("lookup history: a save whose time has passed, or whose client has disconnected, is recorded",
          "[explain][registry]") {
  explained_registry r;
  r.reserve({5, 1}, some_keys(1, 1), 0, {}, 0, 10);
  r.reserve({6, 1}, some_keys(2, 1), 0, {}, 0, 100);
  r.state.tick(at(11));
  r.state.owner_died(6, at(12));
  for (std::uint64_t i = 1; i <= 2; ++i) {
    r.match(alice, some_keys(i, 1), 13);
    const auto x = r.last();
    REQUIRE(x.before);
    CHECK(x.before->what == key_event::save_ended);
    CHECK(x.before->at == at(10 + static_cast<std::int64_t>(i)));
  }
}

TEST_CASE("lookup history: fetched keys are counted until they are leased, and late ones are noted",
          "[explain][registry]") {
  explained_registry r;
  const auto keys = some_keys(1, 3);
  r.save({keys[0]});
  CHECK(r.match(alice, keys, 1) == 1);
  r.save({keys[1], keys[2]}, 0, {}, 2, page_origin::fetched);
  (void)r.state.take_outbox();
  const auto late = r.history->read({}, 1).parts.front();
  REQUIRE(late.arrived);
  CHECK(late.arrived->at == at(2));

  CHECK(r.match({1, 2}, keys, 2) == 3);
  CHECK(r.last().part.fetched == 2);
  r.release({1, 2}, 0, 2);
  CHECK(r.match({1, 3}, keys, 2) == 3);
  CHECK(r.last().part.fetched == 0);
}

TEST_CASE("lookup history: a lookup that gets no lease is recorded with the error", "[explain][registry]") {
  explained_registry r(1, {.max_leases = 1});
  const auto keys = some_keys(1, 2);
  r.save(keys);
  r.match(alice, keys);
  REQUIRE_FALSE(r.state.match({r.ns, {1, 2}, std::chrono::seconds(10), keys}, at(1)));
  const auto x = r.last().part;
  CHECK(x.name == ticket{1, 2});
  CHECK(x.refused == errc::limit_exceeded);
  CHECK(x.found == 2);
}

TEST_CASE("lookup history: a lookup that is trimmed keeps its prefix in the record, and a release changes nothing",
          "[explain][registry]") {
  explained_registry r;
  const auto keys = some_keys(1, 4);
  r.save(keys);
  const auto reply = r.state.match({r.ns, alice, std::chrono::seconds(10), keys}, at(0)).value();
  must(r.state.release({r.ns, alice, 3, reply.uses}, at(0)));
  CHECK(r.last().part.kept == 3);
  r.release(alice, 1);
  r.release(alice, 0);
  CHECK(r.last().part.kept == 3);
}

TEST_CASE("lookup history: lookups are found by the engine's name of the request, or its beginning",
          "[explain][registry]") {
  explained_registry r;
  const std::string long_name(200, 'x');
  for (const auto& name : {std::string("chatcmpl-1-a"), std::string("chatcmpl-12-b"), std::string(), long_name,
                           std::string("0_chatcmpl-7-c"), std::string("13_chatcmpl-7-d"), "4_" + long_name,
                           std::string("x_chatcmpl-7-e"), std::string("_chatcmpl-7-f")}) {
    match_request asked{r.ns, {1, 7}, std::chrono::seconds(10), some_keys(1, 2)};
    asked.request = name;
    REQUIRE(r.state.match(asked, at(0)));
  }
  (void)r.state.take_outbox();
  const auto found = [&](std::string_view name) {
    std::vector<std::string> out;
    for (const auto& x : r.history->read({.request = name}, all).parts)
      out.emplace_back(x.part.request.text());
    return out;
  };
  CHECK(found("").size() == 9);
  // The choices of one answer.
  CHECK(found("chatcmpl-7-") == std::vector<std::string>{"13_chatcmpl-7-d", "0_chatcmpl-7-c"});
  CHECK(found("0_chatcmpl") == std::vector<std::string>{"0_chatcmpl-7-c"});
  CHECK(found("chatcmpl-1") == std::vector<std::string>{"chatcmpl-12-b", "chatcmpl-1-a"});
  CHECK(found("chatcmpl-1-") == std::vector<std::string>{"chatcmpl-1-a"});
  CHECK(found("chatcmpl-3").empty());
  // A name beyond the limit is cut, and still found by the whole of it.
  CHECK(found(long_name) == std::vector<std::string>{("4_" + long_name).substr(0, request_name::most),
                                                     long_name.substr(0, request_name::most)});
}

TEST_CASE("lookup history: a page that was not restored is recorded", "[explain][registry]") {
  explained_registry r;
  must(r.state.add_rank(r.ns, 0, 10));
  const auto stored = [&](std::uint64_t key) { return stored_page{r.ns, key_of(key), {}, {3, 1}, 0, 0}; };
  REQUIRE(r.state.restore(std::vector{stored(1), stored(2)}));
  REQUIRE(r.state.restored());
  r.match(alice, some_keys(1, 1));
  CHECK(r.last_event() == key_event::not_restored);
}

TEST_CASE("lookup history: without a history nothing is recorded", "[explain][registry]") {
  one_registry r;
  const auto keys = some_keys(1, 3);
  r.save({keys[0]});
  r.evict(1);
  CHECK(r.match(alice, keys) == 0);
  const auto with = explained_registry().state.stats().resident_bytes;
  CHECK(with > one_registry().state.stats().resident_bytes);
}

TEST_CASE("lookup history: names of clients are known while they are attached, and for a while after", "[explain]") {
  client_names names(2);
  names.attached(1, "a");
  names.attached(2, "b");
  names.called(3, "c");
  names.disconnected(1);
  CHECK(names.name_of(1) == "a");
  CHECK(names.owners_of("a") == std::vector<owner_id>{1});
  CHECK(names.owners_of("d").empty());

  // The newest two of those that are not attached are kept.
  names.disconnected(2);
  CHECK(names.name_of(3).empty());
  CHECK(names.name_of(1) == "a");
  names.disconnected(2); // again: no effect
  names.disconnected(9);
  CHECK(names.name_of(1) == "a");
  names.called(4, "e");
  names.called(4, "e");
  CHECK(names.name_of(1).empty());
  CHECK(names.name_of(2) == "b");
  CHECK(names.name_of(4) == "e");
}

} // namespace lookup_history_test
