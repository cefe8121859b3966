#include "http_client/connection.hpp"
#include "tests/catch.hpp"
#include "tests/integration/disks.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <optional>
#include <unistd.h>

namespace made_namespace_test {

/// Namespaces that clients bring into being by attaching to them.

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t block_count = 100;

/// A node that knows of no namespace.
nlohmann::json bare_config(const fs::path& where) {
  auto out = node_config(where, {.page_bytes = 65536});
  out["namespaces"] = nlohmann::json::array();
  out["storage"] = {{"ranks", nlohmann::json::array()}};
  out["http"] = {{"enabled", true}, {"port", 0}};
  return out;
}

/// A file that says what a namespace is.
std::string namespace_file(const fs::path& where, const std::string& name, std::uint32_t ranks = 1,
                           const std::string& model = "test/model", std::uint64_t page_bytes = 65536) {
  auto ns = node_config(where, {.ranks = ranks, .page_bytes = page_bytes}).at("namespaces").at(0);
  ns["name"] = name;
  ns["model"] = model;
  const auto path = where / (name + "-" + std::to_string(page_bytes) + fs::path(model).filename().string() + ".json");
  std::ofstream(path) << ns.dump();
  return path.string();
}

struct player {
  std::string trace;

  replay_outcome operator()(const serving_node& node, const std::string& ns) const {
    return run_replay({"--attach", node.address(), "--trace", trace, "--concurrency", "1", "--make-namespace", ns});
  }
};

/// Slab files of namespaces that clients made.
std::vector<fs::path> made_slabs(const fs::path& where) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& x : fs::directory_iterator(where / "data" / "namespaces", none))
    out.push_back(x.path());
  return out;
}

/// The unused disk space behind the ends of RocksDB's logs.
void give_back_what_logs_have_taken(const fs::path& index) {
  for (const auto& x : fs::directory_iterator(index)) {
    if (x.path().extension() != ".log")
      continue;
    const int file = ::open(x.path().c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    const auto end = static_cast<off_t>((x.file_size() + 4095) / 4096 * 4096);
    CHECK(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, off_t{1} << 30U) == 0);
    ::close(file);
  }
}

} // namespace

TEST_CASE("made namespace: a client creates a namespace on a node that has none and finds its pages in memory") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .page_bytes = 65536};
  serving_node node(write_config(scratch.path(), bare_config(scratch.path())));
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  const auto ns = namespace_file(scratch.path(), "mine", 2);
  const auto first = play(node, ns);
  check_clean(first, shape);
  CHECK(first.count("saved_pages") == 2 * block_count);
  const auto again = play(node, ns);
  check_clean(again, shape);
  CHECK(again.count("hit_blocks") == block_count);
  CHECK(made_slabs(scratch.path()).empty());
  // By its name, too.
  const auto named = run_replay({"--attach", node.address(), "--trace", play.trace, "--namespace", "mine"});
  CHECK(named.code == 0);
  CHECK(named.count("hit_blocks") == block_count);
  // Another one beside it.
  const auto other = play(node, namespace_file(scratch.path(), "other", 1, "other/model"));
  CHECK(other.code == 0);
  CHECK(other.count("saved_pages") == block_count);
  // Another identity under a name that is taken; a page that is too large.
  const auto refused = play(node, namespace_file(scratch.path(), "mine", 2, "third/model"));
  CHECK(refused.code != 0);
  CHECK(refused.err.find("identity_mismatch") != std::string::npos);
  CHECK(refused.err.find("differs in model") != std::string::npos);
  const auto large = play(node, namespace_file(scratch.path(), "large", 1, "large/model", 64U << 20U));
  CHECK(large.code != 0);
  CHECK(large.err.find("memory.bytes") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("made namespace: clients that create a namespace at the same time share it") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  serving_node node(write_config(scratch.path(), bare_config(scratch.path())));
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  const auto ns = namespace_file(scratch.path(), "mine");
  std::vector<std::unique_ptr<process>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(std::make_unique<process>(
        replay_command({"--attach", node.address(), "--trace", trace, "--make-namespace", ns})));
  for (auto& x : all)
    check_report(result_of(*x), shape);
  CHECK(node.stop() == 0);
  const auto log = node.log();
  const auto made = log.find("namespace made: 'mine'");
  CHECK(made != std::string::npos);
  CHECK(made == log.rfind("namespace made: 'mine'"));
}

TEST_CASE("made namespace: a node without client namespaces refuses them with the reason") {
  const scratch_directory scratch;
  auto json = node_config(scratch.path(), {.page_bytes = 65536});
  json["actors"]["make_namespaces"] = false;
  serving_node node(write_config(scratch.path(), json));
  const player play{write_trace(scratch / "trace", {ids(1, 1)})};
  const auto refused = play(node, namespace_file(scratch.path(), "mine", 1, "other/model"));
  CHECK(refused.code != 0);
  CHECK(refused.err.find("actors.make_namespaces") != std::string::npos);
  // The config's own, said as a whole.
  CHECK(play(node, namespace_file(scratch.path(), "space")).code == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("made namespace: pages of a client's namespace survive a clean stop and a kill of the node", "[durable]") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .page_bytes = 65536};
  const auto durability = GENERATE(as<std::string>{}, "strict", "relaxed");
  const bool killed = GENERATE(false, true);
  CAPTURE(durability, killed);
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = durability;
  json["storage"]["disk_bytes"] = "64 MiB";
  const auto config = write_config(scratch.path(), json);
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  const auto ns = namespace_file(scratch.path(), "mine", 2);
  std::optional<serving_node> node(std::in_place, config);
  CHECK(play(*node, ns).count("saved_pages") == 2 * block_count);
  CHECK(made_slabs(scratch.path()).size() == 2);
  if (killed) {
    // Answered commits are in the index by then; pages that are in memory only would be lost.
    CHECK(eventually([&] { return sum_of_metric(*node, "troupe_memory_dirty_bytes") == 0; },
                     std::chrono::milliseconds(10)));
    node->program().kill();
  } else {
    CHECK(node->stop() == 0);
  }
  node.emplace(config);
  const auto after = play(*node, ns);
  check_clean(after, shape);
  CHECK(after.count("hit_blocks") == block_count);
  CHECK(after.count("loaded_pages") == 2 * block_count);
  CHECK(node->stop() == 0);
}

TEST_CASE("made namespace: a slab file grows with its pages within the configured disk space", "[durable]") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = "relaxed";
  json["memory"]["bytes"] = "16 MiB";
  constexpr std::uint64_t limit = 96U << 20U;
  json["storage"]["disk_bytes"] = limit;
  const auto config = write_config(scratch.path(), json);
  std::optional<serving_node> node(std::in_place, config);
  // More than fits.
  const player play{"loogle:20,8192,8,512"};
  const auto ns = namespace_file(scratch.path(), "mine");
  CHECK(sum_of_metric(*node, "troupe_made_slabs_limit_bytes") == limit);
  CHECK(sum_of_metric(*node, "troupe_made_slabs_used_bytes") == 0);
  CHECK(play(*node, namespace_file(scratch.path(), "little", 1, "little/model")).code == 0);
  const auto at_first = sum_of_metric(*node, "troupe_made_slabs_used_bytes");
  CHECK(http(*node, "DELETE", "/v1/namespaces/little").status == 204);
  CHECK(sum_of_metric(*node, "troupe_made_slabs_used_bytes") == 0);
  CHECK(made_slabs(scratch.path()).empty());
  const auto first = play(*node, ns);
  CHECK(first.code == 0);
  CHECK(first.count("verify_failures") == 0);
  const auto used = sum_of_metric(*node, "troupe_made_slabs_used_bytes");
  CHECK(at_first <= limit);
  CHECK(used > (64U << 20U) + (1U << 20U));
  CHECK(used <= limit);
  node->program().kill();
  node.emplace(config);
  CHECK(sum_of_metric(*node, "troupe_made_slabs_used_bytes") == used);
  const auto after = play(*node, ns);
  CHECK(after.count("verify_failures") == 0);
  CHECK(after.count("hit_blocks") > 0);
  CHECK(node->stop() == 0);
}

TEST_CASE("made namespace: on a full disk a slab file stops growing and old pages are evicted") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = "strict";
  json["memory"]["bytes"] = "16 MiB";
  json["storage"]["disk_bytes"] = "1 GiB";
  json["storage"]["spare_bytes"] = "8 MiB";
  constexpr std::uint64_t disk_bytes = 32U << 20U;
  constexpr std::uint64_t spare_bytes = 8U << 20U;
  try {
    fs::create_directory(scratch / "data");
    fs::permissions(scratch / "data", fs::perms::owner_all);
    const small_disk disk(scratch / "data/namespaces", disk_bytes);
    serving_node node(write_config(scratch.path(), json));
    const player play{"loogle:20,8192,8,512"};
    const auto x = play(node, namespace_file(scratch.path(), "mine"));
    CHECK(x.code == 0);
    CHECK(x.count("verify_failures") == 0);
    CHECK(x.count("evicted_keys") > 0);
    const auto used = sum_of_metric(node, "troupe_made_slabs_used_bytes");
    CHECK(used > 0);
    CHECK(used <= disk_bytes - spare_bytes);
    node.wait_for_log("the disk is full");
    // The status shows it, with the way out.
    CHECK(sum_of_metric(node, "troupe_degraded{reason=\"disk_full\"}") == 1);
    const auto url =
        "127.0.0.1:" + std::to_string(nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>());
    const auto notified = run(program_with({"status", url}));
    CHECK(notified.code == 1);
    CHECK(notified.out.find("disk_full: ") != std::string::npos);
    CHECK(notified.out.find("docs/operations.md#disk_full") != std::string::npos);
    // Another one finds nothing, and leaves nothing.
    disk.fill_up();
    const auto refused = run_replay({"--attach", node.address(), "--trace", play.trace, "--attach-limit", "8",
                                     "--make-namespace", namespace_file(scratch.path(), "other", 1, "other/model")});
    CHECK(refused.code != 0);
    CHECK(refused.err.find("no_space") != std::string::npos);
    disk.make_room();
    CHECK(made_slabs(scratch.path()).size() == 1);
    CHECK(sum_of_metric(node, "troupe_made_slabs_used_bytes") == used);
    CHECK(http(node, "DELETE", "/v1/namespaces/mine").status == 204);
    CHECK(sum_of_metric(node, "troupe_degraded{reason=\"disk_full\"}") == 0);
    const auto other = play(node, namespace_file(scratch.path(), "other", 1, "other/model"));
    CHECK(other.code == 0);
    CHECK(node.stop() == 0);
  } catch (const disk_unavailable& x) {
    WARN("skipped: " << x.why);
  }
}

TEST_CASE("made namespace: namespaces are listed and removed on the command line") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), bare_config(scratch.path())));
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  CHECK(play(node, namespace_file(scratch.path(), "mine")).count("saved_pages") == block_count);
  const auto port = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  const auto url = "http://127.0.0.1:" + std::to_string(port);
  const auto troupe = [&](arguments what) {
    what.insert(what.end(), {"--url", url});
    return run(program_with(what));
  };
  const auto listed = troupe({"list-namespaces"});
  CHECK(listed.code == 0);
  CHECK(listed.out.find("NAME") == 0);
  CHECK(listed.out.find("\nmine  test/model  1") != std::string::npos);
  const auto as_json = nlohmann::json::parse(troupe({"list-namespaces", "--json"}).out);
  CHECK(as_json.at("namespaces").at(0).at("keys") == block_count);
  {
    const auto before = node.log_mark();
    process engine(replay_command(
        {"--attach", node.address(), "--trace", endless_trace, "--concurrency", "1", "--namespace", "mine"}));
    node.wait_for_log("to namespace 'mine'", before);
    const auto refused = troupe({"remove-namespace", "mine"});
    CHECK(refused.code == 1);
    CHECK(refused.err.find("--force") != std::string::npos);
    CHECK(refused.err.find("removal(") == std::string::npos);
    CHECK(troupe({"remove-namespace", "mine", "--force"}).code == 0);
    engine.kill();
  }
  const auto gone = troupe({"remove-namespace", "mine"});
  CHECK(gone.code == 1);
  CHECK(gone.err.find("mine") != std::string::npos);
  CHECK(troupe({"list-namespaces"}).out.find("mine") == std::string::npos);
  CHECK(node.stop() == 0);
  CHECK(troupe({"list-namespaces"}).code == 1);
}

TEST_CASE("made namespace: a node whose index and slabs share a disk never fills it and recovers when others do",
          "[durable]") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = GENERATE(as<std::string>{}, "relaxed", "strict");
  json["memory"]["bytes"] = "16 MiB";
  json["storage"]["disk_bytes"] = "1 GiB";
  json["storage"]["spare_bytes"] = "24 MiB";
  try {
    const small_disk disk(scratch / "data", 128U << 20U);
    fs::permissions(scratch / "data", fs::perms::owner_all);
    serving_node node(write_config(scratch.path(), json));
    const auto ns = namespace_file(scratch.path(), "mine");
    const auto is_full = [&node] { return sum_of_metric(node, "troupe_degraded{reason=\"index_full\"}") == 1; };
    // More than the disk takes: old pages make room, and the index has its own.
    const auto much = player{"loogle:20,8192,8,512"}(node, ns);
    CHECK(much.code == 0);
    CHECK(much.count("verify_failures") == 0);
    CHECK(much.count("evicted_keys") > 0);
    CHECK(sum_of_metric(node, "troupe_degraded{reason=\"disk_full\"}") == 1);
    CHECK_FALSE(is_full());

    const player first{write_trace(scratch / "first", {ids(1, block_count)})};
    const player second{write_trace(scratch / "second", {ids(1000, block_count)})};
    CHECK(first(node, ns).count("saved_pages") == block_count);
    disk.fill_up();
    // RocksDB has taken room for its log beforehand, which would last for hours.
    give_back_what_logs_have_taken(scratch / "data/index");
    disk.fill_up();
    // It saves more pages than the index accepts, and waits.
    process engine(replay_command(
        {"--attach", node.address(), "--trace", second.trace, "--concurrency", "1", "--make-namespace", ns}));
    CHECK(eventually(is_full, std::chrono::milliseconds(50)));
    CHECK(http(node, "GET", "/ready").status == 200);
    const auto url =
        "127.0.0.1:" + std::to_string(nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>());
    // The index is tried again each second, and may find room for a moment that its own cleaning has made.
    const auto says_so = [&] {
      const auto notified = run(program_with({"status", url}));
      return notified.code == 1 && notified.out.find("docs/operations.md#index_full") != std::string::npos;
    };
    CHECK(eventually(says_so, std::chrono::milliseconds(50)));
    const auto found = first(node, ns);
    CHECK(found.code == 0);
    CHECK(found.count("hit_blocks") > 0); // except pages evicted for the other namespace
    CHECK(found.count("verify_failures") == 0);

    disk.make_room();
    CHECK(eventually([&] { return !is_full(); }, std::chrono::milliseconds(50)));
    CHECK(engine.wait() == 0);
    const auto again = second(node, ns);
    CHECK(again.code == 0);
    CHECK(again.count("verify_failures") == 0);
    CHECK(second(node, ns).count("hit_blocks") > 0);
    node.program().kill();
    serving_node next(scratch / "node.json");
    const auto after = second(next, ns);
    CHECK(after.code == 0);
    CHECK(after.count("verify_failures") == 0);
    CHECK(after.count("hit_blocks") > 0);
    CHECK(next.stop() == 0);
    CHECK(next.log().find("critical") == std::string::npos);
  } catch (const disk_unavailable& x) {
    WARN("skipped: " << x.why);
  }
}

TEST_CASE("made namespace: a missing slab on a full disk does not prevent a start", "[durable]") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  const auto durability = GENERATE(as<std::string>{}, "relaxed", "strict");
  CAPTURE(durability);
  json["registry"]["durability"] = durability;
  json["storage"]["disk_bytes"] = "1 GiB";
  json["storage"]["spare_bytes"] = 0;
  try {
    fs::create_directory(scratch / "data");
    fs::permissions(scratch / "data", fs::perms::owner_all);
    const small_disk disk(scratch / "data/namespaces", 32U << 20U);
    const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
    const auto ns = namespace_file(scratch.path(), "mine");
    const auto config = write_config(scratch.path(), json);
    {
      serving_node node(config);
      CHECK(play(node, ns).count("saved_pages") == block_count);
      CHECK(node.stop() == 0);
    }
    for (const auto& x : made_slabs(scratch.path()))
      fs::remove(x);
    disk.fill_up();
    {
      serving_node node(config);
      node.wait_for_log("the disk is full");
      const auto known = http(node, "GET", "/v1/namespaces/mine").status;
      CHECK(known == (durability == "strict" ? 404 : 200));
      if (durability == "relaxed") {
        const auto in_memory = play(node, ns);
        CHECK(in_memory.code == 0);
        CHECK(in_memory.count("saved_pages") == block_count);
      }
      disk.make_room();
      CHECK(play(node, ns).code == 0);
      CHECK(node.stop() == 0);
    }
  } catch (const disk_unavailable& x) {
    WARN("skipped: " << x.why);
  }
}

#ifdef TROUPE_HUNG_DISK
TEST_CASE("made namespace: a node with a hung disk stops on request") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  json["storage"]["disk_bytes"] = "64 MiB";
  json["drain_timeout"] = "1 s";
  auto command = program_with({"serve", "--config", write_config(scratch.path(), json).string()});
  command.arguments.insert(command.arguments.begin(), {"/usr/bin/env", "LD_PRELOAD=" TROUPE_HUNG_DISK});
  process node(command);
  node.wait_for_line(process::stream::out, "ready");
  process engine(replay_command({"--attach", (scratch / "data").string(), "--trace", "loogle:1", "--make-namespace",
                                 namespace_file(scratch.path(), "mine")}));
  node.wait_for_line(process::stream::err, "the disk hangs");
  node.send(SIGTERM);
  CHECK(node.wait() == 1);
  engine.kill();
}
#endif

TEST_CASE("made namespace: a namespace uses registry memory for its current slots only") {
  const scratch_directory scratch;
  auto json = bare_config(scratch.path());
  json["registry"]["memory_bytes"] = "32 MiB";
  json["storage"]["disk_bytes"] = "256 GiB";
  serving_node node(write_config(scratch.path(), json));
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  for (const auto* name : {"one", "two"}) {
    const auto x = play(node, namespace_file(scratch.path(), name, 1, std::string("model/") + name));
    CHECK(x.code == 0);
    CHECK(x.count("saved_pages") == block_count);
  }
  CHECK(http(node, "DELETE", "/v1/namespaces/one").status == 204);
  CHECK(node.stop() == 0);
}

TEST_CASE("made namespace: a client's namespace is removed with its files and stays removed") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .page_bytes = 65536};
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = "strict";
  json["storage"]["disk_bytes"] = "64 MiB";
  const auto config = write_config(scratch.path(), json);
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  const auto ns = namespace_file(scratch.path(), "mine", 2);
  std::optional<serving_node> node(std::in_place, config);
  SECTION("when no client is attached") {
    CHECK(play(*node, ns).count("saved_pages") == 2 * block_count);
    CHECK(http(*node, "DELETE", "/v1/namespaces/mine").status == 204);
    CHECK(http(*node, "DELETE", "/v1/namespaces/mine").status == 404);
  }
  SECTION("by force, while clients are attached") {
    process engine(replay_command(
        {"--attach", node->address(), "--trace", endless_trace, "--concurrency", "1", "--make-namespace", ns}));
    node->program().wait_for_line(process::stream::err, "namespace made: 'mine'");
    CHECK(http(*node, "DELETE", "/v1/namespaces/mine").status == 409);
    CHECK(http(*node, "DELETE", "/v1/namespaces/mine?force=true").status == 204);
    // It makes the namespace again.
    unsigned status = 404;
    CHECK(eventually([&] { return (status = http(*node, "GET", "/v1/namespaces/mine").status) != 404; },
                     std::chrono::milliseconds(10)));
    CHECK(status == 200);
    engine.kill();
    CHECK(http(*node, "DELETE", "/v1/namespaces/mine?force=true").status == 204);
  }
  CHECK(made_slabs(scratch.path()).empty());
  CHECK(sum_of_metric(*node, "troupe_made_slabs_used_bytes") == 0);
  node->program().kill();
  node.emplace(config);
  CHECK(made_slabs(scratch.path()).empty());
  const auto by_name =
      run_replay({"--attach", node->address(), "--trace", play.trace, "--namespace", "mine", "--attach-limit", "5"});
  CHECK(by_name.err.find("unknown_namespace") != std::string::npos);
  const auto again = play(*node, ns);
  check_clean(again, shape);
  CHECK(again.count("saved_pages") == 2 * block_count);
  CHECK(node->stop() == 0);
}

TEST_CASE("made namespace: slab files of a namespace that cannot be restored are removed at the next start") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  auto json = bare_config(scratch.path());
  json["storage"]["disk_bytes"] = "64 MiB";
  const auto what = GENERATE(as<std::string>{}, "no index", "no disk space", "the config has it");
  CAPTURE(what);
  if (what != "no index")
    json["registry"]["durability"] = "relaxed";
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  const auto ns = namespace_file(scratch.path(), "space");
  {
    serving_node node(write_config(scratch.path(), json));
    CHECK(play(node, ns).count("saved_pages") == block_count);
    CHECK(made_slabs(scratch.path()).size() == 1);
    CHECK(node.stop() == 0);
  }
  if (what == "no disk space")
    json["storage"]["disk_bytes"] = 0;
  if (what == "the config has it") {
    const auto own = node_config(scratch.path(), shape);
    json["storage"]["ranks"] = own["storage"]["ranks"];
    json["namespaces"] = own["namespaces"];
  }
  serving_node node(write_config(scratch.path(), json));
  CHECK(made_slabs(scratch.path()).empty());
  const auto after = play(node, ns);
  check_clean(after, shape);
  CHECK(after.count("saved_pages") == block_count);
  CHECK(node.stop() == 0);
}

TEST_CASE("made namespace: a namespace that was in memory only takes no disk space from others at the next start",
          "[durable]") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  auto json = bare_config(scratch.path());
  json["registry"]["durability"] = "relaxed";
  json["storage"]["disk_bytes"] = "16 MiB";
  const auto config = write_config(scratch.path(), json);
  const player play{write_trace(scratch / "trace", {ids(1, block_count)})};
  const auto first = namespace_file(scratch.path(), "first", 1, "model/first");
  {
    serving_node node(config);
    CHECK(play(node, first).count("saved_pages") == block_count);
    // All disk space is taken; some of these are restored before the one that has it.
    for (const std::string name : {"a", "b", "c", "d", "e", "f", "g", "h"})
      CHECK(play(node, namespace_file(scratch.path(), name, 1, "model/" + name)).code == 0);
    CHECK(made_slabs(scratch.path()).size() == 1);
    CHECK(node.stop() == 0);
  }
  serving_node node(config);
  const auto after = play(node, first);
  check_clean(after, shape);
  CHECK(after.count("hit_blocks") == block_count);
  CHECK(node.stop() == 0);
}

} // namespace made_namespace_test
