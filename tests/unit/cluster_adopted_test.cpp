#include "actors/cluster/takeover/adopted_reads.hpp"
#include "actors/cluster/takeover/adopter.hpp"
#include "io/slab/slab_file.hpp"
#include "store/epoch_file.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/unit/store_support.hpp"

#include <atomic>
#include <future>

namespace cluster_adopted_test {

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::test;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

namespace {

constexpr incarnation_number epoch = 77;
const namespace_id ns = namespace_number(1);
const kv_geometry geometry{2, 1, 1, 64, 2, 16};
const std::uint64_t page_bytes = geometry.page_bytes();

/// The data directory of a dead node: two ranks with pages, in slab files and index.
struct dead_node {
  explicit dead_node(std::uint64_t keys, std::uint64_t fewer_of_second = 0, std::uint64_t slots = 64) : slots_(slots) {
    fs::create_directories(data / "disks");
    // One of them lies elsewhere, as on another mount.
    fs::create_directories(scratch / "elsewhere");
    fs::create_directory_symlink(scratch / "elsewhere", data / "disks/second");
    slabs.push_back(io::slab_file::open(spec(0, data / "a.rank-0.slab")).value());
    slabs.push_back(io::slab_file::open(spec(1, data / "disks/second/a.rank-1.slab")).value());
    store::write_batch batch;
    auto identity = store_->identity();
    identity.epoch = epoch;
    batch.put(identity);
    for (std::uint64_t n = 0; n < keys; ++n)
      for (rank_number rank = 0; rank < 2; ++rank)
        if (rank == 0 || n < keys - fewer_of_second)
          batch.put(page(n, rank));
    REQUIRE(commit_now(*store_, std::move(batch)));
    REQUIRE(store::write_epoch(data, epoch));
  }

  io::slab_spec spec(rank_number rank, const fs::path& path) const {
    return {.path = path,
            .ns = ns,
            .namespace_name = "a",
            .rank = rank,
            .slot_bytes = io::slot_bytes(page_bytes),
            .slots = slots_,
            .length_only = slots_ > 64};
  }

  store::page_record page(std::uint64_t n, rank_number rank) const {
    auto out = page_number(n, rank, {static_cast<slot_number>(slots_ - 1 - n), 3});
    out.incarnation = slabs[rank].spec().incarnation;
    return out;
  }

  void put(const store::page_record& x) {
    store::write_batch batch;
    batch.put(x);
    REQUIRE(commit_now(*store_, std::move(batch)));
  }

  /// The page as a node writes it, filled with a distinct byte.
  void write(std::uint64_t n, rank_number rank, std::byte fill) const {
    const auto what = page(n, rank);
    aligned_buffer buffer(io::slot_bytes(page_bytes));
    std::fill_n(buffer.data() + io::page_header_bytes, page_bytes, fill);
    io::seal_page(buffer.bytes(), {ns, what.key, rank, what.where, page_bytes});
    REQUIRE(::pwrite(slabs[rank].descriptor(), buffer.data(), buffer.size(),
                     static_cast<off_t>(what.where.slot * buffer.size())) == static_cast<ssize_t>(buffer.size()));
  }

  /// Simulates a kill: nothing is closed in order, as far as possible within a process.
  void die() { store_.reset(); }

  std::shared_ptr<const adopted_index> read(const shared_budget& memory = nullptr) {
    die();
    auto out = adopted_index::read(data, scratch.path(), memory);
    REQUIRE(out);
    return *out;
  }

  std::uint64_t slots_;
  scratch_directory scratch;
  fs::path data = scratch / "dead";
  std::vector<io::slab_file> slabs;
  std::unique_ptr<store::rocksdb_store> store_ =
      (fs::create_directories(data), open_store(options_for(data / "index", store::durability::strict)));
};

auto reader_with_threads() {
  io::engine_options how;
  how.kind = io::engine_kind::threads;
  return io::foreign_reader::make(how).value();
}

std::vector<key_digest> keys(std::uint64_t from, std::uint64_t count) {
  std::vector<key_digest> out;
  for (auto n = from; n < from + count; ++n)
    out.push_back(key_number(n));
  return out;
}

} // namespace

TEST_CASE("adopted directories: the index of a dead node lists the keys it has of all ranks and where they are stored",
          "[cluster][adopted]") {
  dead_node node(20, 5);
  const auto index = node.read();
  CHECK(index->keys() == 20);
  CHECK(index->pages() == 35);
  CHECK(index->namespaces() == std::vector{ns});
  CHECK(index->has(ns, 2, page_bytes));
  CHECK_FALSE(index->has(ns, 1, page_bytes));
  CHECK_FALSE(index->has(ns, 3, page_bytes));
  CHECK_FALSE(index->has(ns, 2, 2 * io::slot_bytes(page_bytes)));
  CHECK_FALSE(index->has(namespace_number(2), 2, page_bytes));
  CHECK(index->match(ns, keys(0, 10)) == 10);
  CHECK(index->match(ns, keys(10, 10)) == 5);
  CHECK(index->match(ns, keys(15, 5)) == 0);
  CHECK(index->match(namespace_number(2), keys(0, 5)) == 0);
  REQUIRE(index->rank(ns, 1) != nullptr);
  CHECK(index->rank(ns, 1)->path == "elsewhere/a.rank-1.slab");
  CHECK(index->rank(ns, 0)->find(key_number(4)) == slot_ref{59, 3});
  CHECK_FALSE(index->rank(ns, 0)->find(key_number(40)));
  CHECK(index->rank(ns, 2) == nullptr);
}

TEST_CASE("adopted directories: slab files of a dead node are found two levels below its directory, and no deeper",
          "[cluster][adopted]") {
  dead_node node(3);
  fs::create_directories(node.data / "disks/third/below");
  fs::rename(node.data / "a.rank-0.slab", node.data / "disks/third/a.rank-0.slab");
  SECTION("two levels") {
    CHECK(node.read()->pages() == 6);
  }
  SECTION("three levels") {
    fs::rename(node.data / "disks/third/a.rank-0.slab", node.data / "disks/third/below/a.rank-0.slab");
    CHECK(node.read()->pages() == 3);
  }
}

TEST_CASE("adopted directories: records that the dead node would reject at startup are not adopted",
          "[cluster][adopted]") {
  dead_node node(3);
  SECTION("pages of another file, or without a slot") {
    auto strange = node.page(7, 0);
    strange.incarnation ^= 1;
    node.put(strange);
    auto beyond = node.page(8, 0);
    beyond.where.slot = 64;
    node.put(beyond);
    auto nowhere = node.page(9, 0);
    nowhere.rank = 5;
    node.put(nowhere);
    CHECK(node.read()->pages() == 6);
  }
  SECTION("an index of an earlier epoch") {
    REQUIRE(store::write_epoch(node.data, epoch + 1));
    CHECK(node.read()->pages() == 0);
  }
  SECTION("no index") {
    node.die();
    fs::remove_all(node.data / "index");
    const auto index = node.read();
    CHECK(index->pages() == 0);
    CHECK(index->match(ns, keys(0, 3)) == 0);
  }
}

TEST_CASE("adopted directories: an index that exceeds available memory is not read", "[cluster][adopted][memory]") {
  dead_node node(3);
  node.die();
  const auto little = std::make_shared<memory_budget>(1000);
  const auto refused = adopted_index::read(node.data, node.scratch.path(), little);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_memory);
  CHECK(little->used() == 0);
  const auto enough = std::make_shared<memory_budget>(1U << 20U);
  {
    const auto index = node.read(enough);
    CHECK(enough->used() > 0);
  }
  CHECK(enough->used() == 0);
}

TEST_CASE("adopted directories: all memory for reading an index is reserved first", "[cluster][adopted][memory]") {
  constexpr std::uint64_t keys = 10'000;
  dead_node node(keys, 0, 16'384);
  node.die();
  // The final size for two ranks is a quarter of the limit, without temporary copies.
  constexpr std::uint64_t in_the_end = 2 * keys * sizeof(adopted_rank::entry);
  const auto read = [&](std::uint64_t share) {
    const auto memory = std::make_shared<memory_budget>(4 * share);
    const auto index = adopted_index::read(node.data, node.scratch.path(), memory);
    if (index)
      CHECK(memory->used() >= in_the_end);
    return index.has_value();
  };
  CHECK_FALSE(read(in_the_end + in_the_end / 20));
  CHECK(read(3 * in_the_end));
}

TEST_CASE("adopted directories: reading an index stops when its reader is destroyed", "[cluster][adopted]") {
  dead_node node(3);
  node.die();
  const auto left = adopted_index::read(node.data, node.scratch.path(), nullptr, [] { return true; });
  REQUIRE_FALSE(left);
  CHECK(left.error().code == errc::shutting_down);
}

TEST_CASE("adopted directories: open files of dead nodes are bounded and closed when their index is dropped",
          "[cluster][adopted][memory]") {
  dead_node node(4);
  for (rank_number rank = 0; rank < 2; ++rank)
    node.write(0, rank, std::byte{1});
  auto index = node.read();
  adopted_reads reads({reader_with_threads(), node.scratch.path(), true}, test_patience);
  const auto read = [&](const std::shared_ptr<staging_buffer>& memory, rank_number rank, duration time) {
    std::promise<transfer_result> done;
    transfer_task work;
    work.keys.items = keys(0, 1);
    work.blocks.items = {0};
    work.deadline = time;
    reads.post({index, memory, ns, rank, work, [&](transfer_result x) { done.set_value(std::move(x)); }});
    return static_cast<errc>(done.get_future().get().results.items.at(0));
  };
  const auto open_in_the_end = [&](std::size_t expected) {
    eventually([&] { return reads.open_files() == expected; });
    return reads.open_files();
  };
  std::vector<std::shared_ptr<staging_buffer>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_shared<staging_buffer>(geometry, 2));
    for (rank_number rank = 0; rank < 2; ++rank)
      CHECK(read(all.back(), rank, test_patience) == errc::ok);
  }
  CHECK(open_in_the_end(4) == 4);
  // A request past its deadline does not wait.
  CHECK(read(std::make_shared<staging_buffer>(geometry, 2), 0, -std::chrono::seconds(1)) == errc::timeout);
  all.resize(19);
  reads.drop_unused();
  CHECK(open_in_the_end(2) == 2);
  index.reset();
  reads.drop_unused();
  CHECK(open_in_the_end(0) == 0);
}

TEST_CASE("adopted directories: the last user of an adopted index releases its memory and closes its file",
          "[cluster][adopted][memory]") {
  dead_node node(4);
  node.write(0, 0, std::byte{1});
  const auto index = node.read();
  adopted_reads reads({reader_with_threads(), node.scratch.path(), true}, test_patience);
  const auto ask = [&](std::shared_ptr<staging_buffer> memory, duration time,
                       std::function<void(transfer_result)> done) {
    transfer_task work;
    work.keys.items = keys(0, 1);
    work.blocks.items = {0};
    work.deadline = time;
    reads.post({index, std::move(memory), ns, 0, work, std::move(done)});
  };
  std::promise<std::size_t> left;
  ask(std::make_shared<staging_buffer>(geometry, 2), test_patience, [&](const transfer_result& x) {
    CHECK(static_cast<errc>(x.results.items.at(0)) == errc::ok);
    reads.drop_unused();
    // When it answers this, another thread has searched for unused files.
    std::promise<void> looked;
    ask(std::make_shared<staging_buffer>(geometry, 2), -std::chrono::seconds(1),
        [&](const transfer_result&) { looked.set_value(); });
    looked.get_future().wait();
    left.set_value(reads.open_files());
  });
  CHECK(left.get_future().get() == 0);
}

TEST_CASE("adopted directories: pages of a dead node are read if they verify, and other blocks stay unchanged",
          "[cluster][adopted]") {
  dead_node node(4);
  for (std::uint64_t n = 0; n < 3; ++n)
    node.write(n, 1, static_cast<std::byte>(n + 1));
  const auto index = node.read();
  // Its owner had reused the slot for another page, which the index does not have yet.
  aligned_buffer other(io::slot_bytes(page_bytes));
  io::seal_page(other.bytes(), {ns, key_number(99), 1, {62, 4}, page_bytes});
  REQUIRE(::pwrite(node.slabs[1].descriptor(), other.data(), other.size(), static_cast<off_t>(62 * other.size())) ==
          static_cast<ssize_t>(other.size()));
  adopted_reads reads({reader_with_threads(), node.scratch.path(), true}, test_patience);
  const auto memory = std::make_shared<staging_buffer>(geometry, 8);
  std::ranges::fill(memory->blocks(), std::byte{0xee});
  std::promise<transfer_result> done;
  transfer_task work;
  work.keys.items = keys(0, 5); // of which it never had the last one, and never wrote the one before
  work.blocks.items = {0, 1, 2, 3, 4};
  work.deadline = test_patience;
  reads.post({index, memory, ns, 1, work, [&](transfer_result x) { done.set_value(std::move(x)); }});
  const auto outcome = done.get_future().get();
  const auto code = [&](std::size_t i) { return static_cast<errc>(outcome.results.items.at(i)); };
  CHECK(code(0) == errc::ok);
  CHECK(code(1) == errc::identity_mismatch);
  CHECK(code(2) == errc::ok);
  CHECK(code(3) == errc::corrupt);
  CHECK(code(4) == errc::out_of_range);
  CHECK(outcome.from_files == 2);
  CHECK(outcome.bytes == 2 * page_bytes);
  CHECK(outcome.files_stale == 1);
  CHECK(outcome.files_damaged == 1);
  CHECK(outcome.files_failed == 1);
  for (std::size_t block = 0; block < 5; ++block) {
    const auto bytes = memory->blocks().subspan(block * page_bytes, page_bytes);
    const auto expected = code(block) == errc::ok ? static_cast<std::byte>(block + 1) : std::byte{0xee};
    CHECK(std::ranges::all_of(bytes, [&](std::byte b) { return b == expected; }));
  }
}

TEST_CASE(
    "adopted directories: pages of a rank that the dead node did not have, or without a block each, are not found",
    "[cluster][adopted]") {
  dead_node node(2);
  node.write(0, 1, std::byte{1});
  const auto index = node.read();
  adopted_reads reads({reader_with_threads(), node.scratch.path(), true}, test_patience);
  const auto memory = std::make_shared<staging_buffer>(geometry, 8);
  const auto read = [&](rank_number rank, std::vector<std::uint32_t> blocks) {
    std::promise<transfer_result> done;
    transfer_task work;
    work.keys.items = keys(0, 1);
    work.blocks.items = std::move(blocks);
    work.deadline = test_patience;
    reads.post({index, memory, ns, rank, work, [&](transfer_result x) { done.set_value(std::move(x)); }});
    return static_cast<errc>(done.get_future().get().results.items.at(0));
  };
  CHECK(read(1, {0}) == errc::ok);
  CHECK(read(2, {0}) == errc::not_found);
  CHECK(read(1, {}) == errc::not_found);
  CHECK(read(1, {0, 1}) == errc::not_found);
}

TEST_CASE("adopted directories: of two nodes one gets the claim, both read, and the owner gets it back",
          "[cluster][adopted][claims]") {
  dead_node node(6);
  node.die();
  io::claim_directory claims(node.data);
  REQUIRE(claims.make(1, {"dead", 1, io::claim_kind::owner, io::claim_phase::holding, milliseconds(200), 9}));
  std::atomic<int> news = 0;
  const auto options = [&](const std::string& name) {
    adopter_options out;
    out.shared = node.scratch.path();
    out.own = node.scratch / name;
    out.node_name = name;
    // This is longer than any pause of a busy machine; the lease of the dead node is waited for.
    out.lease = std::chrono::seconds(3);
    out.changed = [&] { ++news; };
    return out;
  };
  const auto started_a = adopter::start(options("a")).value();
  const auto& a = *started_a;
  const auto started_b = adopter::start(options("b")).value();
  const auto& b = *started_b;
  const auto both = [&] { return a.nodes().size() == 1 && b.nodes().size() == 1; };
  REQUIRE(eventually([&] { return both() && a.nodes()[0].own != b.nodes()[0].own; }));
  CHECK(a.nodes()[0].name == "dead");
  CHECK(a.nodes()[0].index->keys() == 6);
  CHECK(b.nodes()[0].index->keys() == 6);
  CHECK(news >= 2);
  const auto back = io::claim_keeper::begin(std::make_unique<io::claim_directory>(node.data),
                                            {"dead", 2, io::claim_kind::owner, std::chrono::seconds(5)},
                                            std::make_shared<write_gate>())
                        .value();
  CHECK(back->wait([](const io::claim_status&) { return true; }).state == io::claim_state::holding);
  CHECK(eventually([&] { return a.nodes().empty() && b.nodes().empty(); }));
  CHECK(eventually([&] { return a.claims_lost() + b.claims_lost() >= 1; }));
}

TEST_CASE("adopted directories: a removed directory is no longer watched, and is watched again when it returns",
          "[cluster][adopted][claims]") {
  scratch_directory scratch;
  const auto claim = [&] {
    fs::create_directories(scratch / "gone");
    io::claim_directory claims(scratch / "gone");
    return claims.make(1, {"gone", 1, io::claim_kind::owner, io::claim_phase::holding, io::longest_claim_lease, 9});
  };
  adopter_options how;
  how.shared = scratch.path();
  how.own = scratch / "own";
  how.node_name = "own";
  how.lease = milliseconds(400);
  const auto started = adopter::start(how).value();
  const auto& a = *started;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(claim());
    REQUIRE(eventually([&] { return a.watched() == 1; }));
    fs::remove_all(scratch / "gone");
    CHECK(eventually([&] { return a.watched() == 0; }));
  }
  CHECK(a.nodes().empty());
}

} // namespace cluster_adopted_test
