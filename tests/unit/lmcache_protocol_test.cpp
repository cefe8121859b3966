#include "lmcache/incoming.hpp"
#include "lmcache/protocol/requests.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

/// Messages as lmcache 0.5.6 sends them, field by field, encoded by another library, in both spellings.

namespace lmcache_protocol_test {

using namespace troupe;
using namespace troupe::lmcache;
using nlohmann::json;
using protocol::operation;
using test::packed_json;

namespace {

constexpr std::uint32_t chunk = 4;

json unpacked(const std::string& x) {
  return json::from_msgpack(x);
}

json key_json(std::uint32_t tokens, std::uint32_t begin, std::uint32_t end, const json& worker = nullptr) {
  json ids = json::array();
  for (std::uint32_t i = 0; i < tokens; ++i)
    ids.push_back(1000 * i);
  return {{"model_name", "a/model"}, {"world_size", 2},  {"worker_id", worker},
          {"token_ids", ids},        {"start", begin},   {"end", end},
          {"request_id", "r-1"},     {"cache_salt", ""}, {"request_configs", nullptr},
          {"num_kv_readers", 1}};
}

json registration_json() {
  return {{"instance_id", 1234567890123456789},
          {"model_name", "a/model"},
          {"world_size", 2},
          {"block_size", 2},
          {"num_layers", 3},
          {"hidden_dim_size", 8},
          {"dtype_str", "bfloat16"},
          {"use_mla", false},
          {"num_physical_slots", 4}};
}

std::optional<incoming> read(const json& what, const std::vector<json>& payloads) {
  return test::read_packed(what, payloads, chunk);
}

struct vector_entry {
  operation what;
  json number;
  const char* name;
  std::vector<json> payloads;
};

std::vector<vector_entry> vectors() {
  return {
      {operation::get_chunk_size, 21, "get_chunk_size", {}},
      {operation::ping, 22, "ping", {nullptr}},
      {operation::ping, 22, "ping", {77}},
      {operation::lookup, 8, "lookup", {key_json(9, 0, 8), 2}},
      {operation::query_prefetch_status, 9, "query_prefetch_status", {"r-1"}},
      {operation::wait_prefetch_status, 10, "wait_prefetch_status", {"r-1", 0.5}},
      {operation::free_lookup_locks, 12, "free_lookup_locks", {key_json(9, 0, 8), 2}},
      {operation::end_session, 13, "end_session", {"r-1"}},
      {operation::register_context, 14, "register_kv_cache_engine_driven_context", {registration_json()}},
      {operation::unregister_context, 15, "unregister_kv_cache_engine_driven_context", {77}},
      {operation::prepare_store, 16, "prepare_store", {key_json(9, 0, 8, 1), 77}},
      {operation::commit_store, 17, "commit_store", {key_json(9, 0, 8, 1), 77, json::binary({})}},
      {operation::prepare_retrieve, 18, "prepare_retrieve", {key_json(9, 4, 8, 1), 77}},
      {operation::commit_retrieve, 19, "commit_retrieve", {key_json(9, 4, 8, 1), 77}},
      {operation::clear, 20, "clear", {false}},
      {operation::report_block_allocation, 23, "report_block_allocation", {77, "a/model", json::array()}},
      {operation::noop, 24, "noop", {}},
      {operation::get_experimental, 32, "get_experimental", {}},
  };
}

} // namespace

TEST_CASE("lmcache protocol: every operation is parsed by its number and by its name", "[lmcache]") {
  for (const auto& x : vectors()) {
    INFO(x.name);
    CHECK(protocol::to_string(x.what) == x.name);
    CHECK(json(protocol::number_of(x.what)) == x.number);
    for (const auto& spelling : {x.number, json(x.name)}) {
      const auto message = read(spelling, x.payloads);
      REQUIRE(message);
      CHECK(message->what == x.what);
      CHECK_FALSE(message->malformed);
      CHECK(message->number == packed_json(7));
      CHECK(message->operation_frame == packed_json(spelling));
    }
    // The first payload is of another kind, or all required payloads are missing.
    const bool needs_some =
        !x.payloads.empty() && x.what != operation::clear && x.what != operation::report_block_allocation;
    if (needs_some) {
      auto wrong = x.payloads;
      wrong[0] = json::array({1, 2});
      CHECK(read(x.number, wrong)->malformed);
      CHECK(read(x.number, {})->malformed == (x.what != operation::ping));
    }
  }
}

TEST_CASE("lmcache protocol: operations of newer clients are known by name or not at all", "[lmcache]") {
  CHECK(read("subscribe_kv_events", {1, "m", 0, 10})->what == operation::subscribe_kv_events);
  CHECK(read("cb_reorder_plan", {})->what == operation::cb_reorder_plan);
  CHECK(read("something_new", {})->what == operation::unknown);
  CHECK(read("something_new", {})->why == problem::operation);
  CHECK(read(11, {})->what == operation::unknown);
  CHECK(read(-1, {})->what == operation::unknown);
  CHECK(read(json::array(), {})->malformed);
  // Nothing that could be answered.
  CHECK_FALSE(read_message({}, chunk));
  CHECK_FALSE(read(std::string(200, 'x'), {}));
}

TEST_CASE("lmcache protocol: a client says how long it waits, up to a limit", "[lmcache]") {
  const auto patience = [](double seconds) { return read(10, {"r-1", seconds})->patience; };
  CHECK(patience(0.5) == std::chrono::milliseconds(500));
  CHECK(patience(-1) == duration::zero());
  CHECK(patience(1e300) == std::chrono::seconds(300));
}

TEST_CASE("lmcache protocol: a key defines the chunks that are meant", "[lmcache]") {
  const auto message = read(18, {key_json(13, 4, 12, 1), 77});
  REQUIRE(message);
  const auto& x = message->chunks;
  CHECK(x.model == "a/model");
  CHECK(x.world_size == 2);
  CHECK(x.worker == 1U);
  CHECK(x.request == "r-1");
  CHECK(x.readers == 1);
  CHECK(x.begin == 1);
  CHECK(x.end == 3);
  CHECK(x.aligned);
  CHECK(x.keys.size() == 3);
  CHECK(message->instance == 77);

  SECTION("partial chunks do not count in a lookup") {
    const auto lookup = read(8, {key_json(13, 3, 11), 1});
    CHECK_FALSE(lookup->malformed);
    CHECK(lookup->chunks.begin == 0);
    CHECK(lookup->chunks.end == 2);
    CHECK(lookup->chunks.keys.size() == 2);
  }
  SECTION("a store consists of whole chunks") {
    CHECK(read(16, {key_json(13, 4, 11, 1), 77})->malformed);
    CHECK(read(16, {key_json(13, 3, 12, 1), 77})->malformed);
  }
  SECTION("impossible values are malformed") {
    CHECK(read(8, {key_json(7, 0, 8), 1})->malformed);
    CHECK(read(8, {key_json(9, 8, 4), 1})->malformed);
    CHECK(read(16, {key_json(9, 0, 8, 2), 77})->malformed);
    CHECK(read(16, {key_json(9, 0, 8), 77})->malformed);
    for (const char* salt : {"a@b", "a/b", "a\\b"}) {
      auto key = key_json(9, 0, 8);
      key["cache_salt"] = salt;
      CHECK(read(8, {key, 1})->malformed);
    }
    for (const char* field : {"model_name", "world_size", "token_ids", "start", "end", "request_id"}) {
      auto key = key_json(9, 0, 8);
      key.erase(field);
      INFO(field);
      CHECK(read(8, {key, 1})->malformed);
    }
  }
  SECTION("fields with defaults may be missing, and unknown fields are ignored") {
    auto key = key_json(9, 0, 8);
    key.erase("cache_salt");
    key.erase("num_kv_readers");
    key.erase("worker_id");
    key["something_new"] = {{"a", json::array({1, nullptr, 2.5})}};
    const auto lookup = read(8, {key, 1});
    CHECK_FALSE(lookup->malformed);
    CHECK(lookup->chunks.readers == 0);
  }
}

TEST_CASE("lmcache protocol: keys of chunks are chained and depend on salt and model", "[lmcache]") {
  const auto keys_of = [](const json& key) { return read(8, {key, 1})->chunks.keys; };
  const auto keys = keys_of(key_json(12, 0, 12));
  REQUIRE(keys.size() == 3);
  CHECK(keys_of(key_json(9, 0, 8)) == std::vector(keys.begin(), keys.begin() + 2));
  auto changed = key_json(12, 0, 12);
  changed["token_ids"][5] = 1;
  const auto others = keys_of(changed);
  CHECK(others[0] == keys[0]);
  CHECK(others[1] != keys[1]);
  CHECK(others[2] != keys[2]);
  for (const auto& [field, value] :
       {std::pair<const char*, json>("cache_salt", "tenant"), {"model_name", "b/model"}, {"world_size", 4}}) {
    auto other = key_json(12, 0, 12);
    other[field] = value;
    CHECK(keys_of(other)[0] != keys[0]);
  }
  // Stored pages are found by them after every update: they never change.
  CHECK(to_string(keys[0]) == "c6348b9e6c4353d076a4d80113b0a950");
}

TEST_CASE("lmcache protocol: a registration describes the page layout of a worker", "[lmcache]") {
  const auto message = read(14, {registration_json()});
  REQUIRE(message);
  CHECK(message->instance == 1234567890123456789);
  REQUIRE(message->registration);
  const auto& ns = message->registration->first().ns;
  CHECK(ns.model == "a/model");
  CHECK(ns.dtype == "bfloat16");
  CHECK(ns.world_size == 2);
  CHECK(ns.geometry.page_bytes() == 2 * 3 * 4 * 8 * 2);
  CHECK(message->registration->first().shape.sizes == std::vector<std::uint32_t>{2, 3, 4, 8});
  CHECK(message->registration->first().shape.dtype == "bfloat16");

  SECTION("a malformed registration still has its instance id") {
    auto x = registration_json();
    x["num_layers"] = "three";
    const auto wrong = read(14, {x});
    CHECK(wrong->malformed);
    CHECK(wrong->instance == 1234567890123456789);
    const auto too_many = read(14, {registration_json(), 1});
    CHECK(too_many->malformed);
    CHECK(too_many->instance == 1234567890123456789);
    CHECK_FALSE(read(14, {json::array()})->instance);
  }
  SECTION("one plane") {
    auto x = registration_json();
    x["use_mla"] = true;
    const auto one = read(14, {x})->registration;
    CHECK(one->first().shape.sizes == std::vector<std::uint32_t>{3, 4, 8});
    CHECK(one->first().ns.id() != ns.id());
  }
  SECTION("fields that change the bytes change the namespace") {
    for (const auto& [field, value] : {std::pair<const char*, json>("num_layers", 4),
                                       {"hidden_dim_size", 4},
                                       {"dtype_str", "float16"},
                                       {"model_name", "b"},
                                       {"world_size", 1}}) {
      auto x = registration_json();
      x[field] = value;
      INFO(field);
      const auto other = read(14, {x})->registration;
      REQUIRE(other);
      CHECK(other->first().ns.id() != ns.id());
      CHECK(other->first().ns.name != ns.name);
    }
  }
  SECTION("fields that do not change the bytes keep the namespace") {
    auto x = registration_json();
    x["block_size"] = 4;
    x["instance_id"] = 2;
    x["num_physical_slots"] = nullptr;
    CHECK(read(14, {x})->registration->first().ns == ns);
  }
  SECTION("unsupported values are refused with a reason") {
    for (const auto& [field, value] : {std::pair<const char*, json>("block_size", 3),
                                       {"block_size", 0},
                                       {"num_layers", 0},
                                       {"dtype_str", "complex64"},
                                       {"num_physical_slots", 5},
                                       {"hidden_dim_size", 0}}) {
      auto x = registration_json();
      x[field] = value;
      INFO(field);
      const auto refused = read(14, {x});
      CHECK_FALSE(refused->malformed);
      CHECK_FALSE(refused->registration);
    }
  }
  SECTION("wide layers are represented as heads in a namespace") {
    auto x = registration_json();
    x["hidden_dim_size"] = 65536;
    const auto wide = read(14, {x})->registration;
    REQUIRE(wide);
    CHECK(wide->first().ns.geometry.page_bytes() == std::uint64_t{2} * 3 * 4 * 65536 * 2);
    CHECK(wide->first().shape.sizes == std::vector<std::uint32_t>{2, 3, 4, 65536});
  }
}

TEST_CASE("lmcache protocol: answers have the types of LMCache", "[lmcache]") {
  const std::vector<protocol::slot_shape> shape{{{2, 3, 4, 8}, "bfloat16"}};
  const std::vector<protocol::slot_place> slots{{4096, 384, 0}, {std::uint64_t{1} << 40U, 384, 2}};
  const json first{{"offset", 4096}, {"length", 384}, {"shape", {2, 3, 4, 8}}, {"dtype", "bfloat16"}};
  auto second = first;
  second["offset"] = std::uint64_t{1} << 40U;
  CHECK(unpacked(protocol::answer_registration("troupe-lmcache-1", 1 << 20)) ==
        json{{"shm_name", "troupe-lmcache-1"}, {"pool_size", 1 << 20}, {"null_block_id", 0}});
  CHECK(unpacked(protocol::answer_prepared_store(slots, shape)) ==
        json{{"context", {{"slots", {first, second}}, {"chunk_indices", {0, 2}}}}});
  CHECK(unpacked(protocol::answer_prepared_store({}, shape)) ==
        json{{"context", {{"slots", json::array()}, {"chunk_indices", json::array()}}}});
  CHECK(unpacked(protocol::answer_no_store()) == json{{"context", json::object()}});
  CHECK(unpacked(protocol::answer_prepared_retrieve(slots, shape)) ==
        json{{"success", true}, {"data", json::binary({})}, {"context", {{"slots", {first, second}}}}});
  CHECK(unpacked(protocol::answer_no_retrieve()) ==
        json{{"success", false}, {"data", json::binary({})}, {"context", json::object()}});
  SECTION("of several groups, each slot has its group, shape and chunk") {
    const std::vector<protocol::slot_shape> shapes{{{2, 3, 4, 8}, "bfloat16"}, {{1, 2, 8}, "float32"}};
    const std::vector<protocol::slot_place> places{{4096, 384, 0, 0}, {8192, 64, 2, 1}};
    const json other{{"offset", 8192}, {"length", 64}, {"shape", {1, 2, 8}}, {"dtype", "float32"}};
    const json context{{"slots", {first, other}}, {"chunk_indices", {0, 2}}, {"group_ids", {0, 1}}};
    CHECK(unpacked(protocol::answer_prepared_store(places, shapes)) == json{{"context", context}});
    CHECK(unpacked(protocol::answer_prepared_retrieve(places, shapes))["context"] == context);
    CHECK(unpacked(protocol::answer_prepared_store({}, shapes))["context"]["group_ids"] == json::array());
  }
  CHECK(unpacked(protocol::answer_transfer("event", true)) == json{json::binary({'e', 'v', 'e', 'n', 't'}), true});
}

TEST_CASE("lmcache protocol: every operation has a negative answer", "[lmcache]") {
  const auto no = [](operation x) { return unpacked(protocol::refusal(x).value()); };
  CHECK(no(operation::commit_store) == false);
  CHECK(no(operation::commit_retrieve) == false);
  CHECK(no(operation::ping) == false);
  CHECK(no(operation::query_prefetch_status) == 0);
  CHECK(no(operation::wait_prefetch_status) == 0);
  CHECK(no(operation::prepare_store) == json{{"context", json::object()}});
  CHECK(no(operation::prepare_retrieve)["success"] == false);
  CHECK(no(operation::register_context) == json{{"shm_name", ""}, {"pool_size", 0}, {"null_block_id", 0}});
  CHECK(no(operation::store)[1] == false);
  CHECK(no(operation::retrieve)[1] == false);
  CHECK(no(operation::server_module_call)["success"] == false);
  CHECK(no(operation::cb_protocol_handshake)[1] == false);
  for (const auto x : {operation::lookup, operation::end_session, operation::free_lookup_locks, operation::clear,
                       operation::register_kv_cache, operation::unregister_context, operation::subscribe_kv_events,
                       operation::unknown})
    CHECK_FALSE(protocol::refusal(x));
}

} // namespace lmcache_protocol_test
