#include "tests/catch.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <initializer_list>

namespace usrbio_test {

/// A node whose slabs lie on 3FS, as a stand-in plays it.

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

namespace {

/// A node's config for slabs in the served directory.
nlohmann::json config_on(const served_directory& served, const fs::path& directory, const node_shape& shape,
                         const char* engine = "usrbio") {
  auto out = node_config(directory, shape);
  out["data_dir"] = (served.path() / "data").string();
  out["io"] = {{"engine", engine}};
  out["storage"]["usrbio_library"] = TROUPE_USRBIO_LIBRARY;
  out["storage"]["usrbio_quarantine"] = "500 ms";
  return out;
}

void check_says(const std::string& text, std::initializer_list<std::string> parts) {
  INFO(text);
  for (const auto& part : parts) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

} // namespace

TEST_CASE("usrbio: a node on 3FS keeps its pages while the 3FS daemon dies and returns") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  const scratch_directory scratch;
  // At most 60 of the pages of a request are in memory: the others have to be read.
  const node_shape shape{.page_bytes = 65536, .slots = 512, .memory_bytes = little_memory};
  auto config = config_on(served, scratch.path(), shape);
  config["memory"] = {{"bytes", "4 MiB"}};
  serving_node node(write_config(scratch.path(), config));
  node.wait_for_log("USRBIO of 3FS on " + served.path().string());
  const auto trace = write_trace(scratch / "trace", {ids(1, 200)});
  const auto play = [&](const char* salt = "0") {
    return run_replay({"--attach", node.address(), "--trace", trace, "--concurrency", "1", "--salt", salt});
  };
  check_clean(play(), shape);
  const auto again = play();
  check_clean(again, shape);
  CHECK(again.count("hit_blocks") == 200);
  CHECK(served.control().reads > 0);
  CHECK(served.control().iovs_wrapped > 0); // the arena itself, and no copy of it
  CHECK(served.control().reads_of_holes_allowed == 0);

  served.kill();
  node.program().wait_for_line(stream::err, "3FS daemon lost");
  const auto without = play();
  check_report(without, shape); // no wrong byte
  CHECK(without.count("load_failures") > 0);

  served.start();
  node.program().wait_for_line(stream::err, "USRBIO transfers resumed");
  // Missed pages are computed and saved again, and found pages are right.
  const auto back = play();
  check_report(back, shape);
  check_clean(play("1"), shape);
  const auto found = play("1");
  check_clean(found, shape);
  CHECK(found.count("hit_blocks") == 200);
  CHECK(node.stop() == 0);
  CHECK(eventually([&] { return served.control().rings_live == 0; }));
}

TEST_CASE("usrbio: a 3FS daemon that dies during a replay costs only pages") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  served.control().reorder = 1;
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 16384, .slots = 2048, .memory_bytes = little_memory};
  auto config = config_on(served, scratch.path(), shape);
  config["memory"] = {{"bytes", "4 MiB"}};
  serving_node node(write_config(scratch.path(), config));
  process client(
      replay_command({"--attach", node.address(), "--trace", "loogle:40,4096,10,128", "--concurrency", "4"}));
  for (int round = 1; round <= 3; ++round) {
    REQUIRE(
        eventually([&, before = served.control().writes.load()] { return served.control().writes > before + 200; }));
    served.kill();
    served.start();
  }
  const auto outcome = result_of(client);
  check_report(outcome, shape);
  CHECK(outcome.count("requests") == 400);
  check_report(run_replay({"--attach", node.address(), "--trace", "loogle:40,4096,2,128", "--concurrency", "4"}),
               shape);
  CHECK(node.stop() == 0);
}

TEST_CASE("usrbio: a node configured for 3FS does not start on another file system") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {});
  config["io"] = {{"engine", "usrbio"}};
  config["storage"]["usrbio_library"] = TROUPE_USRBIO_LIBRARY;
  const auto refused = run(program_with({"serve", "--config", write_config(scratch.path(), config).string()}));
  CHECK(refused.code == 1);
  check_says(refused.err, {"is not on 3FS", "io.engine"});
  config["storage"]["usrbio_library"] = "libnothing-of-3fs.so";
  const auto without = run(program_with({"serve", "--config", write_config(scratch.path(), config).string()}));
  CHECK(without.code == 1);
  check_says(without.err, {"3FS's client library cannot be loaded", "storage.usrbio_library"});
  config["memory"] = {{"huge_pages", "2 MiB"}};
  const auto unfit = run(program_with({"check-config", write_config(scratch.path(), config).string()}));
  CHECK(unfit.code != 0);
  check_says(unfit.out + unfit.err, {"memory.huge_pages", "/dev/shm"});
}

} // namespace usrbio_test
