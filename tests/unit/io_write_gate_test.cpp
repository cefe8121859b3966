#include "actors/node/supervisor/trace_file.hpp"
#include "base/write_gate.hpp"
#include "io/make_engine.hpp"
#include "io/page.hpp"
#include "io/slab/slab_file.hpp"
#include "store/epoch_file.hpp"
#include "store/rocksdb_store.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/unit/store_support.hpp"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

/// The writes that a node without a valid claim does not make.

namespace io_write_gate_test {

using namespace troupe;
using namespace troupe::test;
using std::chrono::hours;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> contents(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& x : fs::directory_iterator(directory)) {
    std::ifstream in(x.path(), std::ios::binary);
    out[x.path().filename().string()] = {std::istreambuf_iterator<char>{in}, {}};
  }
  return out;
}

store::write_batch one_page(std::uint64_t n) {
  store::write_batch out;
  out.put(page_number(n));
  return out;
}

} // namespace

TEST_CASE(
    "write gate: neither an epoch nor a slab file nor recorded lookups are written while the write gate is closed",
    "[claims]") {
  scratch_directory directory;
  const auto gate = std::make_shared<write_gate>();
  io::slab_spec spec{.path = directory / "a.slab", .ns = {1, 2}, .namespace_name = "a", .rank = 0};
  spec.slot_bytes = io::slot_bytes(4096);
  spec.slots = 4;
  const auto recorder = std::make_shared<request_recorder>(100);
  const auto trace = trace_file::start(recorded_trace(directory.path()), recorder, gate, hours(1)).value();
  REQUIRE(store::write_epoch(directory.path(), 5));
  // The directory looks as if another node creates it now.
  std::ofstream(directory / "epoch.new") << "theirs";
  std::ofstream(directory / "a.slab.new") << "theirs";
  const auto before = contents(directory.path());
  for (int round = 0; round < 2; ++round) {
    const auto epoch = store::write_epoch(directory.path(), 6, *gate);
    REQUIRE_FALSE(epoch);
    CHECK(missing(epoch.error().text, {"claim", (directory / "epoch").string()}).empty());
    const auto slab = io::slab_file::open(spec, false, *gate);
    REQUIRE_FALSE(slab);
    CHECK(missing(slab.error().text, {"claim", spec.path.string()}).empty());
    const auto lookups = trace->write();
    REQUIRE_FALSE(lookups);
    CHECK(lookups.error().code == errc::io_error);
    CHECK(missing(lookups.error().text, {"claim", recorded_trace(directory.path()).string()}).empty());
    CHECK(contents(directory.path()) == before);
    if (round == 0)
      gate->open_until(boot_time()); // expired
  }
  gate->open_until(later(boot_time(), hours(1)));
  CHECK(store::write_epoch(directory.path(), 6, *gate));
  CHECK(io::slab_file::open(spec, false, *gate));
  CHECK(trace->write());
  const auto after = contents(directory.path());
  CHECK(after.contains("requests.jsonl"));
  CHECK(after.contains("a.slab"));
  CHECK(store::read_epoch(directory.path()).value() == 6);
  gate->shut();
  CHECK_FALSE(trace->write());
  // An existing store is opened without any change.
  CHECK(io::slab_file::open(spec, false, *gate));
  CHECK(contents(directory.path()) == after);
}

TEST_CASE("write gate: no engine writes while the write gate is closed, and all read", "[claims][engine]") {
  for (const auto kind : {io::engine_kind::threads, io::engine_kind::automatic}) {
    scratch_directory directory;
    const auto file = make_file(directory / "slab", 1U << 16U);
    completion_log log;
    io::engine_options options;
    options.kind = kind;
    const auto gate = std::make_shared<write_gate>();
    options.gate = gate;
    const auto engine = io::make_engine(options, log.sink()).value();
    aligned_buffer memory(8192);
    memory.bytes()[0] = std::byte{1};
    io::request what;
    what.file = engine->add_file(file.get()).value();
    what.buffer = engine->add_buffer(memory.bytes()).value();
    what.data = memory.data();
    what.length = 4096;
    const auto written = [&](std::uint64_t tag) {
      what.op = io::operation::write;
      what.tag = tag;
      engine->submit({&what, 1});
      return log.wait_for_tag(tag);
    };
    const auto on_disk = [&] {
      std::byte first{};
      REQUIRE(::pread(file.get(), &first, 1, 0) == 1);
      return first;
    };
    auto done = written(1);
    CHECK(done.status == errc::io_error);
    CHECK(done.system_errno == ESTALE);
    CHECK(on_disk() == std::byte{0});
    gate->open_until(boot_time() + hours(1));
    CHECK(written(2).status == errc::ok);
    CHECK(on_disk() == std::byte{1});
    gate->shut();
    memory.bytes()[0] = std::byte{2};
    CHECK(written(3).status == errc::io_error);
    CHECK(on_disk() == std::byte{1});
    what.op = io::operation::read;
    what.data = memory.data() + 4096;
    what.tag = 4;
    engine->submit({&what, 1});
    CHECK(log.wait_for_tag(4).status == errc::ok);
    CHECK(memory.bytes()[4096] == std::byte{1});
  }
}

TEST_CASE("write gate: a store with a closed write gate changes nothing on disk, even at shutdown", "[claims][store]") {
  scratch_directory directory;
  auto options = options_for(directory / "index", store::durability::strict);
  const auto gate = std::make_shared<write_gate>();
  options.gate = gate;
  options.first_pause = milliseconds(1);
  gate->open_until(boot_time() + hours(1));
  auto opened = store::rocksdb_store::open(options);
  REQUIRE(opened);
  REQUIRE(commit_now(**opened, one_page(1)));
  const auto before = contents(directory / "index");
  gate->shut();
  answer_log answers;
  REQUIRE((*opened)->commit(one_page(2), answers.expect(2)));
  REQUIRE(eventually([&] { return (*opened)->stats().no_room.has_value(); }));
  CHECK(missing((*opened)->stats().no_room->text, {"claim"}) == "");
  CHECK(answers.all().empty());
  // It can still be read.
  loaded seen;
  REQUIRE((*opened)->load(seen));
  CHECK(seen.pages.size() == 1);
  CHECK_FALSE((*opened)->close());
  CHECK(answers.wait_for(1).front().second == errc::no_space);
  opened->reset();
  CHECK(contents(directory / "index") == before);
}

TEST_CASE("write gate: batches that were committed while the write gate was closed are written once it opens",
          "[claims][store]") {
  scratch_directory directory;
  auto options = options_for(directory / "index", store::durability::strict);
  const auto gate = std::make_shared<write_gate>();
  options.gate = gate;
  options.first_pause = milliseconds(1);
  CHECK_FALSE(store::rocksdb_store::open(options)); // it would have to write
  gate->open_until(boot_time() + milliseconds(500));
  std::unique_ptr<store::rocksdb_store> opened;
  // On a slow machine this needs another attempt.
  for (auto time = milliseconds(500); !opened; time *= 2) {
    gate->open_until(boot_time() + time);
    if (auto made = store::rocksdb_store::open(options))
      opened = std::move(*made);
  }
  REQUIRE(eventually([&] { return !gate->is_open(); }));
  answer_log answers;
  REQUIRE(opened->commit(one_page(1), answers.expect(1)));
  REQUIRE(eventually([&] { return opened->stats().no_room.has_value(); }));
  gate->open_until(boot_time() + hours(1));
  CHECK(answers.wait_for(1).front().second == errc::ok);
  REQUIRE(opened->close());
  opened.reset();
  options.gate = write_gate::always_open();
  const auto again = store::rocksdb_store::open(options).value();
  loaded seen;
  REQUIRE(again->load(seen));
  CHECK(seen.pages.size() == 1);
}

} // namespace io_write_gate_test
