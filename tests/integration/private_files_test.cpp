#include "tests/catch.hpp"
#include "tests/integration/support.hpp"
#include "tests/no_umask.hpp"

#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace private_files_test {

/// Files that a node writes are for its own user.

using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

namespace {

/// Paths that others than the owner have rights to.
std::vector<std::string> open_to_others(const fs::path& directory) {
  std::vector<std::string> out;
  const auto look = [&](const fs::path& path) {
    struct stat status {};
    REQUIRE(::lstat(path.c_str(), &status) == 0);
    if ((status.st_mode & 0077) != 0)
      out.push_back(path.string());
  };
  look(directory);
  for (const auto& x : fs::recursive_directory_iterator(directory))
    look(x.path());
  return out;
}

} // namespace

TEST_CASE("private files: no file below data_dir is accessible to other users under any umask") {
  const no_umask open_handed;
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["registry"]["durability"] = "strict";
  config["storage"]["ranks"][0]["directory"] = "rank/zero";
  serving_node node(write_config(scratch.path(), config));
  check_clean(run_replay({"--attach", node.address(), "--trace", "loogle:2,1024,3,128"}), {});
  CHECK(open_to_others(scratch / "data").empty());
  CHECK(fs::exists(scratch / "data/index"));
  CHECK(fs::exists(scratch / "data/rank/zero/space.rank-0.slab"));
  CHECK(node.stop() == 0);
}

TEST_CASE("private files: a data_dir that is accessible to others or has another owner prevents a start") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  {
    serving_node node(config);
    CHECK(node.stop() == 0);
  }
  fs::permissions(scratch / "data", static_cast<fs::perms>(0755));
  for (const auto& command : {arguments{"serve", "--config", config.string()}}) {
    const auto x = run(program_with(command));
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.err.find("has mode 0755") != std::string::npos);
    CHECK(x.err.find("chmod 700 " + (scratch / "data").string()) != std::string::npos);
  }
  fs::permissions(scratch / "data", static_cast<fs::perms>(0700));
  if (::geteuid() == 0) {
    REQUIRE(::chown((scratch / "data").c_str(), 65534, 65534) == 0);
    const auto x = run(program_with({"serve", "--config", config.string()}));
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.err.find("belongs to user 65534") != std::string::npos);
    REQUIRE(::chown((scratch / "data").c_str(), 0, 0) == 0);
  }
  serving_node again(config);
  CHECK(again.stop() == 0);
}

} // namespace private_files_test
