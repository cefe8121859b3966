#include "lmcache/incoming.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

/// The memory handles of workers in the format of lmcache 0.5.6, and the memory that the node opens for them.

namespace lmcache_handles_test {

using namespace troupe;
using namespace troupe::lmcache;
using nlohmann::json;

namespace {

constexpr std::uint32_t chunk = 32;

std::optional<incoming> read(const json& what, const std::vector<json>& payloads) {
  return test::read_packed(what, payloads, chunk);
}

json metadata(const std::vector<std::uint64_t>& shape, const std::vector<std::uint64_t>& stride,
              std::uint64_t offset = 0) {
  return {{"dtype", "float16"},
          {"shape", shape},
          {"stride", stride},
          {"storage_offset", offset},
          {"device_uuid", "9f0c0f1e-0000-1111-2222-333344445555"}};
}

json shared_handle(const json& meta, std::uint64_t bytes = 1U << 20U, const std::string& name = "/lmcache_kv_1_0") {
  return {{"type", "cpu_shm"}, {"version", 1}, {"metadata", meta}, {"shm_name", name}, {"nbytes", bytes}};
}

json binary_of(std::size_t bytes, std::uint8_t value = 3) {
  return json::binary(std::vector<std::uint8_t>(bytes, value));
}

json storage_handle(const json& meta, const json& handle, const json& counter = nullptr) {
  return {{"type", "cuda"},
          {"version", 1},
          {"metadata", meta},
          {"handle", {0, handle, 1U << 20U, 512, counter, 41, binary_of(64), true}}};
}

std::vector<json> registration(const std::vector<json>& handles, const json& hints = {{"kv_layout", "NHD"}},
                               const json& groups = json::array()) {
  json packed = json::array();
  for (const auto& x : handles)
    packed.push_back(json::binary(json::to_msgpack(x), 1));
  return {77, packed, "a/model", 2, "vllm", hints, groups};
}

result<open_context> opened(const std::vector<json>& payloads) {
  auto message = read(1, payloads);
  REQUIRE(message);
  REQUIRE_FALSE(message->malformed);
  CHECK(message->instance == 77);
  return std::move(message->opened);
}

/// The reason for a refusal.
std::string why_not(const std::vector<json>& payloads) {
  const auto x = opened(payloads);
  REQUIRE_FALSE(x);
  return x.error().text;
}

const std::vector<std::uint64_t> split_sizes{2, 10, 16, 4, 8};
const std::vector<std::uint64_t> split_strides{5120, 512, 32, 8, 1};

} // namespace

TEST_CASE("lmcache handles: runs of a block are derived from the axes of a tensor", "[lmcache]") {
  SECTION("planes outside, tokens in front of heads") {
    const auto x = opened(registration({shared_handle(metadata(split_sizes, split_strides)),
                                        shared_handle(metadata(split_sizes, split_strides, 10240))}));
    REQUIRE(x);
    CHECK(x->memory->memories.size() == 1);
    CHECK(x->memory->blocks == 10);
    CHECK(x->memory->blocks_per_page == 2);
    CHECK(x->memory->block_tokens == 16);
    const std::vector<block_run> expected{
        {0, 0, 1024, 1024}, {0, 20480, 1024, 1024}, {0, 10240, 1024, 1024}, {0, 30720, 1024, 1024}};
    CHECK(x->memory->runs == expected);
    CHECK(x->ns.geometry.page_bytes() == x->memory->page_bytes());
    CHECK(x->ns.world_size == 2);
    CHECK_FALSE(x->sliding);
    // The pages are the same as those of self-copying workers.
    protocol::context_registration said;
    said.model = "a/model";
    said.world_size = 2;
    said.block_tokens = 8;
    said.layers = 2;
    said.hidden = 32;
    said.dtype = "float16";
    CHECK(context_of(said, chunk)->first().ns.id() == x->ns.id());
  }
  SECTION("planes inside a block with padding behind it") {
    const auto x = opened(registration({shared_handle(metadata({10, 2, 16, 4, 8}, {2000, 512, 32, 8, 1}, 100))}));
    REQUIRE(x);
    const std::vector<block_run> expected{{0, 200, 4000, 1024}, {0, 1224, 4000, 1024}};
    CHECK(x->memory->runs == expected);
  }
  SECTION("one plane with heads outside is another namespace, and so is another block size") {
    const auto meta = metadata({10, 4, 16, 8}, {512, 128, 8, 1});
    const auto outside = opened(registration({shared_handle(meta)}, {{"kv_layout", "HND"}}));
    const auto inside = opened(registration({shared_handle(meta)}));
    const auto unsaid = opened(registration({shared_handle(meta)}, json::object()));
    REQUIRE(outside);
    REQUIRE(inside);
    REQUIRE(unsaid);
    CHECK(outside->memory->block_tokens == 16);
    CHECK(inside->memory->block_tokens == 4);
    CHECK(outside->ns.id() != inside->ns.id());
    CHECK(outside->ns.id() == unsaid->ns.id());
    const auto smaller =
        opened(registration({shared_handle(metadata({20, 4, 8, 8}, {256, 64, 8, 1}))}, {{"kv_layout", "HND"}}));
    REQUIRE(smaller);
    CHECK(smaller->ns.geometry == outside->ns.geometry);
    CHECK(smaller->ns.id() != outside->ns.id());
  }
  SECTION("a latent vector, whose group defines the tensor shape") {
    json group{{"engine_group_id", 0}, {"layer_indices", {1}}, {"tokens_per_block", 16}, {"sw_size_tokens", 64}};
    const auto x = opened(registration({shared_handle(metadata({10, 16, 24}, {384, 24, 1})),
                                        shared_handle(metadata({10, 16, 24}, {384, 24, 1}), 1U << 20U, "other")},
                                       nullptr, json::array({group})));
    REQUIRE(x);
    CHECK(x->memory->runs.size() == 1);
    CHECK(std::get<shared_memory_handle>(x->memory->memories.front()).name == "other");
    CHECK(x->sliding);
    // A window of no tokens is none.
    group["sw_size_tokens"] = 0;
    const auto whole = opened(registration(
        {shared_handle(metadata({10, 16, 24}, {384, 24, 1})), shared_handle(metadata({10, 16, 24}, {384, 24, 1}))},
        nullptr, json::array({group})));
    REQUIRE(whole);
    CHECK_FALSE(whole->sliding);
  }
}

TEST_CASE("lmcache handles: memory of a GPU is named in two ways", "[lmcache]") {
  const auto meta = metadata(split_sizes, split_strides);
  json raw{{"type", "cuda_raw"},          {"version", 1},         {"metadata", meta},
           {"ipc_handle", binary_of(64)}, {"alloc_offset", 4096}, {"nbytes", 1U << 20U}};
  const auto first = opened(registration({raw}));
  REQUIRE(first);
  const auto& handle = std::get<gpu_memory_handle>(first->memory->memories.front());
  CHECK(handle.offset == 4096);
  CHECK(handle.bytes == 1U << 20U);
  CHECK(handle.device == "9f0c0f1e-0000-1111-2222-333344445555");
  CHECK(std::ranges::all_of(handle.handle, [](std::byte x) { return x == std::byte{3}; }));
  CHECK(first->memory->counters.empty());

  // PyTorch's: bare, or with its mark in front.
  std::vector<std::uint8_t> marked(66, 3);
  marked[1] = 'c';
  for (const auto& bytes : {binary_of(64), json(json::binary(marked))}) {
    const auto counter = json::binary({'/', 't', '_', '1'});
    const auto second = opened(registration({storage_handle(meta, bytes, counter)}));
    REQUIRE(second);
    const auto& same = std::get<gpu_memory_handle>(second->memory->memories.front());
    CHECK(same.handle == handle.handle);
    CHECK(same.offset == 512);
    CHECK(second->memory->counters == std::vector<share_counter>{{"/t_1", 41}});
  }
  marked[1] = 'e';
  CHECK(why_not(registration({storage_handle(meta, json::binary(marked))})).find("expandable_segments") !=
        std::string::npos);
  CHECK(why_not(registration({storage_handle(meta, binary_of(63))})).find("63 bytes") != std::string::npos);
  CHECK(why_not(registration({storage_handle(meta, nullptr)})).find("0 bytes") != std::string::npos);
}

TEST_CASE("lmcache handles: invalid memory descriptions are refused", "[lmcache]") {
  const auto good = metadata(split_sizes, split_strides);
  const auto with = [&](const std::function<void(json&)>& change) {
    auto handle = shared_handle(good);
    change(handle);
    return why_not(registration({handle}));
  };
  CHECK(with([](json& x) { x["type"] = "npu"; }) == "handles of type 'npu'");
  CHECK(with([](json& x) { x["version"] = 3; }) == "memory handles that cannot be parsed");
  CHECK(with([](json& x) { x.erase("type"); }) == "memory handles that cannot be parsed");
  CHECK(with([](json& x) { x["metadata"]["stride"].push_back(1); }) == "memory handles that cannot be parsed");
  CHECK(with([](json& x) { x["metadata"]["shape"] = json::array(); }) == "memory handles that cannot be parsed");
  CHECK(with([](json& x) { x["nbytes"] = -1; }) == "memory handles that cannot be parsed");
  CHECK(with([](json& x) { x["metadata"]["shape"][1] = 0; }).find("axis of 0") != std::string::npos);
  CHECK(with([](json& x) { x["metadata"]["shape"][2] = 1U << 20U; }).find("tokens") != std::string::npos);
  CHECK(with([](json& x) { x["metadata"]["stride"][3] = 9; }).find("not contiguous") != std::string::npos);
  CHECK(with([](json& x) { x["metadata"]["stride"][0] = 5119; }).find("K and V overlap") != std::string::npos);
  CHECK(with([](json& x) { x["metadata"]["stride"][0] = ~std::uint64_t{0}; }).find("2^48") != std::string::npos);
  CHECK(with([](json& x) { x["nbytes"] = 20479; }).find("end behind") != std::string::npos);
  CHECK(with([](json& x) { x["shm_name"] = "/a/b"; }).find("not valid") != std::string::npos);
  CHECK(with([](json& x) { x["metadata"]["shape"][0] = 3; }).find("5 axes") != std::string::npos);
  auto other = shared_handle(metadata({2, 11, 16, 4, 8}, split_strides));
  CHECK(why_not(registration({shared_handle(good), other})).find("differ") != std::string::npos);
  CHECK(why_not(registration({})) == "a KV cache without tensors");
  CHECK(why_not(registration({shared_handle(good)}, {{"kv_layout", "LBX"}})).find("'LBX'") != std::string::npos);
  json group{{"engine_group_id", 0}, {"layer_indices", {0}}, {"tokens_per_block", 16}};
  CHECK(why_not(registration({shared_handle(good)}, nullptr, json::array({group, group}))).find("groups") !=
        std::string::npos);
  group["recurrent_state"] = true;
  CHECK(why_not(registration({shared_handle(good)}, nullptr, json::array({group}))).find("recurrent") !=
        std::string::npos);
  group["recurrent_state"] = false;
  group["tokens_per_block"] = 32;
  CHECK(why_not(registration({shared_handle(good)}, nullptr, json::array({group}))).find("32 tokens") !=
        std::string::npos);
  group["tokens_per_block"] = 16;
  for (const auto& layers : {json{0, 0}, json{0, 1}}) {
    group["layer_indices"] = layers;
    CHECK(why_not(registration({shared_handle(good)}, nullptr, json::array({group}))).find("twice") !=
          std::string::npos);
  }
  auto engine = registration({shared_handle(good)});
  engine[4] = "trtllm";
  CHECK(why_not(engine).find("'trtllm'") != std::string::npos);
  const std::vector<std::pair<std::size_t, json>> wrong{{2, 5}, {2, std::string(5000, 'x')},
                                                        {3, 0}, {3, 1ULL << 32U},
                                                        {4, 7}, {6, std::vector<json>(65, json::object())}};
  for (const auto& [position, value] : wrong) {
    INFO(position);
    auto some = registration({shared_handle(good)});
    some[position] = value;
    CHECK(why_not(some) == "memory handles that cannot be parsed");
  }
  // Even the instance id is missing.
  CHECK(read(1, {"x"})->malformed);
  CHECK(read(1, {})->malformed);
}

TEST_CASE("lmcache handles: blocks, an event and the tokens to skip are parsed with a copy request", "[lmcache]") {
  json tokens = json::array();
  for (int i = 0; i < 64; ++i)
    tokens.push_back(i);
  const json key{{"model_name", "a/model"}, {"world_size", 2},  {"worker_id", 1},
                 {"token_ids", tokens},     {"start", 32},      {"end", 64},
                 {"request_id", "r-1"},     {"cache_salt", ""}, {"request_configs", nullptr}};
  const auto event = json::binary({1, 2, 3});
  const auto store = read("store", {key, 5, json::array({{7, 8, 300000}}), event});
  REQUIRE(store);
  CHECK_FALSE(store->malformed);
  CHECK(store->blocks == std::vector<std::uint32_t>{7, 8, 300000});
  CHECK(store->event == std::string("\1\2\3"));
  CHECK(store->instance == 5);
  const auto retrieve = read(7, {key, 5, json::array({json::array()}), event, 33});
  REQUIRE(retrieve);
  CHECK_FALSE(retrieve->malformed);
  CHECK(retrieve->skip_tokens == 33);
  CHECK_FALSE(read(7, {key, 5, json::array({{1}}), event})->malformed);
  // More blocks than there are tokens.
  CHECK_FALSE(read(6, {key, 5, json::array({std::vector<int>(64, 1)}), event})->malformed);
  CHECK(read(6, {key, 5, json::array({std::vector<int>(65, 1)}), event})->malformed);
  for (const auto& blocks : {json(5), json::array(), json::array({1}), json::array({{1}, {2}}), json::array({{-1}}),
                             json::array({{1ULL << 40U}}), json::array({{"x"}})})
    CHECK(read(6, {key, 5, blocks, event})->malformed);
  CHECK(read(6, {key, 5, json::array({{1}}), "event"})->malformed);
  CHECK(read(6, {key, 5, json::array({{1}}), json::binary(std::vector<std::uint8_t>(2000))})->malformed);
  CHECK(read(7, {key, 5, json::array({{1}}), event, -1})->malformed);
  CHECK(read(7, {key, 5, json::array({{1}}), event, 1, 1})->malformed);
  auto uneven = key;
  uneven["start"] = 1;
  CHECK(read(6, {uneven, 5, json::array({{1}}), event})->malformed);
  auto anonymous = key;
  anonymous["worker_id"] = nullptr;
  CHECK(read(6, {anonymous, 5, json::array({{1}}), event})->malformed);
}

} // namespace lmcache_handles_test
