#include "io/page.hpp"
#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"
#include "tests/sparse_files.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <sys/stat.h>
#include <thread>

namespace sparse_slabs_test {

/// Slab files whose slots have only the disk space that their pages need: how many pages they hold, and that they never
/// occupy more than they may, whatever pages come, over kills of the node.

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t page_bytes = 262144;
constexpr std::uint64_t disk_bytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t whole_pages = disk_bytes / (page_bytes + 4096);
/// The file system lists the parts of a file in blocks, some three hundred in each, which count as the file's.
constexpr std::uint64_t most_bytes = disk_bytes + 4 * std::uint64_t{4096};

class scene {
public:
  explicit scene(const std::string& durability) {
    auto config = node_config(scratch_.path(), {.page_bytes = page_bytes});
    namespace_ = scratch_ / "namespace.json";
    std::ofstream(namespace_) << config.at("namespaces").at(0).dump();
    config["namespaces"] = json::array();
    config["storage"] = {{"ranks", json::array()}, {"disk_bytes", disk_bytes}};
    config["memory"]["bytes"] = "64 MiB";
    config["memory"]["beyond_disk"] = false;
    config["registry"]["durability"] = durability;
    config["registry"]["eviction"] = "lru";
    // So that the last prompts are there as a whole.
    config["registry"]["shards"] = 1;
    config["http"] = {{"enabled", true}, {"port", 0}};
    file_ = write_config(scratch_.path(), config);
  }

  const fs::path& file() const { return file_; }

  /// Prompts of 20 blocks each.
  std::string prompts(std::uint64_t first, std::uint64_t blocks) const {
    std::vector<std::vector<std::uint64_t>> out;
    for (std::uint64_t i = 0; i < blocks / 20; ++i)
      out.push_back(ids(first + i * 20, 20));
    return write_trace(scratch_ / ("trace-" + std::to_string(first)), out);
  }

  /// Plays them, and looks all the time at what the file occupies.
  replay_outcome play(const serving_node& node, const std::string& trace, const std::string& encoding) {
    process player(replay_command({"--attach", node.address(), "--trace", trace, "--bf16-values", "--concurrency", "1",
                                   "--make-namespace", namespace_.string(), "--set", "transfer.encoding=" + encoding}));
    std::atomic<bool> ends = false;
    std::thread watcher([&] {
      while (!ends) {
        most_ = std::max(most_, occupied());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    auto out = result_of(player);
    ends = true;
    watcher.join();
    INFO(out.err);
    CHECK(out.code == 0);
    CHECK(out.count("verify_failures") == 0);
    return out;
  }

  std::uint64_t occupied() const {
    std::uint64_t sum = 0;
    std::error_code none;
    for (const auto& x : fs::directory_iterator(scratch_ / "data/namespaces", none)) {
      struct stat status {};
      if (::stat(x.path().c_str(), &status) == 0)
        sum += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    return sum;
  }
  std::uint64_t most_occupied() const noexcept { return most_; }

private:
  scratch_directory scratch_;
  fs::path namespace_;
  fs::path file_;
  std::uint64_t most_ = 0;
};

bool are_possible() {
  const scratch_directory scratch;
  return can_be_sparse_in(scratch.path());
}

double keys(const serving_node& node) {
  return sum_of_metric(node, "troupe_keys");
}

} // namespace

TEST_CASE("sparse slabs: a disk holds more encoded pages than pages as they are, also after the node was killed") {
  const auto durability = GENERATE(as<std::string>{}, "relaxed", "strict");
  CAPTURE(durability);
  if (!are_possible())
    return;
  scene s(durability);
  std::optional<serving_node> node(std::in_place, s.file());
  const auto encoded = s.prompts(1, 400);
  CHECK(s.play(*node, encoded, "bf16").count("saved_pages") == 400);
  const auto held = keys(*node);
  // 1.29 without the slots that are kept free, and the first pages, which are not encoded.
  CHECK(held > 1.2 * whole_pages);
  CHECK(eventually([&] { return sum_of_metric(*node, "troupe_memory_dirty_bytes") == 0; }));
  CHECK(sum_of_metric(*node, "troupe_slab_page_bytes") <= sum_of_metric(*node, "troupe_slab_limit_bytes"));
  CHECK(s.most_occupied() <= most_bytes);
  node->program().kill();
  node.emplace(s.file());
  CHECK(keys(*node) == held);
  // The last prompts are there, to the last byte.
  const auto again = s.play(*node, s.prompts(201, 200), "raw");
  CHECK(again.count("hit_blocks") == 200);
  CHECK(again.count("loaded_pages") == 200);
  CHECK(s.most_occupied() <= most_bytes);
  CHECK(node->stop() == 0);
}

TEST_CASE("sparse slabs: pages that are not encoded take the place of encoded ones within the limit of the file") {
  if (!are_possible())
    return;
  scene s("relaxed");
  std::optional<serving_node> node(std::in_place, s.file());
  s.play(*node, s.prompts(1, 400), "bf16");
  for (const bool restarted : {false, true}) {
    CAPTURE(restarted);
    const std::uint64_t first = restarted ? 20'000 : 10'000;
    const auto raw = s.prompts(first, 400);
    // In so little memory a few find no frame while those before them wait for disk space.
    CHECK(s.play(*node, raw, "raw").count("saved_pages") > 350);
    CHECK(eventually([&] { return sum_of_metric(*node, "troupe_memory_dirty_bytes") == 0; }));
    // All space is used for them, and none is lost.
    CHECK(keys(*node) > 0.9 * whole_pages);
    CHECK(keys(*node) <= whole_pages);
    CHECK(s.play(*node, s.prompts(first + 200, 200), "raw").count("hit_blocks") == 200);
    const auto encoded = s.prompts(first + 5'000, 400);
    CHECK(s.play(*node, encoded, "bf16").count("saved_pages") > 350);
    CHECK(eventually([&] { return keys(*node) > 1.2 * whole_pages; }));
    CHECK(s.most_occupied() <= most_bytes);
    if (!restarted) {
      node->program().kill();
      node.emplace(s.file());
    }
  }
  CHECK(node->stop() == 0);
}

} // namespace sparse_slabs_test
