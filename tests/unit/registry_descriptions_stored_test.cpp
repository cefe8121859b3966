#include "actors/node/registry/registry_records.hpp"
#include "events/description_text.hpp"
#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"
#include "tests/unit/record_store.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_descriptions_stored_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// A registry whose changes are stored, and the store.
struct stored_registry : one_registry {
  explicit stored_registry(bool restored = true) : one_registry(1, options()) {
    if (restored)
      REQUIRE(state.restored());
  }

  static registry_options options() {
    registry_options how;
    how.events = std::make_shared<events::feed>();
    how.change_feed = true;
    return how;
  }

  std::vector<store::description_record> stored() {
    store::write_batch batch;
    for (const auto& change : state.take_outbox().changes)
      write(batch, change, std::chrono::sys_seconds{});
    disk.apply(batch);
    return disk.descriptions();
  }

  record_table disk;
};

} // namespace

TEST_CASE("registry descriptions: what is said about a key is stored once, and erased with the key",
          "[registry][events]") {
  stored_registry x;
  const auto keys = some_keys(1, 3);
  x.save(keys);
  const auto said = describe_keys(keys);
  REQUIRE(x.state.describe_pages({x.ns, said}));
  auto stored = x.stored();
  REQUIRE(stored.size() == 3);
  for (const auto& each : stored) {
    const auto at = std::ranges::find(keys, each.key) - keys.begin();
    CHECK(each.text == events::description_text(said, static_cast<std::size_t>(at)));
  }
  // A repetition changes nothing.
  REQUIRE(x.state.describe_pages({x.ns, said}));
  CHECK(x.state.take_outbox().changes.empty());
  x.state.erase({x.ns, all_ranks, keys_t{keys[1]}}, at(1)).value();
  stored = x.stored();
  REQUIRE(stored.size() == 2);
  CHECK(std::ranges::none_of(stored, [&](const auto& each) { return each.key == keys[1]; }));
  for (int i = 0; i < 10 && x.state.remove_namespace({x.ns, true}, at(2)).value().more; ++i)
    x.state.tick(at(2));
  CHECK(x.stored().empty());
}

TEST_CASE("registry descriptions: what comes from the index is not stored again", "[registry][events]") {
  stored_registry x(false);
  const auto keys = some_keys(1, 2);
  x.save(keys);
  x.stored();
  REQUIRE(x.state.describe_pages({x.ns, describe_keys(keys)}));
  CHECK(x.stored().empty());
  REQUIRE(x.state.restored());
  // But it is known, so its end is a change.
  store::write_batch ends;
  x.state.erase({x.ns, all_ranks, keys}, at(1)).value();
  std::size_t ended = 0;
  for (const auto& change : x.state.take_outbox().changes)
    ended += std::holds_alternative<description_ended>(change) ? 1 : 0;
  CHECK(ended == 2);
}

} // namespace registry_descriptions_stored_test
