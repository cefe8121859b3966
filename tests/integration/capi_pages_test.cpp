#include "tests/catch.hpp"
#include "tests/integration/capi_engine.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace capi_pages_test {

using namespace troupe::test;

namespace {

constexpr std::size_t pool_page_bytes = 16384;

nlohmann::json pool_node(const scratch_directory& scratch, const char* memory = "64 MiB") {
  auto out = node_config(scratch.path());
  out["namespaces"] = nlohmann::json::array();
  out["storage"] = {{"ranks", nlohmann::json::array()}};
  out["memory"]["bytes"] = memory;
  return out;
}

struct pool_terms {
  std::uint32_t pages = 64;
  std::uint32_t key_bytes = 16;
  std::uint32_t world_size = 1;
  std::uint32_t rank = 0;
  const char* model = "test/pool";
};

/// A pool whose pages are two pieces each, as a page-first pool of K and V has them.
class test_pool {
public:
  test_pool(troupe_connection* connection, const pool_terms& how) : how_(how), memory_(how.pages * pool_page_bytes) {
    auto geometry = sized<troupe_geometry>();
    geometry.layers = 2;
    geometry.page_tokens = 16;
    geometry.opaque_block_bytes = pool_page_bytes / 2;
    auto ns = sized<troupe_namespace>();
    ns.model = how.model;
    ns.dtype = "bfloat16";
    ns.world_size = how.world_size;
    ns.geometry = &geometry;
    auto options = sized<troupe_pages_options>();
    options.key_bytes = how.key_bytes;
    options.rank = how.rank;
    constexpr auto half = pool_page_bytes / 2;
    const std::array<troupe_layer, 2> layers{{{memory_.data(), half * how.pages, half, 0, 0, 0},
                                              {memory_.data() + half * how.pages, half * how.pages, half, 0, 0, 0}}};
    troupe_pages* out = nullptr;
    call(troupe_pages_create, connection, &ns, &options, layers.data(), layers.size(), how.pages, &out);
    pages_.reset(out);
  }

  troupe_pages* get() const { return pages_.get(); }

  std::uint8_t* piece(std::size_t layer, std::uint32_t page) {
    return memory_.data() + (layer * how_.pages + page) * (pool_page_bytes / 2);
  }
  void fill(std::uint32_t page, unsigned what) {
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (std::size_t i = 0; i < pool_page_bytes / 2; ++i)
        piece(layer, page)[i] = static_cast<std::uint8_t>(what * 13 + layer * 7 + i * 3 + i / 200);
  }
  bool holds(std::uint32_t page, unsigned what) {
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (std::size_t i = 0; i < pool_page_bytes / 2; ++i)
        if (piece(layer, page)[i] != static_cast<std::uint8_t>(what * 13 + layer * 7 + i * 3 + i / 200))
          return false;
    return true;
  }

  std::vector<std::uint8_t> keys(unsigned first, std::size_t count) const {
    std::vector<std::uint8_t> out(count * how_.key_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = first + static_cast<unsigned>(i);
      std::memcpy(out.data() + i * how_.key_bytes, &number, sizeof number);
      out[i * how_.key_bytes + 7] = 0xa5;
    }
    return out;
  }

  std::size_t exist(unsigned first, std::size_t count) {
    std::size_t found = 0;
    call(troupe_pages_exist, get(), static_cast<const std::uint8_t*>(keys(first, count).data()), count, 20.0, &found);
    return found;
  }

  std::vector<std::uint8_t> exist_each(unsigned first, std::size_t count) {
    std::vector<std::uint8_t> found(count);
    const auto all = keys(first, count);
    call(troupe_pages_exist_each, get(), all.data(), count, 20.0, found.data());
    return found;
  }

  struct moved {
    std::size_t done = 0;
    std::vector<std::int32_t> results;
  };
  moved put(unsigned first, const std::vector<std::uint32_t>& blocks) { return move(troupe_pages_put, first, blocks); }
  moved read(unsigned first, const std::vector<std::uint32_t>& blocks) { return move(troupe_pages_get, first, blocks); }

private:
  template <class F>
  moved move(F function, unsigned first, const std::vector<std::uint32_t>& blocks) {
    moved out;
    out.results.assign(blocks.size(), -1);
    const auto all = keys(first, blocks.size());
    call(function, get(), all.data(), blocks.data(), blocks.size(), 20.0, out.results.data(), &out.done);
    CHECK(out.done == static_cast<std::size_t>(std::count(out.results.begin(), out.results.end(), TROUPE_OK)));
    return out;
  }

  pool_terms how_;
  std::vector<std::uint8_t> memory_;
  capi_handle<troupe_pages> pages_;
};

/// Whether all threads of the process have stopped, and not only received the signal.
bool is_stopped(pid_t process) {
  const auto tasks = "/proc/" + std::to_string(process) + "/task";
  return std::ranges::all_of(std::filesystem::directory_iterator(tasks), [](const auto& task) {
    std::ifstream file(task.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end, 3, ") T") == 0;
  });
}

} // namespace

TEST_CASE("capi pages: pages of host memory are loaded by their keys", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), pool_node(scratch)));
  const auto connection = connect_to(node.address());
  pool_terms how;
  how.key_bytes = GENERATE(8U, 16U, 32U, 64U);
  test_pool pool(connection.get(), how);
  CHECK(said_by(troupe_pages_attached, pool.get()).code == TROUPE_OK);
  CHECK(pool.exist(1, 8) == 0);
  for (std::uint32_t i = 0; i < 8; ++i)
    pool.fill(i, i);
  CHECK(pool.put(1, {0, 1, 2, 3, 4, 5}).done == 6);
  CHECK(pool.exist(1, 8) == 6);
  CHECK(pool.exist(3, 2) == 2);
  CHECK(pool.exist(0, 3) == 0);
  // Existing pages count as done.
  CHECK(pool.put(1, {0, 1, 2, 3, 4, 5, 6}).done == 7);
  const auto back = pool.read(1, {20, 21, 22, 23, 24, 25, 26, 27});
  CHECK(back.done == 7);
  CHECK(back.results.back() == TROUPE_NOT_FOUND);
  for (std::uint32_t i = 0; i < 7; ++i)
    CHECK(pool.holds(20 + i, i));
  troupe_bytes stats{};
  call(troupe_pages_stats, pool.get(), &stats);
  const auto json = nlohmann::json::parse(stats.data, stats.data + stats.length);
  CHECK(json.at("saved_bytes") == 7 * pool_page_bytes);
  CHECK(json.at("loaded_bytes") == 7 * pool_page_bytes);
  CHECK(json.at("skipped_pages") == 6);
  CHECK(json.at("num_failed_load") == 1);
  // All that is described is there.
  troupe_bytes described{};
  call(troupe_metric_descriptions, &described);
  for (const auto& x : nlohmann::json::parse(described.data, described.data + described.length))
    CHECK(json.contains(x.at("member").get<std::string>()));
  // Also behind missing ones, and none where a key is of none.
  CHECK(pool.put(40, {0}).done == 1);
  CHECK(pool.exist_each(5, 4) == std::vector<std::uint8_t>{1, 1, 1, 0});
  CHECK(pool.exist_each(38, 4) == std::vector<std::uint8_t>{0, 0, 1, 0});
  CHECK(pool.exist_each(38, 0).empty());
  // In another pool, by another connection.
  test_pool other(connect_to(node.address()).get(), how);
  CHECK(other.read(1, {9}).done == 1);
  CHECK(other.holds(9, 0));
  how.model = "other/model";
  test_pool stranger(connection.get(), how);
  CHECK(stranger.exist(1, 1) == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi pages: a key exists when all ranks have saved their page of it", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), pool_node(scratch)));
  const auto connection = connect_to(node.address());
  pool_terms how;
  how.world_size = 2;
  test_pool first(connection.get(), how);
  how.rank = 1;
  test_pool second(connection.get(), how);
  first.fill(0, 5);
  second.fill(0, 6);
  CHECK(first.put(1, {0}).done == 1);
  CHECK(first.exist(1, 1) == 0);
  CHECK(second.put(1, {0}).done == 1);
  CHECK(first.exist(1, 1) == 1);
  CHECK(second.read(1, {3}).done == 1);
  CHECK(second.holds(3, 6));
  CHECK(node.stop() == 0);
}

TEST_CASE("capi pages: many threads use one pool", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), pool_node(scratch)));
  const auto connection = connect_to(node.address());
  test_pool pool(connection.get(), {});
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (unsigned t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      // Each thread with blocks and keys of its own; no macro of Catch is for several threads.
      for (unsigned round = 0; round < 10; ++round) {
        const std::uint32_t from = t * 16;
        const std::uint32_t to = t * 16 + 8;
        const auto key = pool.keys(1 + t * 1000 + round, 1);
        pool.fill(from, t * 100 + round);
        std::size_t done = 0;
        if (troupe_pages_put(pool.get(), key.data(), &from, 1, 20, nullptr, &done, nullptr) != TROUPE_OK || done != 1)
          ++wrong;
        std::size_t found = 0;
        if (troupe_pages_exist(pool.get(), key.data(), 1, 20, &found, nullptr) != TROUPE_OK || found != 1)
          ++wrong;
        if (troupe_pages_get(pool.get(), key.data(), &to, 1, 20, nullptr, &done, nullptr) != TROUPE_OK || done != 1)
          ++wrong;
        if (!pool.holds(to, t * 100 + round))
          ++wrong;
      }
    });
  for (auto& x : all)
    x.join();
  CHECK(wrong == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi pages: a pool without a node finds and saves nothing until a node is attached", "[capi]") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), pool_node(scratch));
  std::string address;
  {
    serving_node node(config);
    address = node.address();
    CHECK(node.stop() == 0);
  }
  const auto connection = connect_to(address, -1);
  test_pool pool(connection.get(), {});
  CHECK(said_by(troupe_pages_attached, pool.get()).code == TROUPE_UNREACHABLE);
  CHECK(pool.exist(1, 1) == 0);
  CHECK(pool.put(1, {0}).results == std::vector<std::int32_t>{TROUPE_UNREACHABLE});
  std::optional<serving_node> node(std::in_place, config);
  REQUIRE(eventually([&] { return pool.put(1, {0}).done != 0; }));
  CHECK(pool.exist(1, 1) == 1);
  node->program().kill();
  CHECK(pool.read(1, {1}).done == 0);
  node.emplace(config);
  REQUIRE(eventually([&] { return pool.put(1, {0}).done != 0; }));
  CHECK(pool.read(1, {1}).done == 1);
  CHECK(node->stop() == 0);
}

TEST_CASE("capi pages: a page call times out at its limit", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), pool_node(scratch)));
  const auto connection = connect_to(node.address());
  test_pool pool(connection.get(), {});
  node.program().send(SIGSTOP);
  REQUIRE(eventually([&] { return is_stopped(node.program().id()); }));
  const auto keys = pool.keys(1, 1);
  const std::uint32_t block = 0;
  std::size_t found = 7;
  call(troupe_pages_exist, pool.get(), keys.data(), std::size_t{1}, 0.2, &found);
  CHECK(found == 0);
  std::int32_t result = -1;
  std::size_t done = 7;
  call(troupe_pages_get, pool.get(), keys.data(), &block, std::size_t{1}, 0.2, &result, &done);
  CHECK(result == TROUPE_TIMEOUT);
  call(troupe_pages_put, pool.get(), keys.data(), &block, std::size_t{1}, 0.2, &result, &done);
  CHECK(result == TROUPE_TIMEOUT);
  CHECK(done == 0);
  node.program().send(SIGCONT);
  CHECK(node.stop() == 0);
}

} // namespace capi_pages_test
