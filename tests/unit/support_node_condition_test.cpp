#include "actors/support/node_condition.hpp"
#include "base/log_limit.hpp"
#include "tests/catch.hpp"

namespace support_node_condition_test {

using namespace troupe;

namespace {

constexpr namespace_id first{1, 1};
constexpr namespace_id second{2, 2};

timestamp at(int seconds) {
  return timestamp{std::chrono::seconds(1000 + seconds)};
}

} // namespace

TEST_CASE("node condition: a node is ready until an error occurs, and reports every error", "[condition]") {
  node_condition x;
  x.add_slab({first, "a", 0});
  x.add_slab({first, "a", 1});
  x.add_slab({second, "b", 0});
  CHECK(x.ready());
  CHECK_FALSE(x.refuses_saves(first));
  CHECK_FALSE(x.has(trouble::slab_damaged));

  CHECK(x.slab_damaged(first, 1, "rank 1 was truncated"));
  CHECK_FALSE(x.slab_damaged(first, 1, "rank 1 was truncated"));
  CHECK_FALSE(x.slab_damaged(first, 1, "in other words"));
  const auto ready = x.ready();
  REQUIRE_FALSE(ready);
  CHECK(ready.error().code == errc::slab_damaged);
  CHECK(ready.error().text == "degraded: rank 1 was truncated");
  // A key of this namespace can never be complete; those of others can.
  const auto refused = x.refuses_saves(first);
  REQUIRE(refused);
  CHECK(refused->code == errc::slab_damaged);
  CHECK(refused->text.find("rank 1 was truncated") != std::string::npos);
  CHECK_FALSE(x.refuses_saves(second));
  const auto slabs = x.slabs();
  REQUIRE(slabs.size() == 3);
  CHECK_FALSE(slabs[0].damaged);
  CHECK(slabs[1].damaged);
  CHECK(slabs[1].name.namespace_name == "a");
  CHECK_FALSE(slabs[2].damaged);

  CHECK(x.index_failed("the disk is full"));
  CHECK_FALSE(x.index_failed("the disk is full"));
  CHECK(x.ready().error().text == "degraded: rank 1 was truncated; the disk is full");
  CHECK(x.refuses_saves(second)->code == errc::io_error);
  CHECK(x.has(trouble::slab_damaged));
  CHECK(x.has(trouble::index_failed));
}

TEST_CASE("node condition: a node is ready again when the namespace of a damaged slab is removed", "[condition]") {
  node_condition x;
  x.add_slab({first, "a", 0});
  x.add_slab({second, "b", 0});
  CHECK(x.slab_damaged(first, 0, "it was truncated"));
  SECTION("no other lasting error exists") {
    CHECK(x.begins(trouble::memory_full, 0, "no memory"));
    x.remove_slab(first, 0);
    CHECK(x.ready());
    CHECK(x.degradations() == std::vector<std::string>{"no memory"});
    CHECK(x.slabs().size() == 1);
    // It is reported if it is damaged again.
    x.add_slab({first, "a", 0});
    CHECK(x.slab_damaged(first, 0, "again"));
    CHECK(x.ready().error().text == "degraded: again");
  }
  SECTION("not before all damaged slabs are removed") {
    CHECK(x.slab_damaged(second, 0, "so was this"));
    x.remove_slab(first, 0);
    REQUIRE_FALSE(x.ready());
    CHECK(x.ready().error().code == errc::slab_damaged);
    CHECK(x.ready().error().text == "degraded: so was this");
    CHECK(x.refuses_saves(second));
    x.remove_slab(second, 0);
    CHECK(x.ready());
  }
  SECTION("not while the index has failed") {
    CHECK(x.index_failed("the disk is full"));
    x.remove_slab(first, 0);
    REQUIRE_FALSE(x.ready());
    CHECK(x.ready().error().text == "degraded: the disk is full");
  }
}

TEST_CASE("node condition: transient conditions are reported per part and affect neither saves nor readiness",
          "[condition]") {
  node_condition x;
  CHECK(x.begins(trouble::index_slow, 0, "shard 0 is slow"));
  CHECK_FALSE(x.begins(trouble::index_slow, 0, "shard 0 is slower"));
  CHECK(x.begins(trouble::index_slow, 1, "shard 1 is slow"));
  CHECK(x.begins(trouble::memory_full, 0, "no memory"));
  CHECK(x.degradations() == std::vector<std::string>{"shard 0 is slower", "shard 1 is slow", "no memory"});
  CHECK(x.ready());
  CHECK_FALSE(x.refuses_saves(first));
  CHECK_FALSE(x.refuses_saves({}));
  CHECK(x.ends(trouble::index_slow, 0));
  CHECK_FALSE(x.ends(trouble::index_slow, 0));
  CHECK(x.has(trouble::index_slow));
  CHECK(x.ends(trouble::index_slow, 1));
  CHECK_FALSE(x.has(trouble::index_slow));
  CHECK(x.degradations() == std::vector<std::string>{"no memory"});
  // A lasting error is reported separately and is the only reason to refuse saves.
  CHECK(x.index_failed("the disk is full"));
  CHECK(x.ready().error().text == "degraded: the disk is full");
  CHECK(x.ready().error().code == errc::io_error);
  CHECK(x.degradations() == std::vector<std::string>{"no memory"});
  CHECK_FALSE(x.refuses_saves({})->text.find("no memory") != std::string::npos);
}

TEST_CASE("node condition: every reason for a degraded node has a name", "[condition]") {
  for (std::uint8_t i = 0; i < trouble_count; ++i)
    CHECK(to_string(static_cast<trouble>(i)) != "unknown");
  CHECK(to_string(static_cast<trouble>(trouble_count)) == "unknown");
}

TEST_CASE("node condition: a log line is rate-limited: the first few are written and the others are counted",
          "[condition]") {
  log_limit limit(3, std::chrono::seconds(10));
  CHECK(limit.take_suppressed(at(0)) == 0);
  for (int i = 0; i < 3; ++i)
    CHECK(limit.tell(at(i)));
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(limit.tell(at(5)));
  CHECK(limit.take_suppressed(at(9)) == 0);
  CHECK(limit.take_suppressed(at(10)) == 5);
  CHECK(limit.take_suppressed(at(11)) == 0);
  // The next interval begins with the next line.
  CHECK(limit.tell(at(60)));
  CHECK(limit.tell(at(61)));
  CHECK(limit.tell(at(69)));
  CHECK_FALSE(limit.tell(at(69)));
  // Lines that were not counted yet are not lost when the next one is written first.
  CHECK(limit.tell(at(70)));
  CHECK(limit.take_suppressed(at(79)) == 0);
  CHECK(limit.take_suppressed(at(80)) == 1);
}

TEST_CASE("node condition: a transient condition of a slab ends by itself or when the slab is removed", "[condition]") {
  node_condition x;
  x.add_slab({first, "a", 0});
  x.add_slab({first, "a", 1});
  CHECK(x.begins(trouble::writes_fail, first, 0, "rank 0"));
  CHECK(x.begins(trouble::writes_fail, first, 1, "rank 1"));
  CHECK(x.begins(trouble::writes_fail, second, 1, "of another one"));
  CHECK_FALSE(x.begins(trouble::writes_fail, first, 1, "rank 1, in other words"));
  CHECK(x.begins(trouble::disk_full, first, 1, "no room"));
  CHECK(x.degradations() == std::vector<std::string>{"rank 0", "rank 1, in other words", "of another one", "no room"});
  // The node serves.
  CHECK(x.ready());
  CHECK_FALSE(x.refuses_saves(first));
  CHECK(x.ends(trouble::writes_fail, first, 0));
  CHECK_FALSE(x.ends(trouble::writes_fail, first, 0));
  x.remove_slab(first, 1);
  CHECK(x.degradations() == std::vector<std::string>{"of another one"});
  CHECK(x.ends(trouble::writes_fail, second, 1));
  CHECK_FALSE(x.has(trouble::writes_fail));
}

} // namespace support_node_condition_test
