#include "lmcache/group_chunks.hpp"
#include "lmcache/worker_devices.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <limits>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace lmcache_groups_test {

/// Workers of LMCache with several groups of layers: their namespaces, hits and stores.

using namespace troupe;
using namespace troupe::lmcache;
using nlohmann::json;
using chunk_run = transfer_rules::chunk_run;

namespace {

constexpr std::uint32_t chunk = 8;

json group_json(std::uint32_t layers, std::uint32_t window_chunks = 0) {
  return {{"num_layers", layers}, {"hidden_dim_size", 16}, {"dtype_str", "bfloat16"}, {"tokens_per_block", 4},
          {"window_tokens", 8},   {"kv_size", 2},          {"recurrent", false},      {"window_chunks", window_chunks}};
}

json state_json() {
  auto out = group_json(1, 1);
  out["tokens_per_block"] = 8;
  out["kv_size"] = 1;
  out["recurrent"] = true;
  return out;
}

json registration_json(const std::vector<json>& groups) {
  return {{"instance_id", 1},        {"model_name", "m"},      {"world_size", 1},         {"block_size", 4},
          {"num_layers", 2},         {"hidden_dim_size", 16},  {"dtype_str", "bfloat16"}, {"use_mla", false},
          {"num_physical_slots", 8}, {"group_layouts", groups}};
}

result<context> context_of_json(const std::vector<json>& groups) {
  const auto message = test::read_packed(14, {registration_json(groups)}, chunk);
  REQUIRE(message);
  REQUIRE_FALSE(message->malformed);
  return message->registration;
}

constexpr group_needs full{};
constexpr group_needs window{2, false};
constexpr group_needs state{1, true};

} // namespace

TEST_CASE("lmcache groups: each group has a namespace of its own, and all of them the same digest", "[lmcache]") {
  // Groups that are alike have different layers.
  const auto x = context_of_json({group_json(2), group_json(3, 2), group_json(3, 2), state_json()});
  REQUIRE(x);
  std::set<std::string> ids;
  for (const auto& group : x->groups) {
    CHECK(is_own(group.ns));
    CHECK(group.ns.name == "lmcache-m-" + to_string(group.ns.id()).substr(0, 16));
    CHECK(group.ns.group_of == x->first().ns.group_of);
    CHECK(group.ns.hits_end_with_pages());
    ids.insert(to_string(group.ns.id()));
  }
  CHECK(ids.size() == 4);
  CHECK_FALSE(x->first().ns.group_of.empty());
  CHECK(x->groups[1].ns.geometry.page_bytes() == std::uint64_t{2} * 3 * 8 * 16 * 2);
  // With other groups beside it, a group is another one.
  const auto other = context_of_json({group_json(2), group_json(3, 3), group_json(3, 2), state_json()});
  REQUIRE(other);
  for (const auto& group : other->groups)
    CHECK_FALSE(ids.contains(to_string(group.ns.id())));
  const auto one = context_of_json({group_json(2)});
  REQUIRE(one);
  CHECK(one->first().ns.group_of.empty());
}

TEST_CASE("lmcache groups: a window that is shorter than a chunk has pages of its tokens alone", "[lmcache]") {
  auto brief = group_json(3, 1);
  brief["window_tokens"] = 4;
  const auto x = context_of_json({group_json(2), brief});
  REQUIRE(x);
  CHECK(x->groups[1].shape.sizes == std::vector<std::uint32_t>{2, 3, 4, 16});
  CHECK(x->groups[1].ns.geometry.page_bytes() == std::uint64_t{2} * 3 * 4 * 16 * 2);
}

TEST_CASE("lmcache groups: groups that could not be served safely are refused with the group and the reason",
          "[lmcache]") {
  const auto refused = [](json group, const char* field, const json& value, const std::string& why) {
    group[field] = value;
    const auto x = context_of_json({group_json(2), group});
    REQUIRE_FALSE(x);
    INFO(x.error().text);
    CHECK(x.error().text.find("group 1 of 2") != std::string::npos);
    CHECK(x.error().text.find(why) != std::string::npos);
  };
  refused(group_json(2), "tokens_per_block", 3, "set lmcache.chunk_tokens to a multiple");
  refused(group_json(2), "tokens_per_block", 0, "set lmcache.chunk_tokens to a multiple");
  refused(group_json(2), "dtype_str", "int4", "elements of type 'int4'");
  refused(group_json(2), "window_tokens", 16, "pages with 16 tokens");
  refused(group_json(2), "window_tokens", 6, "pages with 6 tokens");
  // Hits of it would need tokens that are in no page.
  refused(group_json(2), "window_tokens", 4, "a hit needs more than the last chunk");
  refused(group_json(2, 2), "window_tokens", 4, "a hit needs more than the last chunk");
  refused(state_json(), "window_chunks", 0, "only that of the last one");
  refused(state_json(), "window_chunks", 2, "only that of the last one");
  refused(state_json(), "tokens_per_block", 4, "set lmcache.chunk_tokens to 4");
  refused(group_json(2), "num_layers", 0, "layers");
}

TEST_CASE("lmcache groups: the longest hit is the longest prefix of which every group has what it needs", "[lmcache]") {
  const std::vector groups{full, window, state};
  const auto hit = [&](const chunk_marks& found, std::uint32_t begin = 0) { return longest_hit(groups, found, begin); };
  CHECK(hit({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}) == 4);
  CHECK(hit({{1, 1, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}}) == 4);
  // Each group has something for three chunks, and only one length suits all.
  CHECK(hit({{1, 1, 1, 1}, {1, 1, 0, 1}, {0, 1, 0, 1}}) == 2);
  CHECK(hit({{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 1, 0}}) == 3);
  CHECK(hit({{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}}) == 0);
  CHECK(hit({{0, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}) == 0);
  // The engine has what is before.
  CHECK(hit({{1, 1}, {1, 1}, {0, 1}}, 5) == 7);
  CHECK(hit({{1, 1}, {0, 1}, {1, 1}}, 5) == 5);
  CHECK(hit({{}, {}, {}}, 5) == 5);
  CHECK(longest_hit({}, {}, 3) == 3);
}

TEST_CASE("lmcache groups: chunks that a longer hit may need are those from its first one on", "[lmcache]") {
  const std::vector<std::uint8_t> found{1, 0, 0, 1, 0};
  CHECK(chunks_missing(full, found, 0, 1) == std::vector<std::uint32_t>{1, 2, 4});
  CHECK(chunks_missing(window, found, 0, 3) == std::vector<std::uint32_t>{2, 4});
  CHECK(chunks_missing(state, found, 0, 3) == std::vector<std::uint32_t>{4});
  CHECK(chunks_missing(state, found, 10, 13) == std::vector<std::uint32_t>{14});
}

TEST_CASE("lmcache groups: a request loads exactly what its last chunk needs", "[lmcache]") {
  const std::vector groups{full, window, state};
  CHECK(chunks_to_load(groups, 3) == std::deque<chunk_run>{{0, 3, 0}, {1, 2, 1}, {2, 1, 2}});
  CHECK(chunks_to_load(groups, 1) == std::deque<chunk_run>{{0, 1, 0}, {0, 1, 1}, {0, 1, 2}});
}

TEST_CASE("lmcache groups: chunks of which a worker may have only some blocks are not stored", "[lmcache]") {
  const std::vector groups{full, window, state};
  using runs = std::deque<chunk_run>;
  // The engine has computed all of it.
  CHECK(chunks_to_store(groups, {0, 3, {}, 0}) == runs{{0, 3, 0}, {0, 3, 1}, {0, 3, 2}});
  // It has the first two chunks from elsewhere.
  CHECK(chunks_to_store(groups, {0, 4, {}, 2}) == runs{{0, 4, 0}, {1, 3, 1}, {0, 4, 2}});
  CHECK(chunks_to_store(groups, {2, 4, {}, 2}) == runs{{0, 2, 0}, {0, 2, 1}, {0, 2, 2}});
  // The first chunk of which it has a block may lack others, unless it is known that it does not.
  const std::vector<std::vector<std::uint32_t>> skipped{{}, {0, 1}, {0, 2}};
  CHECK(chunks_to_store(groups, {0, 4, skipped, {}}) == runs{{0, 4, 0}, {3, 1, 1}, {1, 1, 2}, {3, 1, 2}});
  CHECK(chunks_to_store(groups, {0, 4, skipped, 2}) == runs{{0, 4, 0}, {2, 2, 1}, {1, 1, 2}, {3, 1, 2}});
  CHECK(chunks_to_store(groups, {2, 6, skipped, 4}) == runs{{0, 4, 0}, {2, 2, 1}, {1, 1, 2}, {3, 1, 2}});
  CHECK(chunks_to_store(groups, {7, 8, {}, {}}) == runs{{0, 1, 0}, {0, 1, 2}});
  // A group of the whole prefix that lacks a chunk is not what it says.
  const std::vector<std::vector<std::uint32_t>> hole{{1}, {}, {}};
  CHECK(chunks_to_store(groups, {0, 3, hole, 0}).front() == chunk_run{0, 1, 0});
}

TEST_CASE("lmcache groups: messages about groups are parsed", "[lmcache]") {
  const auto message = [](const json& skipped) {
    json tokens = json::array();
    for (int i = 0; i < 24; ++i)
      tokens.push_back(i);
    json key{{"model_name", "m"}, {"world_size", 1}, {"worker_id", 0}, {"start", 0}, {"end", 24}, {"request_id", "r"}};
    std::vector<std::uint8_t> words(24 * 4, 1);
    key["token_bytes"] = json::binary(words);
    return test::read_packed(16, {key, 7, skipped}, chunk);
  };
  CHECK(message(json::array())->skipped.empty());
  CHECK(message({{2, 0}, json::array()})->skipped == std::vector<std::vector<std::uint32_t>>{{0, 2}, {}});
  // Twice, and behind the end.
  CHECK(message({{1, 1}})->why == problem::payload);
  CHECK(message({{3}})->why == problem::payload);

  json key{{"model_name", "m"}, {"world_size", 1}, {"worker_id", nullptr},
           {"start", 0},        {"end", 8},        {"request_id", "r"}};
  key["token_bytes"] = json::binary(std::vector<std::uint8_t>(8 * 4, 1));
  const auto engine_chunks = [&](const json& settings) {
    key["request_configs"] = settings;
    const auto x = test::read_packed(8, {key, 1}, chunk);
    REQUIRE_FALSE(x->malformed);
    return x->chunks.engine_chunks;
  };
  const char* name = "lmcache.hint.engine_computed_tokens";
  CHECK(engine_chunks({{"other", {{"x", 1}}}, {name, 17}, {"more", 1.5}}) == 2);
  CHECK(engine_chunks({{name, 0}}) == 0);
  CHECK_FALSE(engine_chunks({{name, -1}}));
  CHECK_FALSE(engine_chunks({{name, "17"}}));
  CHECK_FALSE(engine_chunks(nullptr));
  CHECK_FALSE(engine_chunks(json::array({1})));
  CHECK_FALSE(engine_chunks({{"other", 17}}));
}

TEST_CASE("lmcache groups: devices that compute are recognized among other files", "[lmcache]") {
  for (const auto* path : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/dri/renderD128", "/dev/kfd", "/dev/davinci0"})
    CHECK(is_device_name(path));
  for (const auto* path :
       {"/dev/null", "/dev/urandom", "/dev/pts/0", "/dev/shm/psm_1 (deleted)", "/home/dev/x", "socket:[1]", "/device"})
    CHECK_FALSE(is_device_name(path));
  CHECK(has_device_open(::getpid()) == false);
  CHECK_FALSE(has_device_open(0));
  CHECK_FALSE(has_device_open(std::numeric_limits<std::int32_t>::max()));
}

} // namespace lmcache_groups_test
