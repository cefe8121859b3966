#include "config/node_config.hpp"
#include "config/outline.hpp"
#include "tests/unit/config_support.hpp"

#include <fstream>
#include <iterator>

namespace config_documentation_test {

using namespace troupe;
using namespace troupe::config;

namespace {

const std::filesystem::path source_dir{TROUPE_SOURCE_DIR};

/// Returns an empty text, with a warning, where the tests run without the sources.
std::string read_source(const std::filesystem::path& file) {
  std::ifstream stream{source_dir / file, std::ios::binary};
  if (!stream) {
    WARN("skipped: " << (source_dir / file).string() << " is not here");
    return {};
  }
  return {std::istreambuf_iterator<char>{stream}, {}};
}

} // namespace

TEST_CASE("config documentation: the documentation lists every key with its text", "[config]") {
  const auto text = read_source("docs/configuration.md");
  if (text.empty())
    return;
  const auto keys = documented_keys();
  for (const auto& key : keys) {
    INFO("docs/configuration.md needs this row:\n" << key.row);
    CHECK(contains(text, "\n" + key.row + "\n"));
  }
  // There are no more rows than keys: every documented key exists.
  std::size_t rows = 0;
  for (auto at = text.find("\n| `"); at != std::string::npos; at = text.find("\n| `", at + 1))
    ++rows;
  CHECK(rows == keys.size());
}

TEST_CASE("config documentation: the documentation has a section for each group with its description", "[config]") {
  const auto text = read_source("docs/configuration.md");
  if (text.empty())
    return;
  for (const auto& group : outline().children) {
    if (group.form == outline_node::shape::value)
      continue;
    INFO(group.key << ": " << group.meaning);
    CHECK(contains(text, "\n## " + group.key + "\n\n" + group.meaning));
  }
}

TEST_CASE("config documentation: every key is read by the code", "[config]") {
  if (read_source("CMakeLists.txt").empty())
    return;
  std::string code;
  for (const auto* folder : {"base", "actors", "http", "cli"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator{source_dir / folder})
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp")
        code += read_source(entry.path().lexically_relative(source_dir));
  for (const auto& key : documented_keys()) {
    // The rules that these lift are all there is to them.
    if (key.path.ends_with(".insecure"))
      continue;
    INFO(key.path);
    CHECK(contains(code, key.path.substr(key.path.rfind('.') + 1)));
  }
}

TEST_CASE("config documentation: the config in the package loads", "[config]") {
  const auto text = read_source("configs/single-node.json");
  if (text.empty())
    return;
  const auto config = good(text);
  CHECK(config.actors.port == port_off);
  REQUIRE(config.storage.ranks.size() == 2);
  REQUIRE(config.namespaces.size() == 1);
  const auto page_bytes = config.namespaces[0].geometry.page_bytes();
  CHECK(page_bytes == 64 * kibibyte);
  // The demo's working set, 24 × (20,480 + 10 × 128) tokens on two ranks, is a little more than there is memory for,
  // and stays clear of the low watermark of the slabs.
  constexpr auto blocks = 24.0 * (20'480 + 10 * 128) / 64;
  const auto slots = slab_slots(config.storage.ranks[0].slab_bytes, page_bytes);
  CHECK(slots == 15'420);
  CHECK(static_cast<double>(slots) * (1 - config.storage.high_watermark) > blocks);
  CHECK(static_cast<double>(config.memory.bytes) < 2 * blocks * static_cast<double>(page_bytes + 4 * kibibyte));
  CHECK(load(source_dir / "configs" / "single-node.json") == config);

  // The configs differ as their names say.
  auto memory_only = load(source_dir / "configs" / "memory-only.json").value();
  CHECK(static_cast<double>(memory_only.memory.bytes) > 2 * blocks * static_cast<double>(page_bytes + 4 * kibibyte));
  for (const auto& rank : memory_only.storage.ranks)
    CHECK(rank.slab_bytes == 0);
  memory_only.node_name = config.node_name;
  memory_only.data_dir = config.data_dir;
  memory_only.memory = config.memory;
  memory_only.storage = config.storage;
  CHECK(memory_only == config);
}

} // namespace config_documentation_test
