// Faults of the metadata service that this one replaces, one test each: the old one must fail the check, and this one
// must pass it. docs/hazards-hf3fs.md lists them, and those that are tested elsewhere.

#include "tests/catch.hpp"
#include "tests/conformance/metadata_server.hpp"

#include <set>

namespace hazards_test {

namespace {

using namespace troupe;
using namespace troupe::test;

/// Slots are soon free again: returned ones are reclaimed when their reservation expires.
slot_node_options quick() {
  slot_node_options options;
  options.shards = 2;
  options.rest = std::chrono::milliseconds{1};
  options.hf3fs.reservation_deadline = std::chrono::seconds{3};
  return options;
}

std::unique_ptr<slot_node> started(const slot_node_options& options) {
  auto node = slot_node::start(options);
  INFO((node ? std::string{} : node.error().text));
  REQUIRE(node);
  return std::move(*node);
}

template <class Check>
void only_the_old_one_fails(Check survives, const slot_node_options& options = quick()) {
  old_server old;
  CHECK_FALSE(survives(old));
  const auto node = started(options);
  served_over_http ours{node->port(), {}};
  CHECK(survives(ours));
}

/// No two of the keys are at one page.
bool all_apart(metadata_server& server, std::uint32_t rank, const keys_t& keys) {
  std::set<page> taken;
  const auto found = server.locations(rank, keys);
  for (const auto& where : found.value())
    if (where && !taken.insert(*where).second)
      return false;
  return true;
}

} // namespace

TEST_CASE("M-01: a full pool evicts to make room for new pages", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 4);
    for (const auto* key : {"a", "b", "c", "d"})
      REQUIRE(server.save(0, key));
    return server.eventually_save(0, "e") && server.has("e");
  });
}

TEST_CASE("M-02: releasing a live page never leaves two keys on one page", "[hazard]") {
  auto options = quick();
  options.hf3fs.reservation_deadline = std::chrono::seconds{1};
  only_the_old_one_fails(
      [](metadata_server& server) {
        server.initialize(0, 2);
        REQUIRE(server.eventually_save(0, "a"));
        // Another writer is given the page that is there, fails, and releases it.
        const auto again = server.allocate_one(0, "a");
        REQUIRE(again >= 0);
        REQUIRE(server.confirm(0, {}, {again}) == 204);
        // The other page is taken, and held by a reader: what comes next can have a's page only.
        const bool is_saved = server.eventually_save(0, "b") && server.where(0, "b");
        return is_saved && server.eventually_save(0, "c") && server.where(0, "c") == again &&
               all_apart(server, 0, {"a", "b", "c"});
      },
      options);
}

TEST_CASE("M-03: two writers of one key share one page and no page is lost", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 4);
    server.initialize(1, 4);
    const auto first = server.allocate_one(0, "k");
    const auto second = server.allocate_one(0, "k");
    server.confirm(0, {{"k", first}}, {});
    server.confirm(0, {{"k", second}}, {});
    bool rest_is_there = true;
    for (const auto* key : {"x", "y", "z"})
      rest_is_there = server.allocate_one(0, key) >= 0 && rest_is_there;
    return first == second && rest_is_there;
  });
}

TEST_CASE("M-04: a page whose writer disappears is freed", "[hazard]") {
  auto options = quick();
  options.hf3fs.reservation_deadline = std::chrono::milliseconds{300};
  only_the_old_one_fails(
      [](metadata_server& server) {
        server.initialize(0, 2);
        const auto given = server.allocate(0, {"a", "b"});
        REQUIRE(given);
        REQUIRE(given->at(0).second >= 0);
        REQUIRE(given->at(1).second >= 0);
        return server.eventually_save(0, "c");
      },
      options);
}

TEST_CASE("M-05: a rank that registers late does not keep keys incomplete", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 4);
    REQUIRE(server.save(0, "k"));
    server.initialize(1, 4);
    const bool is_early = server.has("k"); // without a page of the second rank
    REQUIRE(server.save(1, "k"));
    return !is_early && server.has("k") && server.where(0, "k") && server.where(1, "k");
  });
}

TEST_CASE("M-06: engines of different world sizes neither mix nor block each other", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    auto& two = server.ns("tp2");
    auto& four = server.ns("tp4");
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      REQUIRE(two.initialize(rank, 10) == 200);
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      REQUIRE(four.initialize(rank, 20) == 200);
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      REQUIRE(two.save(rank, "k"));
    const bool is_apart = two.has("k") && !four.has("k");
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      REQUIRE(four.save(rank, "k"));
    return is_apart && four.has("k");
  });
}

TEST_CASE("M-06: a second engine with another world size is refused in the same namespace", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    // A rank of twice as many has half the bytes per page.
    return server.initialize(0, 10) == 200 && server.initialize(1, 10) == 200 && server.initialize(0, 20) == 409;
  });
}

TEST_CASE("M-07: a confirmation for a rank that is not registered changes nothing", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    const auto code = server.confirm(7, {{"a", 0}}, {0});
    server.initialize(7, 4);
    const bool is_there = server.has("a");
    return code >= 400 && !is_there && server.save(7, "a") && server.has("a");
  });
}

TEST_CASE("M-08: page numbers beyond the rank's pool are never allocated", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    server.confirm(0, {{"ghost", 77}, {"wraith", -3}}, {-5, 999, 4294967296, 9223372036854775807});
    bool all_real = !server.has("ghost") && !server.has("wraith");
    for (const auto* key : {"a", "b", "c", "d"}) {
      const auto to = server.allocate_one(0, key);
      all_real = all_real && to >= -1 && to < 2;
    }
    return all_real;
  });
}

TEST_CASE("M-09: a page confirmed and released concurrently is never both live and free", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 1);
    const auto to = server.allocate_one(0, "a");
    REQUIRE(server.confirm(0, {{"a", to}}, {to}) == 204);
    return server.eventually_save(0, "b") && all_apart(server, 0, {"a", "b"});
  });
}

TEST_CASE("M-10: a key that occurs twice takes one page", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 3);
    const auto given = server.allocate(0, {"a", "a"});
    REQUIRE(given);
    REQUIRE(given->size() == 1);
    REQUIRE(server.confirm(0, {given->front()}, {}) == 204);
    const auto others = server.allocate(0, {"b", "c"});
    return others && others->size() == 2 && others->at(0).second >= 0 && others->at(1).second >= 0;
  });
}

TEST_CASE("M-11: a malformed request takes no pages", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    REQUIRE_FALSE(server.allocate_items(0, {{"a"}, {"xyz", false}}));
    const auto given = server.allocate(0, {"b", "c"});
    return given && given->at(0).second >= 0 && given->at(1).second >= 0;
  });
}

TEST_CASE("M-11: a string of two characters is not accepted as a pair", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    return !server.allocate_items(0, {{"ab", false}});
  });
}

TEST_CASE("M-12: a rank cannot be initialized with another number of pages", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    REQUIRE(server.initialize(0, 4) == 200);
    const auto other = server.initialize(0, 8);
    return other == 409 && server.initialize(0, 4) == 200;
  });
}

TEST_CASE("M-12: an engine that died during a save can restart with another number of pages", "[hazard]") {
  auto options = quick();
  options.hf3fs.reservation_deadline = options.hf3fs.protect_for = std::chrono::seconds{1};
  options.sglang.reservation_deadline = options.sglang.protect_for = std::chrono::seconds{1};
  const auto survives = [](metadata_server& server) {
    server.initialize(0, 4);
    REQUIRE(server.save(0, "a"));
    const auto half = server.allocate_one(0, "b");
    REQUIRE(half >= 0);
    REQUIRE(server.clear() == 204);
    // At once: the reservations of the old engine are not waited for.
    REQUIRE(server.initialize(0, 8) == 200);
    // Its confirmation is for files that no longer exist.
    REQUIRE(server.confirm(0, {{"b", half}}, {}) == 204);
    const bool publishes_nothing = !server.has("b");
    REQUIRE(server.eventually_save(0, "b"));
    return publishes_nothing && server.has("b") && server.initialize(0, 8) == 200;
  };
  only_the_old_one_fails(survives, options);
}

TEST_CASE("M-13: ranks stay usable after everything was cleared", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    REQUIRE(server.save(0, "a"));
    REQUIRE(server.clear() == 204);
    REQUIRE_FALSE(server.has("a"));
    return server.save(0, "b") && server.has("b");
  });
}

TEST_CASE("M-14: a repeated allocation gets the answer of the first", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    const auto lost = server.allocate_one(0, "a");
    const auto repeated = server.allocate_one(0, "a");
    REQUIRE(server.confirm(0, {{"a", repeated}}, {}) == 204);
    // The confirmation may be repeated as well.
    REQUIRE(server.confirm(0, {{"a", repeated}}, {}) == 204);
    return lost == repeated && server.has("a") && server.allocate_one(0, "b") >= 0;
  });
}

TEST_CASE("M-15: a page located by a reader is not given to another key", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 1);
    REQUIRE(server.save(0, "a"));
    const auto notified = server.where(0, "a");
    REQUIRE(notified);
    const bool is_not_evicted = server.allocate_one(0, "b") != *notified;
    // Another writer fails to write it again.
    REQUIRE(server.confirm(0, {}, {*notified}) == 204);
    return is_not_evicted && server.allocate_one(0, "c") != *notified;
  });
}

TEST_CASE("M-17: two models have separate keys and page sizes", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    auto& small = server.ns("small");
    auto& large = server.ns("large");
    REQUIRE(small.initialize(0, 10) == 200);
    REQUIRE(large.initialize(0, 1) == 200);
    REQUIRE(small.save(0, "k"));
    const bool is_apart = !large.has("k");
    REQUIRE(large.allocate_one(0, "k") >= 0);
    return is_apart && large.allocate_one(0, "l") == -1;
  });
}

TEST_CASE("M-18: a caller without a token can neither clear nor read anything", "[hazard]") {
  const http::scratch_directory files;
  auto options = quick();
  const std::string writer = "writer-0123456789abcdef0123456789abcdef";
  const std::string admin = "admin-0123456789abcdef0123456789abcdef";
  options.http.tokens_file = files.write("tokens", "write " + writer + "\nadmin " + admin + "\n");
  const auto survives = [](metadata_server& server) {
    server.initialize(0, 2);
    REQUIRE(server.save(0, "a"));
    return server.clear_as_stranger() == 401 && server.has("a");
  };
  old_server old;
  CHECK_FALSE(survives(old));
  const auto node = started(options);
  served_over_http ours{node->port(), writer};
  CHECK(survives(ours));
  CHECK(ours.clear() == 403);
  CHECK(ours.has("a"));
  const auto look = R"({"keys":["a"]})";
  CHECK(http::client{node->port()}.call(http::post("/keys/batch_exists", look)).code == 401);
  CHECK(served_over_http{node->port(), admin}.clear() == 204);
  CHECK_FALSE(ours.has("a"));
}

TEST_CASE("M-20: a rank is accepted as a string and as a number", "[hazard]") {
  only_the_old_one_fails([](metadata_server& server) {
    server.initialize(0, 2);
    const auto by_text = server.allocate_by_text("0", {"a"});
    return by_text && by_text->at(0).second == server.allocate_one(0, "a");
  });
}

} // namespace hazards_test
