// The effects of a start on an index: shards, allocators and the store afterwards.

#include "actors/node/registry/registry.hpp"
#include "actors/node/supervisor/index_restore.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "events/description_text.hpp"
#include "store/epoch_file.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/unit/record_store.hpp"

#include <algorithm>
#include <future>
#include <memory>

namespace index_restore_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t shard_count = 3;
constexpr std::uint32_t slots = 16;
constexpr incarnation_number life = 5;
constexpr auto patience = std::chrono::seconds(60);

/// A run: shards that have read the store.
struct run {
  caf::actor_system& system;
  namespaces_config shards;
  known_namespaces known;

  run(caf::actor_system& where, const config::node_config& options, const std::shared_ptr<record_store>& store,
      const std::shared_ptr<events::feed>& events = nullptr)
      : system(where) {
    for (std::uint32_t i = 0; i < shard_count; ++i) {
      registry_options how;
      how.shard = i;
      how.shard_count = shard_count;
      how.change_feed = true;
      how.events = events;
      shards.shards.push_back(
          spawn_actor<registry>(system, how, std::vector<namespace_spec>{}, metrics_actor{}, store));
    }
    shards.rest = std::chrono::milliseconds(1);
    auto restored = restore_index(system, *store, shards, options, {}, *write_gate::always_open(), events.get());
    INFO((restored ? "" : to_string(restored.error())));
    REQUIRE(restored);
    known = std::move(*restored);
    for (const auto& x : shards.shards)
      ask<void>(x, bind_atom_v, peers());
  }
  run(const run&) = delete;
  run& operator=(const run&) = delete;
  ~run() {
    caf::scoped_actor self{system};
    const auto end = [&](const auto& x) {
      self->monitor(x);
      self->send_exit(x, caf::exit_reason::user_shutdown);
      self->receive([](const caf::down_msg&) {});
    };
    for (const auto& x : shards.shards)
      end(x);
    for (const auto& x : known.ranks)
      end(x.allocator);
  }

  registry_peers peers() const {
    registry_peers out{shards.shards, {}, {}, {}};
    for (const auto& x : known.ranks) {
      out.allocators.push_back(x.allocator);
      out.namespaces.push_back(x.ns);
      out.ranks.push_back(x.rank);
    }
    return out;
  }

  template <class Reply, class Handle, class... Ts>
  Reply ask(const Handle& to, Ts... xs) {
    auto answered = std::make_shared<std::promise<result<Reply>>>();
    auto coming = answered->get_future();
    troupe::ask<Reply>(
        system, to, [answered](result<Reply> x) { answered->set_value(std::move(x)); }, std::move(xs)...);
    REQUIRE(coming.wait_for(patience) == std::future_status::ready);
    auto reply = coming.get();
    INFO((reply ? "" : to_string(reply.error())));
    REQUIRE(reply);
    if constexpr (!std::is_void_v<Reply>)
      return std::move(*reply);
  }

  bool exists(const namespace_id& ns, const key_digest& key) {
    const auto shard = shards.shards[shard_of(key, shard_count)];
    return ask<result_codes>(shard, exists_request{ns, 0, std::vector{key}}).results[0] == 0;
  }

  /// Slots of the one rank there is.
  allocator_stats rank() {
    REQUIRE(known.ranks.size() == 1);
    return ask<allocator_stats>(known.ranks[0].allocator, stats_atom_v);
  }
};

struct world {
  scratch_directory directory;
  config::node_config options;
  system_config how{options.caf};
  caf::actor_system system{how};
  std::shared_ptr<record_store> store = std::make_shared<record_store>();
  store::namespace_record ns;

  world() {
    log::set_level("critical");
    options.data_dir = directory.path();
    ns.spec.name = ns.spec.model = "native";
    ns.spec.world_size = 0;
    ns.mode = store::world_size_mode::automatic;
    ns.max_ranks = 4;
    ns.origin = store::stored_origin::api;
    ns.id = ns.spec.id();
    store->put(ns);
    store->put(store::rank_record{ns.id, 0, slots, life});
    // As the run before left it.
    store->identity_.epoch = 77;
    REQUIRE(store::write_epoch(directory.path(), 77));
  }
  ~world() { log::set_level("info"); }

  /// The nth key that belongs to the shard.
  static key_digest key_in(std::uint32_t shard, std::uint64_t nth = 0) {
    for (std::uint64_t n = 1;; ++n)
      if (const key_digest key{n * 0x9e3779b97f4a7c15ULL, n}; shard_of(key, shard_count) == shard && nth-- == 0)
        return key;
  }

  void put(const key_digest& key, slot_ref where, incarnation_number incarnation = life) {
    store->put(store::page_record{ns.id, key, 0, where, {}, incarnation});
  }

  std::size_t stored(const key_digest& key) const {
    std::size_t n = 0;
    for (const auto& x : store->table().pages())
      n += x.key == key ? 1 : 0;
    return n;
  }
};

} // namespace

TEST_CASE_METHOD(world, "index: pages of any namespace are restored at their slots", "[index]") {
  for (std::uint32_t i = 0; i < shard_count; ++i)
    put(key_in(i), {i, 9});
  run now(system, options, store);
  for (std::uint32_t i = 0; i < shard_count; ++i)
    CHECK(now.exists(ns.id, key_in(i)));
  CHECK(now.rank().live == shard_count);
  CHECK(now.rank().free == slots - shard_count);
  CHECK(store->table().pages().size() == shard_count);
}

TEST_CASE_METHOD(world, "index: a slot claimed by pages of two shards is freed and both pages are dropped", "[index]") {
  const bool second_is_newer = GENERATE(true, false);
  put(key_in(0), {4, 9});
  put(key_in(1), {4, second_is_newer ? 10U : 8U});
  put(key_in(2), {5, 9});
  run now(system, options, store);
  CHECK_FALSE(now.exists(ns.id, key_in(0)));
  CHECK_FALSE(now.exists(ns.id, key_in(1)));
  CHECK(now.exists(ns.id, key_in(2)));
  CHECK(now.rank().free == slots - 1);
  // Deleted before service begins, so that no crash restores one of them.
  CHECK(stored(key_in(0)) + stored(key_in(1)) == 0);
  CHECK(stored(key_in(2)) == 1);
}

TEST_CASE_METHOD(world, "index: a slot claimed by three pages is freed even if one shard holds only one of them",
                 "[index]") {
  put(key_in(0), {4, 9});
  put(key_in(0, 1), {4, 10});
  put(key_in(1), {4, 8});
  run now(system, options, store);
  for (const auto& key : {key_in(0), key_in(0, 1), key_in(1)}) {
    CHECK_FALSE(now.exists(ns.id, key));
    CHECK(stored(key) == 0);
  }
  CHECK(now.rank().free == slots);
}

TEST_CASE_METHOD(world, "index: an untrusted record claims no slot", "[index]") {
  put(key_in(0), {4, 9}, life + 1); // an earlier registration of the rank
  put(key_in(1), {slots, 9});       // no such slot
  put(key_in(2), {6, 0});           // never given out
  put({}, {8, 9});                  // no key: its shard refuses it
  put(key_in(2, 1), {7, 9});
  store->put(store::page_record{ns.id, key_in(0, 1), 1, {4, 9}, {}, life}); // no such rank
  run now(system, options, store);
  CHECK(now.exists(ns.id, key_in(2, 1)));
  CHECK(now.rank().live == 1);
  CHECK(now.rank().free == slots - 1);
}

TEST_CASE_METHOD(world, "index: after a run that did not use it the ranks are restored without pages", "[index]") {
  put(key_in(0), {4, 9});
  REQUIRE(leave_index_aside(options));
  run now(system, options, store);
  CHECK_FALSE(now.exists(ns.id, key_in(0)));
  CHECK(now.rank().free == slots);
  CHECK(stored(key_in(0)) == 0);
  REQUIRE(store->table().ranks().size() == 1);
  CHECK(store->table().ranks()[0].incarnation != life);
}

TEST_CASE_METHOD(world, "index: without the epoch of the last run no page is restored", "[index]") {
  put(key_in(0), {4, 9});
  SECTION("the epoch file is missing") {
    std::filesystem::remove(directory.path() / "epoch");
  }
  SECTION("the index was written before epochs existed") {
    store->identity_.epoch = 0;
  }
  SECTION("a backup of the index was restored") {
    store->identity_.epoch = 76;
  }
  run now(system, options, store);
  CHECK_FALSE(now.exists(ns.id, key_in(0)));
  CHECK(stored(key_in(0)) == 0);
}

TEST_CASE_METHOD(world, "index: a start writes a new epoch to the index", "[index]") {
  put(key_in(0), {4, 9});
  { run now(system, options, store); }
  const auto epoch = store::read_epoch(directory.path()).value();
  REQUIRE(epoch);
  CHECK(*epoch != 77);
  const auto noted = store->last_identity();
  REQUIRE(noted);
  CHECK(noted->epoch == *epoch);
  CHECK(noted->run == store->identity().run);
  CHECK(noted->secret == store->identity().secret);
  store->identity_ = *noted;
  run again(system, options, store);
  CHECK(again.exists(ns.id, key_in(0)));
}

TEST_CASE_METHOD(world, "index: restored keys are published as engines described them", "[index][events]") {
  page_descriptions said;
  said.block_tokens = 2;
  said.groups = {{0, "full_attention"}};
  const auto describe = [&](const namespace_id& of, const key_digest& key, std::uint64_t hash) {
    auto one = said;
    one.keys.items = {key};
    one.hashes.items = {hash};
    one.parents.items = {0};
    one.has_parent.items = {0};
    one.tokens.items = {1, 2};
    store->put(store::description_record{of, key, events::description_text(one, 0)});
  };
  std::vector<key_digest> there;
  for (std::uint32_t i = 0; i < shard_count; ++i)
    for (std::uint32_t n = 0; n < 3; ++n) {
      there.push_back(key_in(i, n));
      put(there.back(), {i * 3 + n, 9});
      describe(ns.id, there.back(), 100 + n);
    }
  describe(ns.id, key_in(0, 7), 200);  // its page no longer exists
  describe({4, 4}, key_in(1, 7), 201); // of a namespace that is not served
  store->put(store::description_record{ns.id, there[0], "damaged"});
  const auto feed = std::make_shared<events::feed>();
  run now(system, options, store, feed);
  std::vector<key_digest> published;
  for (const auto& change : feed->take().changes)
    if (const auto* pages = std::get_if<events::pages_described>(&change.what)) {
      CHECK(pages->pages.groups == said.groups);
      for (const auto at : pages->positions)
        published.push_back(pages->pages.keys[at]);
    }
  std::ranges::sort(published);
  std::vector<key_digest> expected(there.begin() + 1, there.end());
  std::ranges::sort(expected);
  CHECK(published == expected);
  auto left = store->table().descriptions();
  CHECK(left.size() == expected.size() + 1);
  CHECK(std::ranges::none_of(left, [&](const auto& x) { return x.key == key_in(0, 7) || x.key == there[0]; }));
}

TEST_CASE_METHOD(world, "index: a node that publishes nothing keeps no descriptions", "[index][events]") {
  put(key_in(0), {4, 9});
  store->put(store::description_record{ns.id, key_in(0), "anything"});
  run now(system, options, store);
  CHECK(now.exists(ns.id, key_in(0)));
  CHECK(store->table().descriptions().empty());
}

TEST_CASE_METHOD(world, "index: a duplicate namespace name does not prevent a start", "[index]") {
  auto other = ns;
  other.spec.model = "another";
  other.id = other.spec.id();
  store->put(other);
  store->put(store::rank_record{other.id, 0, slots, life});
  store->put(store::page_record{other.id, key_in(0), 0, {4, 9}, {}, life});
  put(key_in(0), {4, 9});
  run now(system, options, store);
  CHECK(now.known.namespaces.size() == 1);
  CHECK(now.exists(now.known.namespaces[0].spec.id(), key_in(0)));
  CHECK(store->table().pages().size() == 2); // the other one is set aside
}

} // namespace index_restore_test
