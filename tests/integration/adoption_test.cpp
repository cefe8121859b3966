#include "base/digest.hpp"
#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/live_copy.hpp"
#include "tests/patience.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>

namespace adoption_test {

/// Nodes that die or freeze, and others that read their data; in processes of their own, with the data of all of them
/// in one directory.

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";
const arguments one_at_a_time{"--concurrency", "1"};

/// Short enough to be waited for, and long enough for a machine that has others to serve.
constexpr const char* lease = "5 s";

/// A real trace beside the repository; too large to come with it.
fs::path real_trace() {
  return fs::path(TROUPE_SOURCE_DIR).parent_path() / "shared/traces/conversation_trace.jsonl";
}

/// Until all pages that the node has are in its slabs.
void wait_until_written(serving_node& node, std::uint64_t pages) {
  node.wait_for_statistics([&](const auto& x) {
    return x.quiesced() &&
           std::all_of(x.ranks.begin(), x.ranks.end(), [&](const auto& r) { return r.written >= pages; });
  });
}

void wait_until_adopted(serving_node& node, std::size_t which, std::size_t from = 0) {
  node.program().wait_for_line(stream::err, std::to_string(which) + "/data (its node is dead)", from);
}

/// All data in one directory, with claims that are soon waited out.
void share(test_cluster& nodes) {
  nodes.shared = true;
  nodes.claim_lease = lease;
}

/// Until the first node has all of the small trace in its slabs.
auto fill_first(test_cluster& nodes) {
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  wait_until_written(nodes.node(0), model.unique_blocks);
  return model;
}

/// Until all others have adopted what the first node has left.
void kill_first(test_cluster& nodes) {
  nodes.node(0).program().kill();
  nodes.all[0].reset();
  for (std::size_t i = 1; i < nodes.all.size(); ++i)
    wait_until_adopted(nodes.node(i), 0);
}

outcome check_slabs(const fs::path& config, const arguments& more = {}) {
  return run(program_with(arguments{"check-slabs", "--config", config.string(), "--json", "--quiet"} + more));
}

/// The state that a node must not change after losing its directory: everything there but claims and its lock.
std::map<std::string, std::string> data_of(const test_cluster& nodes, std::size_t i) {
  std::map<std::string, std::string> out;
  const auto data = nodes.scratch.path() / std::to_string(i) / "data";
  for (const auto& x : fs::recursive_directory_iterator(data)) {
    const auto name = x.path().lexically_relative(data).string();
    if (!x.is_regular_file() || name.starts_with("claims"))
      continue;
    std::ifstream in(x.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>{in}, {}};
    out[name] = to_string(hash_key(std::as_bytes(std::span(bytes))));
  }
  return out;
}

} // namespace

TEST_CASE("adoption: pages of a killed node are served byte for byte by the survivors until it returns") {
  test_cluster nodes(3, {.ranks = GENERATE(1U, 2U), .page_bytes = 16384, .strict = true});
  share(nodes);
  nodes.start_all();
  const auto model = expected(small_trace);
  const auto pages = static_cast<double>(model.unique_blocks) * nodes.shape.ranks;
  const arguments second{"--salt", "2"};
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  check_clean(nodes.replay(0, small_trace, second), nodes.shape);
  wait_until_written(nodes.node(0), 2 * model.unique_blocks);
  kill_first(nodes);
  // One has the claim, and both read.
  CHECK(eventually([&] {
    return sum_of_metric(nodes.node(1), "troupe_adopted_claims") +
               sum_of_metric(nodes.node(2), "troupe_adopted_claims") ==
           1;
  }));
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  const auto other = nodes.replay(2, small_trace, second);
  check_clean(other, nodes.shape);
  CHECK(other.count("hit_blocks") == model.blocks);
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(sum_of_metric(nodes.node(i), "troupe_adopted_nodes") == 1);
    CHECK(sum_of_metric(nodes.node(i), "troupe_adopted_keys") == 2 * static_cast<double>(model.unique_blocks));
    CHECK(sum_of_metric(nodes.node(i), "troupe_adopted_pages_total") == pages);
    CHECK(sum_of_metric(nodes.node(i), "troupe_adopted_failed_pages_total") == 0);
    const auto status = nodes.status(i);
    INFO(status);
    CHECK(status.find("ADOPTED") != std::string::npos);
    CHECK(status.find("0/data") != std::string::npos);
  }
  // A reader disturbs no other node.
  const auto checked = check_slabs(nodes.scratch.path() / "0/node.json");
  INFO(checked.out << checked.err);
  CHECK(checked.code == 0);
  // Its owner takes it back, and finds all that it had.
  const auto seen = nodes.node(1).log_mark();
  nodes.start(0);
  nodes.node(1).program().wait_for_line(stream::err, "0/data (its node is back)", seen);
  CHECK(eventually([&] { return sum_of_metric(nodes.node(1), "troupe_adopted_nodes") == 0; }));
  const auto back = nodes.replay(0, small_trace);
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == model.blocks);
  check_clean(nodes.replay(0, small_trace, {"--salt", "3"}), nodes.shape);
  nodes.stop_all();
}

TEST_CASE("adoption: a node that was frozen during its takeover writes nothing on resume, reports it and rejoins") {
  test_cluster nodes(2, {.page_bytes = 16384, .strict = true});
  share(nodes);
  // Also what it writes now and then and when it ends.
  nodes.change = [](std::size_t, nlohmann::json& config) { config["registry"]["record_keys"] = 10000; };
  nodes.start_all();
  const auto model = fill_first(nodes);
  nodes.node(0).program().send(SIGSTOP);
  wait_until_adopted(nodes.node(1), 0);
  const auto before = data_of(nodes, 0);
  REQUIRE(before.size() > 2);
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);

  nodes.node(0).program().send(SIGCONT);
  // Right away, before it has looked at anything: it goes by the time.
  const auto refused = nodes.replay(0, small_trace, {"--salt", "5"});
  check_report(refused, nodes.shape);
  CHECK(refused.count("saved_pages") == 0);
  nodes.node(0).program().wait_for_line(stream::err, "is lost to node 'node-1'");
  const auto ready = test::http(nodes.node(0), "GET", "/ready");
  CHECK(ready.body.find("start the node again, and it gets its directory back") != std::string::npos);
  CHECK(sum_of_metric(nodes.node(0), "troupe_degraded{reason=\"claim_lost\"}") == 1);
  // It still loads its own pages.
  const auto loaded = nodes.replay(0, small_trace);
  check_report(loaded, nodes.shape);
  CHECK(loaded.count("hit_blocks") == model.blocks);
  CHECK(loaded.count("load_failures") == 0);
  CHECK(data_of(nodes, 0) == before);
  nodes.node(0).program().send(SIGTERM);
  nodes.node(0).program().wait();
  CHECK(data_of(nodes, 0) == before);
  nodes.all[0].reset();

  const auto seen = nodes.node(1).log_mark();
  nodes.start(0);
  nodes.node(1).program().wait_for_line(stream::err, "0/data (its node is back)", seen);
  const auto back = nodes.replay(0, small_trace, one_at_a_time);
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == model.blocks);
  nodes.stop_all();
}

TEST_CASE("adoption: a dead adopter is replaced by another one") {
  test_cluster nodes(3, {.page_bytes = 4096, .strict = true});
  share(nodes);
  nodes.start_all();
  const auto model = fill_first(nodes);
  kill_first(nodes);
  std::size_t adopter = 0;
  REQUIRE(eventually([&] {
    for (std::size_t i = 1; i < 3; ++i)
      if (sum_of_metric(nodes.node(i), "troupe_adopted_claims") == 1)
        adopter = i;
    return adopter != 0;
  }));
  const auto last = 3 - adopter;
  nodes.node(adopter).program().kill();
  nodes.all[adopter].reset();
  // Both that are dead are its own now.
  CHECK(eventually([&] { return sum_of_metric(nodes.node(last), "troupe_adopted_claims") == 2; },
                   std::chrono::milliseconds(100)));
  const auto found = nodes.replay(last, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  nodes.all[0].reset();
  nodes.stop_all();
}

TEST_CASE("adoption: a second node and check-slabs are refused on a data directory in use") {
  test_cluster nodes(2, {.page_bytes = 4096, .strict = true});
  share(nodes);
  nodes.start(0);
  // As on another host, where the lock of the directory is not seen: the claims are, and the slab file.
  const auto data = nodes.scratch.path() / "0/data";
  const auto seen = nodes.scratch.path() / "seen";
  fs::create_directory(seen, data);
  fs::create_directory_symlink(data / "claims", seen / "claims");
  const auto slab = slab_path(nodes.config(0));
  fs::create_hard_link(slab, seen / slab.filename());
  auto config = nodes.config(1);
  config["data_dir"] = seen.string();
  const auto file = nodes.scratch.path() / "second.json";
  std::ofstream(file) << config.dump();
  const auto second = run(program_with({"serve", "--config", file.string()}));
  CHECK(second.code != 0);
  CHECK(second.err.find("in use by node 'node-0'") != std::string::npos);
  const auto checked = check_slabs(file);
  CHECK(checked.code == 2);
  CHECK(checked.err.find("node 'node-0' keeps its claim") != std::string::npos);
  CHECK(checked.err.find("--ignore-claims") != std::string::npos);
  // Locks count all the same.
  const auto locked = check_slabs(file, {"--ignore-claims"});
  CHECK(locked.code == 2);
  CHECK(locked.err.find("is in use by a node") != std::string::npos);
  // A released claim does not block other nodes.
  CHECK(nodes.node(0).stop() == 0);
  CHECK(check_slabs(file).code == 0);
}

TEST_CASE("adoption: check-slabs checks a directory that a node on another host uses when it is forced to") {
  test_cluster nodes(1, {.page_bytes = 4096, .strict = true});
  share(nodes);
  nodes.start(0);
  const auto model = fill_first(nodes);
  // The same files without locks, and the claims that the node keeps renewing.
  const auto data = nodes.scratch.path() / "0/data";
  const auto seen = nodes.scratch.path() / "seen";
  fs::create_directory(seen, data);
  fs::create_directory_symlink(data / "claims", seen / "claims");
  copy_live(data / "index", seen / "index");
  fs::copy_file(data / "epoch", seen / "epoch");
  fs::copy_file(slab_path(nodes.config(0)), seen / slab_path(nodes.config(0)).filename());
  auto config = nodes.config(0);
  config["data_dir"] = seen.string();
  const auto file = nodes.scratch.path() / "seen.json";
  std::ofstream(file) << config.dump();
  const auto refused = check_slabs(file);
  CHECK(refused.code == 2);
  CHECK(refused.err.find("node 'node-0' keeps its claim") != std::string::npos);
  const auto looked = check_slabs(file, {"--ignore-claims"});
  INFO(looked.out << looked.err);
  CHECK(looked.code == 0);
  const auto report = nlohmann::json::parse(looked.out);
  CHECK(report.at("index") == "believed");
  CHECK(report.at("ranks").at(0).at("sound") == model.unique_blocks);
  nodes.stop_all();
}

TEST_CASE("adoption: a node without shared storage writes no claims") {
  test_cluster nodes(1, {.page_bytes = 4096, .strict = true});
  nodes.start(0);
  CHECK_FALSE(fs::exists(nodes.scratch.path() / "0/data/claims"));
  nodes.stop_all();
}

TEST_CASE("adoption: an unreadable slab of a dead node is a miss and is retried at intervals") {
  test_cluster nodes(2, {.page_bytes = 4096, .strict = true});
  share(nodes);
  nodes.start_all();
  fill_first(nodes);
  kill_first(nodes);
  fs::remove(slab_path(nodes.config(0)));
  const auto begun = std::chrono::steady_clock::now();
  check_report(nodes.replay(1, small_trace, one_at_a_time), nodes.shape);
  const auto failed = sum_of_metric(nodes.node(1), "troupe_adopted_failed_pages_total");
  const auto passed = std::chrono::steady_clock::now() - begun;
  // A request has two orders of 32 pages at most; after them nothing is asked of it for ten seconds.
  const auto requests = 1 + passed / std::chrono::seconds(10);
  CHECK(failed > 0);
  CHECK(failed <= 64 * static_cast<double>(requests));
  CHECK(sum_of_metric(nodes.node(1), "troupe_adopted_pages_total") == 0);
  nodes.node(1).program().wait_for_line(stream::err, "cannot read pages of a dead node");
  nodes.stop_all();
}

#ifdef TROUPE_HUNG_DISK
TEST_CASE("adoption: a node shuts down in good order while an adopted directory hangs") {
  test_cluster nodes(2, {.page_bytes = 4096, .strict = true});
  share(nodes);
  const auto theirs = nodes.scratch.path() / "1/data";
  const auto hangs = nodes.scratch.path() / "hangs";
  nodes.start(1);
  launch how;
  how.arguments = {"/usr/bin/env", "LD_PRELOAD=" TROUPE_HUNG_DISK, "TROUPE_HANGS_BELOW=" + theirs.string(),
                   "TROUPE_HANGS_WHEN=" + hangs.string()};
  nodes.all[0].emplace(write_config(nodes.scratch.path() / "0", nodes.config(0)), arguments{}, how);
  nodes.wait_for_peers(0, 1);
  const auto model = fill_first(nodes);
  std::ofstream(hangs).put('x');
  nodes.node(0).program().wait_for_line(stream::err, "the disk hangs");
  CHECK(nodes.node(0).stop() == 1);
  CHECK(nodes.node(0).log().find("this node's own files are closed anyway") != std::string::npos);
  nodes.all[0].reset();
  nodes.start(0);
  const auto back = nodes.replay(0, small_trace);
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == model.blocks);
  nodes.stop_all();
}
#endif

TEST_CASE("adoption: on 3FS an adopted directory is read through 3FS rings and reclaimed by its owner") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  test_cluster nodes(2, {.page_bytes = 16384, .strict = true});
  share(nodes);
  nodes.change = [&](std::size_t i, nlohmann::json& config) {
    config["data_dir"] = (served.path() / ("node-" + std::to_string(i)) / "data").string();
    config["io"] = {{"engine", "usrbio"}};
    config["storage"]["usrbio_library"] = TROUPE_USRBIO_LIBRARY;
    config["storage"]["shared_directory"] = served.path().string();
  };
  nodes.start_all();
  const auto model = fill_first(nodes);
  kill_first(nodes);
  const auto before = served.control().reads.load();
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  INFO(nodes.node(1).log_so_far());
  CHECK(sum_of_metric(nodes.node(1), "troupe_adopted_failed_pages_total") == 0);
  CHECK(found.count("hit_blocks") == model.blocks);
  CHECK(served.control().reads - before >= model.unique_blocks);
  CHECK(sum_of_metric(nodes.node(1), "troupe_adopted_pages_total") == static_cast<double>(model.unique_blocks));
  nodes.start(0);
  const auto back = nodes.replay(0, small_trace);
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == model.blocks);
  nodes.stop_all();
}

TEST_CASE("adoption: a node whose index is outside of the shared directory writes no claims and warns") {
  test_cluster nodes(1, {.page_bytes = 4096, .strict = true});
  nodes.shared = true;
  // A local disk, with a link to where the slab files lie.
  const auto slabs = nodes.scratch.path() / "shared/0";
  const auto data = nodes.scratch.path() / "0/data";
  fs::create_directories(slabs);
  fs::create_directories(data);
  fs::permissions(data, fs::perms::owner_all);
  fs::create_directory_symlink(slabs, data / "3fs");
  nodes.change = [&](std::size_t, nlohmann::json& config) {
    config["storage"]["shared_directory"] = slabs.parent_path().string();
    for (auto& x : config["storage"]["ranks"])
      x["directory"] = "3fs";
  };
  nodes.start(0);
  nodes.node(0).program().wait_for_line(stream::err, "which is not in ");
  CHECK_FALSE(fs::exists(data / "claims"));
  nodes.stop_all();
}

TEST_CASE("adoption: a real trace over two nodes with a kill and a takeover loads no wrong byte") {
  if (!fs::exists(real_trace())) {
    WARN("skipped: there is no " << real_trace());
    return;
  }
  const auto trace = real_trace().string();
  test_cluster nodes(2, {.page_bytes = 4096, .slots = 32768, .strict = true});
  share(nodes);
  nodes.start_all();
  const arguments some{"--limit", "300"};
  const arguments first_some{"--limit", "300", "--salt", "4"};
  const auto model = expected(trace, {}, 300);
  // Pages that only the first node has.
  check_clean(nodes.replay(0, trace, first_some), nodes.shape);
  wait_until_written(nodes.node(0), model.unique_blocks);
  process doomed(nodes.engine(0, trace, some));
  process survivor(nodes.engine(1, trace, some));
  nodes.node(0).wait_for_statistics([&](const auto& x) { return x.keys > model.unique_blocks * 5 / 4; });
  nodes.node(0).program().kill();
  nodes.all[0].reset();
  check_clean(result_of(survivor), nodes.shape);
  doomed.kill();
  wait_until_adopted(nodes.node(1), 0);
  const auto found = nodes.replay(1, trace, first_some);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  CHECK(sum_of_metric(nodes.node(1), "troupe_adopted_pages_total") > 0);
  nodes.start(0);
  const auto back = nodes.replay(0, trace, some);
  check_clean(back, nodes.shape);
  nodes.stop_all();
}

} // namespace adoption_test
