#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/slab_editor.hpp"
#include "tests/patience.hpp"
#include "tests/usrbio/served_directory.hpp"
#include "workload/replay/keys.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace shared_slabs_test {

/// Nodes that read each other's pages from slab files in one directory, in processes of their own.

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";
const arguments one_at_a_time{"--concurrency", "1"};

/// The pages that node `to` has read from files of all others, and those that were rejected there.
struct from_files {
  double pages = 0;
  double stale = 0;
  double damaged = 0;
  double failed = 0;
};

from_files files_of(const serving_node& node) {
  const auto status = nlohmann::json::parse(test::http(node, "GET", "/v1/cluster").body);
  from_files out;
  for (const auto& x : status.at("nodes")) {
    out.pages += x.at("file_pages").get<double>();
    out.stale += x.at("files_stale").get<double>();
    out.damaged += x.at("files_damaged").get<double>();
    out.failed += x.at("files_failed").get<double>();
  }
  return out;
}

/// Until all pages that the node has are in its slabs.
void wait_until_written(serving_node& node, std::uint64_t pages) {
  node.wait_for_statistics([&](const auto& x) {
    return std::all_of(x.ranks.begin(), x.ranks.end(), [&](const auto& r) { return r.written >= pages; });
  });
}

} // namespace

TEST_CASE("shared slabs: pages of another node are read from its slab files without network transfer") {
  test_cluster nodes(2, {.ranks = GENERATE(1U, 2U), .page_bytes = 65536});
  nodes.shared = true;
  nodes.start_all();
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  wait_until_written(nodes.node(0), model.unique_blocks);
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  const auto pages = static_cast<double>(model.unique_blocks) * nodes.shape.ranks;
  const auto read = files_of(nodes.node(1));
  // Two that miss the same may both read it; one of them has made the page then.
  CHECK(read.stale + read.damaged == 0);
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_file_pages_total") == read.pages);
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_file_bytes_total") == read.pages * 65536);
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == pages);
  // A slow disk is no failure.
  if (read.failed == 0) {
    CHECK(read.pages >= pages);
    CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") == 0);
  }
  // They are pages of this node from then on, as all that are fetched.
  nodes.node(0).program().kill();
  const auto again = nodes.replay(1, small_trace);
  check_clean(again, nodes.shape);
  CHECK(again.count("hit_blocks") == model.blocks);
  nodes.all[0].reset();
  nodes.stop_all();
}

TEST_CASE("shared slabs: with three nodes each one reads pages from the files of the others") {
  test_cluster nodes(3, {.page_bytes = 4096});
  nodes.shared = true;
  nodes.start_all();
  const auto half = write_trace(nodes.scratch.path() / "half", {ids(1, 40)});
  const auto whole = write_trace(nodes.scratch.path() / "whole", {ids(1, 80)});
  check_clean(nodes.replay(0, half.c_str()), nodes.shape);
  wait_until_written(nodes.node(0), 40);
  const auto longer = nodes.replay(1, whole.c_str());
  check_clean(longer, nodes.shape);
  CHECK(longer.count("hit_blocks") == 40);
  wait_until_written(nodes.node(1), 80);
  const auto all = nodes.replay(2, whole.c_str());
  check_clean(all, nodes.shape);
  CHECK(all.count("hit_blocks") == 80);
  const auto second = files_of(nodes.node(1));
  const auto third = files_of(nodes.node(2));
  if (second.failed + third.failed == 0) {
    CHECK(second.pages >= 40);
    CHECK(third.pages >= 80);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(sum_of_metric(nodes.node(i), "troupe_remote_pages_total") == 0);
  }
  nodes.stop_all();
}

TEST_CASE("shared slabs: a damaged page in another node's file is fetched over the network or is a miss") {
  test_cluster nodes(2, {.page_bytes = 8192});
  nodes.shared = true;
  nodes.start_all();
  constexpr std::uint64_t count = 40;
  const auto trace = write_trace(nodes.scratch.path() / "trace", {ids(1, count)});
  const auto keys = replay::chain_keys(ids(1, count));
  check_clean(nodes.replay(0, trace), nodes.shape);
  wait_until_written(nodes.node(0), count);
  // The owner has all of it in memory, and knows nothing of this.
  const slab_editor slab(slab_path(nodes.config(0)), 8192);
  const auto first = slab.find(keys[3]);
  const auto second = slab.find(keys[20]);
  const auto third = slab.find(keys[30]);
  REQUIRE((first && second && third));
  slab.flip(*first, 4096 + 77);
  slab.write(*second, slab.read(*third));
  const auto found = nodes.replay(1, trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == count);
  const auto read = files_of(nodes.node(1));
  if (read.failed == 0) {
    CHECK(read.pages >= count - 2);
    CHECK(read.damaged >= 1);
    CHECK(read.stale >= 1);
  }
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") >= 2);
  nodes.stop_all();
}

TEST_CASE("shared slabs: growing slab files of clients' namespaces are read by other nodes") {
  test_cluster nodes(2, {.page_bytes = 65536});
  nodes.shared = true;
  nodes.change = [](std::size_t, nlohmann::json& config) { config["storage"]["disk_bytes"] = "256 MiB"; };
  nodes.start_all();
  auto ns = node_config(nodes.scratch.path(), nodes.shape).at("namespaces").at(0);
  ns["name"] = "made";
  ns["model"] = "test/made";
  const auto file = nodes.scratch.path() / "made.json";
  std::ofstream(file) << ns.dump();
  const arguments made{"--make-namespace", file.string(), "--concurrency", "1"};
  const std::vector<std::size_t> seen{nodes.node(0).log_mark(), nodes.node(1).log_mark()};
  for (std::size_t i = 0; i < 2; ++i)
    check_clean(nodes.replay(i, small_trace, made), nodes.shape);
  for (std::size_t i = 0; i < 2; ++i)
    nodes.wait_for_peers(i, 1, seen[i]);
  check_clean(nodes.replay(0, small_trace, made + arguments{"--salt", "1"}), nodes.shape);
  REQUIRE(eventually([&] { return sum_of_metric(nodes.node(0), "troupe_memory_dirty_bytes") == 0; }));
  // The first ones may have met pages that were not written yet.
  const auto sent = sum_of_metric(nodes.node(0), "troupe_remote_pages_total");
  const auto before = files_of(nodes.node(1)).pages;
  const auto found = nodes.replay(1, small_trace, made + arguments{"--salt", "1"});
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == found.count("blocks"));
  const auto read = files_of(nodes.node(1));
  if (read.failed == 0) {
    CHECK(read.pages - before >= static_cast<double>(expected(small_trace).unique_blocks));
    CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") == sent);
  }
  nodes.stop_all();
}

TEST_CASE("shared slabs: pages of a missing or replaced slab file are fetched over the network") {
  test_cluster nodes(2, {.page_bytes = 4096});
  nodes.shared = true;
  nodes.start_all();
  const bool another = GENERATE(true, false);
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  wait_until_written(nodes.node(0), model.unique_blocks);
  // The other node opened none of it before there was anything to fetch.
  const auto slab = slab_path(nodes.config(0));
  const auto aside = nodes.scratch.path() / "aside";
  std::filesystem::rename(slab, aside);
  if (another)
    std::filesystem::copy_file(slab_path(nodes.config(1)), slab);
  const auto found = nodes.replay(1, small_trace, one_at_a_time);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  const auto said = nodes.node(1).program().wait_for_line(stream::err, "fetched over the network").text;
  CHECK(said.find(another ? "is not the expected file" : "there is no slab") != std::string::npos);
  CHECK(files_of(nodes.node(1)).pages == 0);
  CHECK(files_of(nodes.node(1)).failed > 0);
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") == static_cast<double>(model.unique_blocks));
  std::filesystem::remove(slab);
  std::filesystem::rename(aside, slab);
  nodes.stop_all();
}

TEST_CASE("shared slabs: pages of a node without shared storage are fetched over the network") {
  test_cluster nodes(2, {.page_bytes = 4096});
  nodes.start(0);
  nodes.shared = true;
  nodes.start(1);
  nodes.wait_for_peers(0, 1);
  nodes.wait_for_peers(1, 1);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == expected(small_trace).blocks);
  CHECK(files_of(nodes.node(1)).pages == 0);
  nodes.stop_all();
}

TEST_CASE("shared slabs: a node whose slabs are outside of the shared directory does not start and reports why") {
  test_cluster nodes(1, {.page_bytes = 4096});
  nodes.shared = true;
  auto config = nodes.config(0);
  config["storage"]["shared_directory"] = (nodes.scratch.path() / "elsewhere").string();
  const auto said = run(program_with({"serve", "--config", write_config(nodes.scratch.path(), config).string()}));
  CHECK(said.code != 0);
  CHECK(said.err.find("storage.shared_directory") != std::string::npos);
}

TEST_CASE(
    "shared slabs: on 3FS pages of another node are read through rings, and over the network after the daemon dies") {
  served_directory served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY);
  // The file system that is mounted again is another one.
  served.control().lose_descriptors = 1;
  test_cluster nodes(2, {.page_bytes = 65536});
  nodes.shared = true;
  nodes.change = [&](std::size_t i, nlohmann::json& config) {
    config["data_dir"] = (served.path() / ("data-" + std::to_string(i))).string();
    config["io"] = {{"engine", "usrbio"}};
    config["storage"]["usrbio_library"] = TROUPE_USRBIO_LIBRARY;
    config["storage"]["usrbio_quarantine"] = "500 ms";
    config["storage"].erase("shared_directory");
  };
  nodes.start_all();
  nodes.node(1).program().wait_for_line(stream::err, "reading slab files of other nodes in");
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  wait_until_written(nodes.node(0), model.unique_blocks);
  const auto before = served.control().reads.load();
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == model.blocks);
  CHECK(files_of(nodes.node(1)).pages > 0);
  CHECK(served.control().reads > before);
  // Pages that are not in the owner's slab yet, or cannot be read there, are in its memory.
  check_clean(nodes.replay(0, small_trace, {"--salt", "1", "--concurrency", "1"}), nodes.shape);
  served.kill();
  nodes.node(0).program().wait_for_line(stream::err, "3FS daemon lost");
  const auto without = nodes.replay(1, small_trace, {"--salt", "1"});
  check_report(without, nodes.shape);
  served.start();
  nodes.node(1).program().wait_for_line(stream::err, "USRBIO transfers resumed");
  check_report(nodes.replay(1, small_trace, {"--salt", "1"}), nodes.shape);
  // Each has its own files again, and reads those of the other one.
  const auto salted = [](int n) { return arguments{"--salt", std::to_string(n), "--concurrency", "1"}; };
  const auto file_pages = files_of(nodes.node(1)).pages;
  int salt = 1;
  CHECK(eventually(
      [&] {
        ++salt;
        check_report(nodes.replay(0, small_trace, salted(salt)), nodes.shape);
        nodes.node(0).wait_for_statistics([](const auto& x) { return x.quiesced(); });
        check_report(nodes.replay(1, small_trace, salted(salt)), nodes.shape);
        return files_of(nodes.node(1)).pages > file_pages;
      },
      std::chrono::milliseconds(500)));
  nodes.stop_all();
}

TEST_CASE("shared slabs: an owner killed while its files are read costs only hits") {
  test_cluster nodes(2, {.page_bytes = 65536, .slots = 2048});
  nodes.shared = true;
  // A start after a crash waits for three of these.
  nodes.claim_lease = "4 s";
  nodes.start_all();
  const std::string trace = "loogle:30,2048,3,128";
  check_clean(nodes.replay(0, trace), nodes.shape);
  wait_until_written(nodes.node(0), expected(trace).unique_blocks);
  process engine(replay_command({"--attach", nodes.node(1).address(), "--trace", trace}));
  nodes.node(1).wait_for_statistics([](const auto& x) { return x.keys > 60; });
  nodes.node(0).program().kill();
  check_clean(result_of(engine), nodes.shape);
  CHECK(files_of(nodes.node(1)).pages > 0);
  nodes.node(1).program().wait_for_line(stream::err, "peer disconnected");
  nodes.all[0].reset();
  // Another run of it has another index and the same files: pages of the earlier run there are not requested.
  const auto seen = nodes.node(1).log_mark();
  nodes.start(0);
  nodes.node(1).program().wait_for_line(stream::err, "is available after a restart", seen);
  nodes.wait_for_peers(0, 1);
  const auto back = nodes.replay(0, trace);
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == expected(trace).blocks);
  nodes.stop_all();
}

} // namespace shared_slabs_test
