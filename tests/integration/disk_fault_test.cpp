#include "tests/catch.hpp"
#include "tests/integration/disks.hpp"
#include "tests/integration/slab_editor.hpp"
#include "tests/integration/support.hpp"
#include "workload/replay/keys.hpp"

#include <sys/resource.h>

namespace disk_fault_test {

/// Disks that are full, broken or taken away. Loads and saves that meet them are counted; nothing else happens.

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t block_count = 200;

void make_private(const fs::path& folder) {
  fs::create_directories(folder);
  fs::permissions(folder, fs::perms::owner_all);
}

/// A node and a trace of one request with `block_count` blocks.
class setting {
public:
  /// `slabs`: where they lie, a folder of the data directory; not set: in that itself, as the index does.
  explicit setting(const node_shape& shape, const fs::path& slabs = {})
      : shape_(shape), config_(node_config(scratch_.path(), shape)),
        trace_(write_trace(scratch_ / "trace", {ids(1, block_count)})), slabs_(slabs) {
    if (!slabs.empty()) {
      config_["data_dir"] = slabs.parent_path().string();
      for (auto& rank : config_["storage"]["ranks"])
        rank["directory"] = slabs.filename().string();
    }
    config_["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
    node_.emplace(write_config(scratch_.path(), config_));
  }

  /// The output of `troupe status` for the node.
  outcome status() const {
    const auto port = nlohmann::json::parse(node_->ready_line()).at("http").at("port").get<int>();
    return run(program_with({"status", "127.0.0.1:" + std::to_string(port)}));
  }

  replay_outcome play(const char* salt = "0", const arguments& more = {}) {
    arguments how{"--attach", node_->address(), "--trace", trace_, "--concurrency", "1", "--salt", salt};
    how.insert(how.end(), more.begin(), more.end());
    return run_replay(how);
  }

  void play_clean(const char* salt = "0") {
    const auto x = play(salt);
    check_clean(x, shape_);
  }

  void restart() { node_.emplace(scratch_ / "node.json"); }

  /// Every slot is accounted for, and the node ends as it should.
  void check_end() {
    const auto rest = node_->wait_until_quiesced();
    for (const auto& x : rest.ranks)
      CHECK(x.free + x.live == x.total);
    CHECK(node_->stop() == 0);
  }

  serving_node& node() { return *node_; }
  fs::path slab() const {
    const auto path = slab_path(config_);
    return slabs_.empty() ? path : slabs_ / path.filename();
  }

private:
  scratch_directory scratch_;
  node_shape shape_;
  nlohmann::json config_;
  std::string trace_;
  fs::path slabs_;
  std::optional<serving_node> node_;
};

} // namespace

TEST_CASE("disk fault: a slab deleted while in use serves its pages and accepts no new ones") {
  const node_shape shape{.ranks = 2};
  setting s(shape);
  s.play_clean();
  fs::remove(s.slab());
  const auto said = s.node().program().wait_for_line(stream::err, "was deleted while in use");
  CHECK(said.text.find(" error io: ") != std::string::npos);
  CHECK(said.text.find(s.slab().string()) != std::string::npos);

  s.play_clean(); // the pages are still there, as long as the node is
  const auto refused = s.play("1");
  check_report(refused, shape);
  CHECK(refused.code == 1);
  CHECK(refused.err.find("a slab of the node is damaged") != std::string::npos);
  // The other rank does not write pages of keys that cannot become complete either.
  CHECK(refused.count("saved_pages") == 0);
  CHECK(refused.count("save_failures") == 2 * block_count);
  // An engine computes pages that it cannot save, and reports them.
  const auto computed = s.play("2", {"--engine"});
  INFO(computed.err);
  CHECK(computed.code == 1);
  CHECK(computed.err.find("a slab of the node is damaged") != std::string::npos);
  CHECK(computed.count("wrong_tokens") == 0);
  CHECK(computed.count("saved_bytes") == 0);
  s.play_clean();
  s.check_end();

  s.restart(); // as the message says
  s.play_clean("1");
  s.check_end();
}

TEST_CASE("disk fault: a slab truncated while in use loses the cut pages and accepts no new ones") {
  // At most 60 of the pages of a request are in memory.
  const node_shape shape{.page_bytes = 65536, .slots = 256, .memory_bytes = little_memory};
  setting s(shape);
  s.play_clean();
  // Slots are used from the first on, so that the pages of half of the blocks are left.
  const auto left = GENERATE(std::uint64_t{0}, block_count / 2);
  fs::resize_file(s.slab(), left * slab_editor(s.slab(), shape.page_bytes).slot_bytes());
  const auto said = s.node().program().wait_for_line(stream::err, "was truncated while in use");
  CHECK(said.text.find(" error io: ") != std::string::npos);

  const auto found = s.play();
  check_report(found, shape);
  CHECK(found.code == 1);
  CHECK(found.count("hit_blocks") == block_count);
  CHECK(found.count("loaded_pages") >= left);
  CHECK(found.count("loaded_pages") <= left + 60);
  CHECK(found.count("saved_pages") == 0);
  const auto lost = found.count("load_failures");
  CHECK(found.count("save_failures") == lost);

  const auto missed = s.play(); // a lost page is a miss from now on
  check_report(missed, shape);
  CHECK(missed.count("load_failures") == 0);
  CHECK(missed.count("loaded_pages") == missed.count("hit_blocks"));
  // Pages behind the first lost page are saved again, and are found.
  CHECK(missed.count("save_failures") == lost);
  CHECK(missed.count("saved_pages") == 0);
  CHECK(missed.code == 1);
  s.check_end();

  process again(program_with({"serve", "--config", s.slab().parent_path().parent_path() / "node.json"}));
  CHECK(again.wait() == 1);
  CHECK(again.text(stream::err).find("was truncated or has grown") != std::string::npos);
}

TEST_CASE("disk fault: a slab truncated during a replay costs only pages") {
  const node_shape shape{.slots = 2048, .memory_bytes = little_memory};
  setting s(shape);
  process client(
      replay_command({"--attach", s.node().address(), "--trace", "loogle:40,4096,20,128", "--concurrency", "4"}));
  s.node().wait_for_statistics([](const auto& x) { return x.keys > 500; });
  fs::resize_file(s.slab(), fs::file_size(s.slab()) / 8);
  const auto outcome = result_of(client);
  check_report(outcome, shape);
  CHECK(outcome.code == (outcome.count("save_failures") > 0 ? 1 : 0));
  CHECK(outcome.count("requests") == 800);
  CHECK(outcome.count("save_failures") + outcome.count("load_failures") > 0);
  s.node().program().wait_for_line(stream::err, "was truncated while in use");
  s.check_end();
}

TEST_CASE("disk fault: a slab that does not fit on the disk is an error at startup and leaves no partial file") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 1U << 20U, .slots = 16};
  const auto config = write_config(scratch.path(), node_config(scratch.path(), shape)).string();
  const auto x = run(program_with({"serve", "--config", config, "--set", "storage.ranks[0].slab_bytes=64 TiB"}));
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.out.empty());
  CHECK(x.err.find("of disk space") != std::string::npos);
  // The sentence says all of it.
  CHECK(x.err.find("no_space") == std::string::npos);
  CHECK(entries(scratch / "data") == std::vector<std::string>{"lock"});

  // Its slots would not fit into the memory of the registry either, which is known before anything is started.
  const arguments huge{"--trace", "loogle:1,512,2,64", "--capacity-pages", "2000000000", "--page-bytes", "4096"};
  const auto too_many = run_replay(huge, scratch.path());
  INFO(too_many.err);
  CHECK(too_many.code == 2);
  CHECK(too_many.err.find("registry.memory_bytes") != std::string::npos);
  auto with_memory = huge;
  with_memory.insert(with_memory.end(), {"--set", "registry.memory_bytes=1 TiB"});
  const auto played = run_replay(with_memory, scratch.path());
  INFO(played.err);
  CHECK(played.code == 1);
  CHECK(played.err.find(" (no_space)") != std::string::npos);
  CHECK(entries(scratch.path()) == std::vector<std::string>{"data", "node.json"});
}

TEST_CASE("disk fault: a limit on file sizes is an error at startup") {
  const scratch_directory scratch;
  const node_shape shape{.slots = 4096, .memory_bytes = little_memory};
  auto command =
      program_with({"serve", "--config", write_config(scratch.path(), node_config(scratch.path(), shape)).string()});
  command.file_size_limit = 2 * little_memory; // enough for the memory, not for the slab
  const auto x = run(command);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("space.rank-0.slab") != std::string::npos);
  CHECK(x.err.find("File too large") != std::string::npos);
  CHECK(entries(scratch / "data") == std::vector<std::string>{"lock"});
}

TEST_CASE("disk fault: a write error at run time is a counted failure and its slots are freed") {
  const node_shape shape{.slots = 256, .strict = true};
  setting s(shape);
  // From here on, writes behind the first 50 slots fail.
  const auto allowed = 50 * slab_editor(s.slab(), shape.page_bytes).slot_bytes();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit limit{allowed, before.rlim_max};
  REQUIRE(::prlimit(s.node().program().id(), RLIMIT_FSIZE, &limit, nullptr) == 0);
  const auto x = s.play();
  check_report(x, shape);
  CHECK(x.code == 0);
  CHECK(x.count("saved_pages") == 50);
  CHECK(x.count("save_failures") == block_count - 50);
  REQUIRE(::prlimit(s.node().program().id(), RLIMIT_FSIZE, &before, nullptr) == 0);

  s.play_clean(); // finds the saved pages, saves the rest
  const auto all = s.play();
  check_clean(all, shape);
  CHECK(all.count("hit_blocks") == block_count);
  s.check_end();
}

TEST_CASE("disk fault: a full disk at run time is a counted failure") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .slots = 256, .memory_bytes = little_memory, .strict = true};
  try {
    make_private(scratch / "data");
    const small_disk disk(scratch / "data/slabs", std::uint64_t{32} << 20U);
    {
      const auto x = run(
          program_with({"serve", "--config", write_config(scratch.path(), node_config(scratch.path())).string(),
                        "--set", "storage.ranks[0].directory=slabs", "--set", "storage.ranks[0].slab_bytes=64 MiB"}));
      INFO(x.err);
      CHECK(x.code == 1);
      CHECK(x.err.find("of disk space") != std::string::npos);
    }
    setting s(shape, scratch / "data/slabs");
    s.play_clean();
    disk.fill_up();
    s.play_clean("1"); // the slab has its space already, also for other pages

    // A slab that has lost its space, which a file system may do to a sparse copy.
    disk.make_room();
    slab_editor(s.slab(), shape.page_bytes).punch();
    disk.fill_up();
    const auto full = s.play("2");
    check_report(full, shape);
    CHECK(full.code == 0);
    CHECK(full.count("saved_pages") == 0);
    CHECK(full.count("save_failures") == block_count);
    const auto notified = s.status();
    CHECK(notified.code == 1);
    CHECK(notified.out.find("writes_fail: ") != std::string::npos);
    CHECK(notified.out.find("no_space") != std::string::npos);
    CHECK(notified.out.find("docs/operations.md#writes_fail") != std::string::npos);
    const auto zeroes = s.play("1");
    check_report(zeroes, shape);
    CHECK(zeroes.count("loaded_pages") <= 60); // those in memory

    disk.make_room();
    s.play_clean("2");
    const auto found = s.play("2");
    check_clean(found, shape);
    CHECK(found.count("hit_blocks") == block_count);
    s.check_end();
  } catch (const disk_unavailable& x) {
    WARN("skipped: " << x.why);
  }
}

TEST_CASE("disk fault: a failing part of the disk costs only the pages on it") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .slots = 660, .memory_bytes = little_memory, .strict = true};
  constexpr std::uint64_t mebibyte = 1U << 20U;
  try {
    // 43.8 of 64 MiB are the slab, of which at least 3.8 MiB lie behind the first 40 MiB and at least 20 MiB before.
    make_private(scratch / "data");
    const breakable_disk disk(scratch / "image", scratch / "data/slabs", 64 * mebibyte);
    setting s(shape, scratch / "data/slabs");
    const auto trace = write_trace(scratch / "trace", {ids(1, 620)});
    const arguments how{"--attach", s.node().address(), "--trace", trace, "--concurrency", "1"};
    check_clean(run_replay(how), shape);

    disk.keep_only(40 * mebibyte);
    const auto broken = run_replay(how);
    check_report(broken, shape);
    CHECK(broken.code == 0);
    CHECK(broken.count("hit_blocks") == 620);
    CHECK(broken.count("load_failures") > 0);
    CHECK(broken.count("loaded_pages") > 0);
    CHECK(broken.count("saved_pages") + broken.count("save_failures") == broken.count("load_failures"));
    CHECK(s.node().statistics().ranks[0].failed > 0);

    // Pages that were in memory meanwhile were served from there, and what the disk has of them is zero now. That is
    // found when one is read from it: once for each of them, and never as a page with other bytes.
    disk.repair();
    constexpr std::uint64_t in_memory = little_memory / 65536;
    std::uint64_t lost = 0;
    for (const bool saved_again : {false, true, true}) {
      const auto x = run_replay(how);
      check_report(x, shape);
      CHECK(x.code == 0);
      CHECK(x.count("save_failures") == 0);
      CHECK((x.count("hit_blocks") == 620) == saved_again);
      lost += x.count("load_failures");
    }
    CHECK(lost <= in_memory);
    s.check_end();
  } catch (const disk_unavailable& x) {
    WARN("skipped: " << x.why);
  }
}

} // namespace disk_fault_test
