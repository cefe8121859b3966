#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

namespace start_fault_test {

/// Errors that prevent a start: each ends with exit code 1, a sentence on stderr and nothing on stdout, and leaves the
/// files on disk unchanged.

using namespace troupe::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* small_trace = "loogle:2,1024,3,128";

/// The error of `serve` when it does not start.
std::string refused(const fs::path& config, arguments more = {}) {
  auto command = program_with({"serve", "--config", config.string()});
  command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  const auto x = run(command);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.out.empty());
  CHECK(x.err.find(" critical node: ") != std::string::npos);
  return x.err;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Makes the slabs of a config, with pages in them.
void fill(const json& config, const fs::path& file) {
  serving_node node(file);
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}),
              {.ranks = static_cast<std::uint32_t>(config.at("storage").at("ranks").size())});
  CHECK(node.stop() == 0);
}

} // namespace

TEST_CASE("start fault: two nodes on one data_dir: the second one is refused and the first one continues") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  serving_node first(config);
  const auto why = refused(config);
  CHECK(why.find((scratch / "data").string()) != std::string::npos);
  CHECK(why.find("in use by another node") != std::string::npos);
  // The same directory by another name.
  fs::create_directory_symlink(scratch / "data", scratch / "alias");
  CHECK(refused(config, {"--set", "data_dir=" + (scratch / "alias").string()}).find("in use") != std::string::npos);
  // The same for the node that a replay runs.
  const auto x = run_replay({"--trace", small_trace, "--config", config.string()});
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.report.is_null());
  CHECK(x.err.find("in use") != std::string::npos);

  check_clean(run_replay({"--attach", first.address(), "--trace", small_trace}), {});
  CHECK(first.stop() == 0);
}

TEST_CASE("start fault: two nodes with separate directories and one slab: the second one is refused") {
  const scratch_directory scratch;
  fs::create_directories(scratch / "one/shared");
  fs::create_directories(scratch / "two");
  for (const auto* x : {"one", "two"})
    fs::permissions(scratch / x, fs::perms::owner_all);
  fs::create_directory_symlink(scratch / "one/shared", scratch / "two/shared");
  auto config = node_config(scratch.path());
  config["storage"]["ranks"][0]["directory"] = "shared";
  const auto file = write_config(scratch.path(), config);
  serving_node first(file, {"--set", "data_dir=" + (scratch / "one").string()});
  const auto why = refused(file, {"--set", "data_dir=" + (scratch / "two").string()});
  CHECK(why.find("space.rank-0.slab") != std::string::npos);
  CHECK(why.find("in use by another node") != std::string::npos);
  check_clean(run_replay({"--attach", first.address(), "--trace", small_trace}), {});
  CHECK(first.stop() == 0);
  // Now the slab is free, and the second node may have it.
  serving_node second(file, {"--set", "data_dir=" + (scratch / "two").string()});
  CHECK(second.stop() == 0);
}

TEST_CASE("start fault: a config of another geometry leaves existing slabs unchanged and reports both geometries") {
  const scratch_directory scratch;
  const auto config = node_config(scratch.path(), {.ranks = 2});
  const auto file = write_config(scratch.path(), config);
  fill(config, file);
  const auto before = read_file(slab_path(config));

  struct change {
    const char* what;
    const char* pointer;
    json value;
  };
  const std::vector<change> changes{
      {"another model", "/namespaces/0/model", "test/other"},
      {"another revision", "/namespaces/0/revision", "2"},
      {"another salt", "/namespaces/0/salt", "pepper"},
      {"larger blocks", "/namespaces/0/kv_cache/block_tokens", 1024},
      {"as large, of another shape", "/namespaces/0/kv_cache/parts", 1},
      {"a larger slab", "/storage/ranks/0/slab_bytes", "64 MiB"},
      {"a smaller slab", "/storage/ranks/0/slab_bytes", "1 MiB"},
      {"another world size", "/namespaces/0/world_size", 1},
  };
  for (const auto& other : changes) {
    INFO(other.what);
    auto changed = config;
    changed[json::json_pointer(other.pointer)] = other.value;
    if (std::string_view(other.pointer).ends_with("parts"))
      changed["namespaces"][0]["kv_cache"]["layers"] = 2 * config["namespaces"][0]["kv_cache"]["layers"].get<int>();
    const auto why = refused(write_config(scratch.path(), changed));
    CHECK(why.find("space.rank-0.slab") != std::string::npos);
    CHECK(why.find(" holds rank 0 of namespace 'space' (") != std::string::npos);
    CHECK(why.find("wanted is rank 0 of namespace 'space' (") != std::string::npos);
    const bool same_namespace = std::string_view(other.pointer).starts_with("/storage");
    CHECK(why.find(same_namespace
                       ? "; they differ in: number of slots;"
                       : "; they differ in: what identifies the namespace beside its name") != std::string::npos);
    CHECK(why.find("data_dir") != std::string::npos);
    CHECK(read_file(slab_path(config)) == before);
  }
}

TEST_CASE("start fault: swapped slabs of two ranks are refused") {
  const scratch_directory scratch;
  const auto config = node_config(scratch.path(), {.ranks = 2});
  const auto file = write_config(scratch.path(), config);
  fill(config, file);
  fs::rename(slab_path(config, 0), scratch / "first");
  fs::rename(slab_path(config, 1), slab_path(config, 0));
  fs::rename(scratch / "first", slab_path(config, 1));
  const auto why = refused(file);
  CHECK(why.find(" holds rank 1 ") != std::string::npos);
  CHECK(why.find("wanted is rank 0 ") != std::string::npos);
  CHECK(why.find("; they differ in: rank;") != std::string::npos);
}

TEST_CASE("start fault: a slab that was truncated, extended or replaced is refused and not changed") {
  const scratch_directory scratch;
  const auto config = node_config(scratch.path());
  const auto file = write_config(scratch.path(), config);
  fill(config, file);
  const auto slab = slab_path(config);
  const auto whole = fs::file_size(slab);
  std::string expected_reason = "was truncated or has grown";
  SECTION("truncated to nothing") {
    fs::resize_file(slab, 0);
  }
  SECTION("truncated by one byte") {
    fs::resize_file(slab, whole - 1);
  }
  SECTION("truncated to half") {
    fs::resize_file(slab, whole / 2);
  }
  SECTION("without its trailer") {
    fs::resize_file(slab, whole - 4096);
  }
  SECTION("extended by one byte") {
    fs::resize_file(slab, whole + 1);
  }
  SECTION("a text") {
    std::ofstream(slab) << "not a slab\n";
  }
  SECTION("zeroes of the right size") {
    fs::resize_file(slab, 0);
    fs::resize_file(slab, whole);
    expected_reason = "has no sound trailer";
  }
  SECTION("with a flipped byte in the trailer") {
    std::fstream out(slab, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(whole - 4096 + 20));
    out.put('\x5a');
    expected_reason = "has no sound trailer";
  }
  SECTION("a directory") {
    fs::remove(slab);
    fs::create_directory(slab);
    expected_reason = slab.string();
  }
  const bool readable = fs::is_regular_file(slab);
  const auto before = readable ? read_file(slab) : std::string();
  const auto why = refused(file);
  CHECK(why.find(slab.string()) != std::string::npos);
  CHECK(why.find(expected_reason) != std::string::npos);
  if (readable)
    CHECK(read_file(slab) == before);

  // The way out that the message names.
  fs::remove_all(slab);
  serving_node node(file);
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("start fault: a data_dir that cannot be created is an error that names it") {
  const scratch_directory scratch;
  std::ofstream(scratch / "data") << "a file is in the way\n";
  const auto file = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto x = run(program_with({"serve", "--config", file}));
  INFO(x.err);
  CHECK(x.code == 2);
  CHECK(x.out.empty());
  CHECK(x.err.find(" critical node: data_dir: " + (scratch / "data").string()) != std::string::npos);
}

TEST_CASE("start fault: files of a crashed start do not prevent the next one") {
  const scratch_directory scratch;
  const auto config = node_config(scratch.path());
  const auto file = write_config(scratch.path(), config);
  fs::create_directories(scratch / "data");
  fs::permissions(scratch / "data", fs::perms::owner_all);
  std::ofstream(slab_path(config).string() + ".new") << "half a slab";
  serving_node node(file);
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
  CHECK_FALSE(fs::exists(slab_path(config).string() + ".new"));
}

} // namespace start_fault_test
