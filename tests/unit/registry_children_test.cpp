#include "actors/node/registry/registry_outbox.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_children_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("registry children: changes of child counts are sent in requests of a bounded size, in order", "[registry]") {
  const auto id = namespace_of(1).id();
  outbox_collector collector(id, 1, 2, false, false);
  constexpr std::size_t count = 2 * child_changes_max + 5;
  for (std::size_t i = 0; i < count; ++i)
    collector.count_children(1, {key_of(i + 1), 1});
  collector.count_children(0, {key_of(7), -1});
  registry_outbox out;
  collector.drain_into(out);
  std::size_t next = 0;
  for (const auto& x : out.children) {
    CHECK(x.request.ns == id);
    CHECK(x.request.changes.size() <= child_changes_max);
    if (x.shard == 0)
      continue;
    for (const auto& change : x.request.changes)
      REQUIRE(change.parent == key_of(++next));
  }
  CHECK(next == count);
  CHECK(out.children.size() == 4);
  // Changes that were collected before do not count.
  collector.count_children(1, {key_of(1), 1});
  out = {};
  collector.drain_into(out);
  REQUIRE(out.children.size() == 1);
  CHECK(out.children[0].request.changes.size() == 1);
}

TEST_CASE("registry children: a shard refuses a request with more changes of child counts than the bound",
          "[registry]") {
  registry_state state(registry_options{.shard = 0, .shard_count = 2});
  const auto ns = namespace_of(1);
  REQUIRE(state.add_namespace(ns));
  children_request children{ns.id(), {}};
  for (std::size_t i = 0; i <= child_changes_max; ++i)
    children.changes.items.push_back({key_of(i + 1), 1});
  const auto before = state.stats().resident_bytes;
  const auto refused = state.count_children(children, at(0));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(state.stats().resident_bytes == before);
  children.changes.items.pop_back();
  CHECK(state.count_children(children, at(0)));
}

} // namespace registry_children_test
