#include "tests/catch.hpp"
#include "tests/integration/capi_engine.hpp"
#include "tests/integration/support.hpp"

#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace capi_misuse_test {

/// Callers of the C interface that do everything wrong: an error with a sentence, and nothing worse.

using namespace troupe::test;

namespace {

/// CHECKs that it is refused with this code and a reason.
void check_refused(const capi_outcome& x, std::int32_t code) {
  INFO(x.text);
  CHECK(x.code == code);
  CHECK(x.text.size() > 5);
}

/// A struct as a newer caller has it, with members that the library does not know.
template <class T>
struct longer {
  T known = sized<T>();
  std::uint64_t unknown = 0;
  longer() { known.size = static_cast<std::uint32_t>(sizeof(T) + 8); }
};

/// A connection without a node, and the parts that an engine needs.
struct lonely {
  scratch_directory scratch;
  capi_handle<troupe_connection> connection = connect_to((scratch.path() / "nobody").string(), -1);
  troupe_geometry geometry = sized<troupe_geometry>();
  troupe_namespace ns = sized<troupe_namespace>();
  troupe_engine engine = sized<troupe_engine>();

  lonely() {
    geometry.layers = 2;
    geometry.parts = 2;
    geometry.heads = 2;
    geometry.head_size = 64;
    geometry.element_bytes = 2;
    ns.model = "m";
    ns.dtype = "bfloat16";
    ns.geometry = &geometry;
  }
  lonely(const lonely&) = delete;

  capi_outcome identity() {
    char digits[33];
    return said_by(troupe_namespace_identity, &ns, &engine, &digits[0], nullptr);
  }
};

} // namespace

TEST_CASE("capi misuse: a connection with invalid options is refused with the reason", "[capi]") {
  troupe_connection* out = nullptr;
  check_refused(said_by(troupe_connect, nullptr, &out), TROUPE_INVALID_ARGUMENT);
  auto how = sized<troupe_connect_options>();
  check_refused(said_by(troupe_connect, &how, nullptr), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_connect, &how, &out), TROUPE_INVALID_ARGUMENT); // no address
  how.address = "127.0.0.1:1";
  for (const std::uint32_t size : {0U, 1U, 4U, 7U, 12U, 65544U, 0xffffffffU}) {
    how.size = size;
    check_refused(said_by(troupe_connect, &how, &out), TROUPE_INVALID_ARGUMENT);
  }
  how.size = sizeof how;
  how.key = "/no/such/key.pem";
  check_refused(said_by(troupe_connect, &how, &out), TROUPE_INVALID_ARGUMENT);
  how.key = nullptr;
  how.threads = 100'000;
  check_refused(said_by(troupe_connect, &how, &out), TROUPE_INVALID_ARGUMENT);
  how.threads = 0;
  how.wait_for_node_seconds = std::numeric_limits<double>::quiet_NaN();
  check_refused(said_by(troupe_connect, &how, &out), TROUPE_INVALID_ARGUMENT);
  how.wait_for_node_seconds = 0;
  const std::string long_address(5000, 'a');
  how.address = long_address.c_str();
  check_refused(said_by(troupe_connect, &how, &out), TROUPE_LIMIT_EXCEEDED);
  CHECK(out == nullptr);
  check_refused(said_by(troupe_set_log_level, "loud"), TROUPE_INVALID_ARGUMENT);
  CHECK(said_by(troupe_set_log_level, "error").code == TROUPE_OK);
}

TEST_CASE("capi misuse: structs of older and newer callers are accepted as far as possible", "[capi]") {
  lonely x;
  troupe_connection* out = nullptr;
  // The struct of an older caller: the address is the last field that it knows.
  auto older = sized<troupe_connect_options>();
  older.address = "127.0.0.1:1";
  older.window_bytes = 1; // behind its end, so garbage
  older.size = 16;
  REQUIRE(said_by(troupe_connect, &older, &out).code == TROUPE_OK);
  troupe_connection_destroy(out);
  longer<troupe_engine> newer;
  char digits[33] = "";
  CHECK(said_by(troupe_namespace_identity, &x.ns, &newer.known, &digits[0], nullptr).code == TROUPE_OK);
  CHECK(std::strlen(digits) == 32);
  newer.unknown = 1;
  check_refused(said_by(troupe_namespace_identity, &x.ns, &newer.known, &digits[0], nullptr), TROUPE_UNSUPPORTED);
  // The library writes only inside the caller's size.
  troupe_scheduler* scheduler = nullptr;
  call(troupe_scheduler_create, x.connection.get(), &x.ns, &x.engine, &scheduler);
  const capi_handle<troupe_scheduler> own(scheduler);
  auto request = sized<troupe_request>();
  request.id = "r";
  auto found = sized<troupe_matched>();
  found.size = 8;
  found.known = found.tokens = found.asynchronous = 99;
  call(troupe_scheduler_matched, scheduler, &request, 0U, &found);
  CHECK(found.size == 8);
  CHECK(found.known == 1);
  CHECK(found.tokens == 99);
  // An error in little room.
  troupe_error small{};
  std::memset(&small, 'x', sizeof small);
  small.size = 16;
  CHECK(troupe_scheduler_matched(scheduler, nullptr, 0, &found, &small) == TROUPE_INVALID_ARGUMENT);
  CHECK(small.code == TROUPE_INVALID_ARGUMENT);
  CHECK(std::strlen(small.text) == 7);
  CHECK(small.text[8] == 'x');
  small.size = 8;
  small.code = 0;
  CHECK(troupe_scheduler_matched(scheduler, nullptr, 0, &found, &small) == TROUPE_INVALID_ARGUMENT);
  CHECK(small.code == 0);
  CHECK(troupe_scheduler_matched(scheduler, nullptr, 0, &found, nullptr) == TROUPE_INVALID_ARGUMENT);
}

TEST_CASE("capi misuse: an invalid engine or namespace is refused", "[capi]") {
  lonely x;
  CHECK(x.identity().code == TROUPE_OK);
  const auto refused = [&](auto change, std::int32_t code = TROUPE_INVALID_ARGUMENT) {
    const auto geometry = x.geometry;
    const auto ns = x.ns;
    const auto engine = x.engine;
    change();
    check_refused(x.identity(), code);
    x.geometry = geometry;
    x.ns = ns;
    x.engine = engine;
  };
  refused([&] { x.ns.geometry = nullptr; });
  refused([&] { x.geometry.layers = 0; });
  refused([&] { x.geometry.layers = 0xffffffffU; });
  refused([&] { x.geometry.head_size = 1U << 30U; });
  refused([&] { x.geometry.page_tokens = 24; });
  refused([&] { x.geometry.opaque_block_bytes = 4096; });
  refused([&] {
    x.geometry.parts = x.geometry.heads = x.geometry.head_size = x.geometry.element_bytes = 0;
    x.geometry.opaque_block_bytes = 4097;
  });
  refused([&] {
    x.geometry.parts = x.geometry.heads = x.geometry.head_size = x.geometry.element_bytes = 0;
    x.geometry.opaque_block_bytes = ~std::uint64_t{15};
  });
  refused([&] { x.engine.keys = 3; });
  refused([&] { x.engine.hash_bytes = 33; });
  refused([&] { x.engine.hash_bytes = 1; });
  refused([&] { x.engine.kv_replicated = 2; });
  refused([&] { x.engine.tensor_parallel = 1U << 20U; });
  refused([&] { x.engine.context_parallel = 3; });
  refused([&] { x.engine.lease_seconds = -1; });
  refused([&] { x.engine.task_deadline_seconds = 1e300; });
  refused([&] { x.engine.disk_hits = 3; });
  check_refused(said_by(troupe_namespace_identity, &x.ns, &x.engine, nullptr, nullptr), TROUPE_INVALID_ARGUMENT);
  troupe_worker* worker = nullptr;
  check_refused(said_by(troupe_worker_create, x.connection.get(), &x.ns, &x.engine, 1U, -1, &worker),
                TROUPE_OUT_OF_RANGE);
  check_refused(said_by(troupe_worker_create, nullptr, &x.ns, &x.engine, 0U, -1, &worker), TROUPE_INVALID_ARGUMENT);
  CHECK(worker == nullptr);
}

TEST_CASE("capi misuse: a null handle is refused by every function", "[capi]") {
  troupe_bytes bytes{};
  auto step = sized<troupe_step>();
  check_refused(said_by(troupe_scheduler_build_meta, nullptr, &step, &bytes), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_scheduler_shutdown, nullptr), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_worker_bind, nullptr, nullptr, std::size_t{0}), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_worker_shutdown, nullptr), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_pages_attached, nullptr), TROUPE_INVALID_ARGUMENT);
  troupe_scheduler_destroy(nullptr);
  troupe_worker_destroy(nullptr);
  troupe_pages_destroy(nullptr);
  troupe_connection_destroy(nullptr);
}

TEST_CASE("capi misuse: inconsistent steps and reports are refused without effect", "[capi]") {
  lonely x;
  capi_engine engine(x.connection.get(), {});
  troupe_bytes out{};
  const std::uint32_t number[2] = {1, 0};
  const std::uint32_t ends[2] = {1, 0};
  const std::uint32_t beyond[2] = {0, 1};
  auto good = sized<troupe_step>();
  good.requests = {"a\0b", 4, 2};
  good.computed_tokens = number;
  good.scheduled_tokens = number;
  REQUIRE(said_by(troupe_scheduler_build_meta, engine.scheduler(), &good, &out).code == TROUPE_OK);
  const auto refused = [&](auto change, std::int32_t code = TROUPE_INVALID_ARGUMENT) {
    auto step = good;
    change(step);
    check_refused(said_by(troupe_scheduler_build_meta, engine.scheduler(), &step, &out), code);
  };
  check_refused(said_by(troupe_scheduler_build_meta, engine.scheduler(), &good, nullptr), TROUPE_INVALID_ARGUMENT);
  refused([](troupe_step& s) { s.requests.data = nullptr; });
  refused([](troupe_step& s) { s.requests.length = 3; });
  refused([](troupe_step& s) { s.requests.count = 3; });
  refused([](troupe_step& s) { s.requests.count = 1; });
  refused([](troupe_step& s) { s.requests.count = std::numeric_limits<std::size_t>::max(); });
  refused([](troupe_step& s) { s.requests = {"\0\0\0", 4, 2}; });
  refused([](troupe_step& s) { s.preempted = {"x", 1, 1}; });
  refused([](troupe_step& s) { s.new_requests = 3; });
  refused([](troupe_step& s) { s.computed_tokens = nullptr; });
  refused([](troupe_step& s) { s.scheduled_tokens = nullptr; });
  refused([&](troupe_step& s) { s.block_ends = ends; });
  refused([&](troupe_step& s) { s.block_ends = beyond; }, TROUPE_OUT_OF_RANGE);
  refused([](troupe_step& s) { s.blocks = {nullptr, 5}; });
  refused([](troupe_step& s) { s.blocks.count = std::size_t{1} << 33U; }, TROUPE_LIMIT_EXCEEDED);
  refused([&](troupe_step& s) { s.token_ends = ends; });
  refused([&](troupe_step& s) { s.hash_ends = ends; });
  refused([](troupe_step& s) { s.token_count = 4; });
  refused([](troupe_step& s) { s.hash_count = 4; });
  refused([](troupe_step& s) { s.size = 4; });

  auto output = sized<troupe_worker_output>();
  const std::string garbage(100, 'g');
  const troupe_bytes damaged{reinterpret_cast<const std::uint8_t*>(garbage.data()), garbage.size()};
  output.worker_meta = &damaged;
  output.worker_meta_count = 1;
  check_refused(said_by(troupe_scheduler_worker_output, engine.scheduler(), &output), TROUPE_CORRUPT);
  output.worker_meta = nullptr;
  check_refused(said_by(troupe_scheduler_worker_output, engine.scheduler(), &output), TROUPE_INVALID_ARGUMENT);
  std::int32_t keep = 0;
  check_refused(said_by(troupe_scheduler_finished, engine.scheduler(), "", &keep), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_scheduler_finished, engine.scheduler(), nullptr, &keep), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_scheduler_finished, engine.scheduler(), "r", nullptr), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_scheduler_allocated, engine.scheduler(), "r", nullptr, std::size_t{3}, 0U),
                TROUPE_INVALID_ARGUMENT);
  auto request = sized<troupe_request>();
  request.id = "r";
  request.token_count = 5;
  auto found = sized<troupe_matched>();
  check_refused(said_by(troupe_scheduler_matched, engine.scheduler(), &request, 0U, &found), TROUPE_INVALID_ARGUMENT);
  request.token_count = 0;
  request.hash_count = 2;
  check_refused(said_by(troupe_scheduler_matched, engine.scheduler(), &request, 0U, &found), TROUPE_INVALID_ARGUMENT);
  request.hash_count = 0;
  request.multimodal_count = 2;
  check_refused(said_by(troupe_scheduler_matched, engine.scheduler(), &request, 0U, &found), TROUPE_INVALID_ARGUMENT);
  request.multimodal_count = 0;
  check_refused(said_by(troupe_scheduler_matched, engine.scheduler(), &request, 0U, nullptr), TROUPE_INVALID_ARGUMENT);
  CHECK(engine.tracked() == 0);
}

TEST_CASE("capi misuse: corrupted metadata is not bound", "[capi]") {
  lonely x;
  capi_engine engine(x.connection.get(), {});
  auto step = sized<troupe_step>();
  troupe_bytes meta{};
  call(troupe_scheduler_build_meta, engine.scheduler(), &step, &meta);
  std::vector<std::uint8_t> whole(meta.data, meta.data + meta.length);
  auto* worker = engine.worker(0);
  check_refused(said_by(troupe_worker_bind, worker, nullptr, std::size_t{10}), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_worker_bind, worker, nullptr, std::size_t{0}), TROUPE_CORRUPT);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto damaged = whole;
    damaged[i] ^= 0x10;
    const auto bound = said_by(troupe_worker_bind, worker, damaged.data(), damaged.size());
    CHECK((bound.code == TROUPE_CORRUPT || bound.code == TROUPE_UNSUPPORTED));
    CHECK(said_by(troupe_worker_handle_preemptions, worker, damaged.data(), i).code == TROUPE_CORRUPT);
  }
  call(troupe_worker_handle_preemptions, worker, whole.data(), whole.size());
  call(troupe_worker_bind, worker, whole.data(), whole.size());
  call(troupe_worker_clear, worker);
}

TEST_CASE("capi misuse: invalid KV caches are refused", "[capi]") {
  lonely x;
  troupe_worker* worker = nullptr;
  call(troupe_worker_create, x.connection.get(), &x.ns, &x.engine, 0U, -1, &worker);
  const capi_handle<troupe_worker> own(worker);
  // 2 parts × 2 heads × 16 tokens × 128 bytes.
  std::vector<std::uint8_t> memory(4 * 8192);
  std::vector<troupe_layer> layers(2, troupe_layer{memory.data(), memory.size(), 8192, 4096, 128, 2048});
  const auto try_layers = [&](std::size_t count, std::uint32_t blocks) {
    return said_by(troupe_worker_register, worker, static_cast<const troupe_layer*>(layers.data()), count, blocks);
  };
  check_refused(said_by(troupe_worker_register, worker, nullptr, std::size_t{2}, 4U), TROUPE_INVALID_ARGUMENT);
  check_refused(try_layers(1, 4), TROUPE_IDENTITY_MISMATCH);
  check_refused(try_layers(2, 0), TROUPE_INVALID_ARGUMENT);
  check_refused(try_layers(2, 5), TROUPE_OUT_OF_RANGE);
  layers[1].base = nullptr;
  check_refused(try_layers(2, 4), TROUPE_INVALID_ARGUMENT);
  layers[1].base = memory.data();
  layers[1].token_stride = 64;
  check_refused(try_layers(2, 4), TROUPE_INVALID_ARGUMENT);
  layers[1].token_stride = 128;
  layers[1].block_stride = ~std::uint64_t{0} / 2;
  CHECK(try_layers(2, 4).code != TROUPE_OK);
  layers[1].block_stride = 8192;
  CHECK(try_layers(2, 4).code == TROUPE_OK);
}

TEST_CASE("capi misuse: handles refuse every call after shutdown", "[capi]") {
  lonely x;
  capi_engine engine(x.connection.get(), {});
  call(troupe_scheduler_shutdown, engine.scheduler());
  call(troupe_worker_shutdown, engine.worker(0));
  auto step = sized<troupe_step>();
  troupe_bytes bytes{};
  std::size_t count = 0;
  auto finished = sized<troupe_finished>();
  check_refused(said_by(troupe_scheduler_build_meta, engine.scheduler(), &step, &bytes), TROUPE_SHUTTING_DOWN);
  check_refused(said_by(troupe_scheduler_tracked_requests, engine.scheduler(), &count), TROUPE_SHUTTING_DOWN);
  check_refused(said_by(troupe_scheduler_shutdown, engine.scheduler()), TROUPE_SHUTTING_DOWN);
  check_refused(said_by(troupe_worker_start_load, engine.worker(0), nullptr), TROUPE_SHUTTING_DOWN);
  check_refused(said_by(troupe_worker_get_finished, engine.worker(0), nullptr, &finished), TROUPE_SHUTTING_DOWN);
  check_refused(said_by(troupe_worker_shutdown, engine.worker(0)), TROUPE_SHUTTING_DOWN);
}

TEST_CASE("capi misuse: halves outlive the connection that created them", "[capi]") {
  lonely x;
  capi_engine engine(x.connection.get(), {});
  x.connection.reset();
  engine.run("a", std::vector<std::uint32_t>(40, 1), {1, 2, 3});
  CHECK(engine.tracked() == 0);
}

TEST_CASE("capi misuse: concurrent calls into one half get TROUPE_BUSY and do no harm", "[capi]") {
  lonely x;
  capi_engine engine(x.connection.get(), {});
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&] {
      for (int i = 0; i < 2'000; ++i) {
        auto step = sized<troupe_step>();
        troupe_bytes bytes{};
        const auto code = troupe_scheduler_build_meta(engine.scheduler(), &step, &bytes, nullptr);
        if (code != TROUPE_OK && code != TROUPE_BUSY)
          ++wrong;
      }
    });
  for (auto& t : all)
    t.join();
  CHECK(wrong == 0);
}

TEST_CASE("capi misuse: pools report invalid arguments", "[capi]") {
  lonely x;
  x.geometry = sized<troupe_geometry>();
  x.geometry.layers = 1;
  x.geometry.opaque_block_bytes = 4096;
  std::vector<std::uint8_t> memory(4 * 4096);
  troupe_layer layer{memory.data(), memory.size(), 4096, 0, 0, 0};
  auto options = sized<troupe_pages_options>();
  troupe_pages* pages = nullptr;
  const auto create = [&](std::uint32_t blocks = 4) {
    return said_by(troupe_pages_create, x.connection.get(), &x.ns, &options, static_cast<const troupe_layer*>(&layer),
                   std::size_t{1}, blocks, &pages);
  };
  check_refused(create(5), TROUPE_OUT_OF_RANGE);
  options.key_bytes = 65;
  check_refused(create(), TROUPE_INVALID_ARGUMENT);
  options.key_bytes = 0;
  options.copy_threads = 257;
  check_refused(create(), TROUPE_INVALID_ARGUMENT);
  // It is behind the end of what older callers know, and garbage there.
  const auto size = options.size;
  options.size = 32 - 8;
  demand_ok(create());
  troupe_pages_destroy(pages);
  options.size = size;
  options.copy_threads = 3;
  options.device = 1025;
  check_refused(create(), TROUPE_INVALID_ARGUMENT);
  options.device = 0;
  options.rank = 1;
  check_refused(create(), TROUPE_OUT_OF_RANGE);
  options.rank = 0;
  layer.block_stride = 1000;
  check_refused(create(), TROUPE_INVALID_ARGUMENT);
  layer.block_stride = 4096;
  demand_ok(create());
  const capi_handle<troupe_pages> own(pages);
  std::size_t found = 0;
  std::vector<std::uint8_t> keys(32, 1);
  std::uint32_t blocks[2] = {0, 4};
  const auto exist = [&](const std::uint8_t* from, std::size_t count, double limit) {
    return said_by(troupe_pages_exist, pages, from, count, limit, &found);
  };
  std::uint8_t each[2] = {7, 7};
  check_refused(said_by(troupe_pages_exist_each, pages, keys.data(), std::size_t{1}, 1.0, nullptr),
                TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_pages_exist_each, pages, nullptr, std::size_t{1}, 1.0, &each[0]),
                TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_pages_exist_each, pages, keys.data(), std::size_t{1}, -1.0, &each[0]),
                TROUPE_INVALID_ARGUMENT);
  CHECK(each[0] == 7);
  CHECK(said_by(troupe_pages_exist_each, pages, keys.data(), std::size_t{2}, 1.0, &each[0]).code == TROUPE_OK);
  CHECK((each[0] == 0 && each[1] == 0)); // without a node
  check_refused(exist(nullptr, 1, 1), TROUPE_INVALID_ARGUMENT);
  check_refused(exist(keys.data(), std::numeric_limits<std::size_t>::max(), 1), TROUPE_LIMIT_EXCEEDED);
  check_refused(exist(keys.data(), 1, -1), TROUPE_INVALID_ARGUMENT);
  CHECK(exist(nullptr, 0, 0).code == TROUPE_OK);
  std::fill(keys.begin(), keys.begin() + 16, std::uint8_t{0});
  check_refused(exist(keys.data(), 1, 1), TROUPE_INVALID_ARGUMENT);
  keys[0] = 1;
  check_refused(said_by(troupe_pages_get, pages, keys.data(), &blocks[0], std::size_t{2}, 1.0, nullptr, nullptr),
                TROUPE_OUT_OF_RANGE);
  blocks[1] = 0; // two pages would be read into one block
  check_refused(said_by(troupe_pages_get, pages, keys.data(), &blocks[0], std::size_t{2}, 1.0, nullptr, nullptr),
                TROUPE_INVALID_ARGUMENT);
  CHECK(said_by(troupe_pages_put, pages, keys.data(), &blocks[0], std::size_t{2}, 1.0, nullptr, nullptr).code ==
        TROUPE_OK);
  check_refused(said_by(troupe_pages_put, pages, keys.data(), nullptr, std::size_t{2}, 1.0, nullptr, nullptr),
                TROUPE_INVALID_ARGUMENT);
  call(troupe_pages_shutdown, pages);
  check_refused(exist(keys.data(), 1, 1), TROUPE_SHUTTING_DOWN);
}

TEST_CASE("capi misuse: statistics are described, aggregated and reduced without a handle", "[capi]") {
  troupe_bytes out{};
  call(troupe_metric_descriptions, &out);
  const auto all = nlohmann::json::parse(out.data, out.data + out.length);
  CHECK(all.size() > 10);
  for (const auto& x : all) {
    CHECK(x.at("name").get<std::string>().starts_with("vllm:"));
    CHECK(x.contains("buckets") == (x.at("kind") == "histogram"));
  }
  const std::string one = R"({"save_duration":[0.5],"num_transfer_task":2,"saved_bytes":7})";
  const std::string two = R"({"load_duration":[0.25,0.5],"num_transfer_task":3,"saved_bytes":1})";
  const auto view = [](const std::string& x) {
    return troupe_bytes{reinterpret_cast<const std::uint8_t*>(x.data()), x.size()};
  };
  const troupe_bytes both[3] = {view(one), view(two), {nullptr, 0}};
  call(troupe_stats_aggregate, &both[0], std::size_t{3}, &out);
  const auto joined = nlohmann::json::parse(out.data, out.data + out.length);
  CHECK(joined.at("num_transfer_task") == 5);
  CHECK(joined.at("saved_bytes") == 8);
  CHECK(joined.at("load_duration") == nlohmann::json{0.25, 0.5});
  const std::string text(reinterpret_cast<const char*>(out.data), out.length);
  call(troupe_stats_reduce, view(text).data, text.size(), &out);
  const auto reduced = nlohmann::ordered_json::parse(out.data, out.data + out.length);
  CHECK(reduced.begin().key() == "Num transfers task");
  CHECK(reduced.at("Avg save duration (ms)") == 500.0);
  call(troupe_stats_aggregate, nullptr, std::size_t{0}, &out);
  CHECK(out.length == 0);
  for (const std::string bad : {"{", "[]", R"({"saved_bytes":-1})", R"({"save_duration":["x"]})", "\xff\xfe"})
    check_refused(said_by(troupe_stats_reduce, view(bad).data, bad.size(), &out), TROUPE_INVALID_ARGUMENT);
  check_refused(said_by(troupe_stats_reduce, nullptr, std::size_t{4}, &out), TROUPE_INVALID_ARGUMENT);
  CHECK(std::string(troupe_code_name(TROUPE_IDENTITY_MISMATCH)) == "identity_mismatch");
  CHECK(std::string(troupe_code_name(-1)) == "unknown");
  CHECK(std::string(troupe_code_name(1000)) == "unknown");
}

} // namespace capi_misuse_test
