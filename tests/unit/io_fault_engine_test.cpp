#include "tests/catch.hpp"
#include "tests/io_faults/fault_engine.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <cstring>

namespace io_fault_engine_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t block = page_alignment;

struct fixture {
  fixture() {
    file = io.add_file(opened.get()).value();
    buffer = io.add_buffer(memory.bytes()).value();
    std::fill_n(memory.data(), memory.size(), std::byte{'m'});
  }

  completion submit(operation op, std::uint64_t tag, timestamp deadline = timestamp::max()) {
    const request what{.op = op,
                       .file = file,
                       .file_offset = block,
                       .data = memory.data(),
                       .length = block,
                       .buffer = buffer,
                       .tag = tag,
                       .deadline = deadline};
    io.submit({&what, 1});
    const auto all = log.all();
    return all.empty() || all.back().tag != tag ? completion{.tag = tag, .status = errc::internal} : all.back();
  }

  std::string file_at(std::uint64_t offset, std::size_t count) {
    std::string out(count, '?');
    REQUIRE(::pread(opened.get(), out.data(), count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count));
    return out;
  }

  scratch_directory scratch;
  unique_descriptor opened = make_file(scratch / "file", 4 * block);
  aligned_buffer memory{block};
  completion_log log;
  fault_engine io{log.sink()};
  std::uint32_t file = 0;
  std::uint32_t buffer = 0;
};

fault_engine::plan always(const fault& f) {
  return [f](const request&, std::uint64_t) { return f; };
}

} // namespace

TEST_CASE("fault engine: without a plan it reads and writes before submit returns", "[io][fault_engine]") {
  fixture f;
  CHECK(f.submit(operation::write, 1).status == errc::ok);
  CHECK(f.file_at(block, block) == std::string(block, 'm'));
  std::fill_n(f.memory.data(), block, std::byte{0});
  CHECK(f.submit(operation::read, 2).status == errc::ok);
  CHECK(f.memory.data()[block - 1] == std::byte{'m'});
  CHECK(f.io.counters().completed == 2);
}

TEST_CASE("fault engine: a plan receives the ordinals and injects errors", "[io][fault_engine]") {
  fixture f;
  f.io.set_plan([](const request&, std::uint64_t ordinal) {
    return ordinal == 1 ? fault{.status = errc::io_error, .system_errno = EIO} : fault{};
  });
  CHECK(f.submit(operation::write, 0).status == errc::ok);
  std::fill_n(f.memory.data(), block, std::byte{'n'});
  const auto failed = f.submit(operation::write, 1);
  CHECK(failed.status == errc::io_error);
  CHECK(failed.system_errno == EIO);
  CHECK(f.file_at(block, 1) == "m");
  CHECK(f.submit(operation::write, 2).status == errc::ok);
}

TEST_CASE("fault engine: torn, lost and misdirected writes report success", "[io][fault_engine]") {
  fixture f;
  SECTION("torn") {
    f.io.set_plan(always({.bytes = 512}));
    CHECK(f.submit(operation::write, 0).status == errc::ok);
    CHECK(f.file_at(block + 511, 2) == std::string("m\0", 2));
  }
  SECTION("lost") {
    f.io.set_plan(always({.bytes = 0}));
    CHECK(f.submit(operation::write, 0).status == errc::ok);
    CHECK(f.file_at(block, 1) == std::string(1, '\0'));
  }
  SECTION("misdirected") {
    f.io.set_plan(always({.shift = -static_cast<std::int64_t>(block)}));
    CHECK(f.submit(operation::write, 0).status == errc::ok);
    CHECK(f.file_at(0, 1) == "m");
    CHECK(f.file_at(block, 1) == std::string(1, '\0'));
  }
}

TEST_CASE("fault engine: held requests end when they are released", "[io][fault_engine]") {
  fixture f;
  f.io.set_plan(always({.held = true}));
  f.submit(operation::write, 0);
  f.submit(operation::write, 1);
  f.submit(operation::write, 2, timestamp{} + 1s);
  CHECK(f.io.held() == std::vector<std::uint64_t>{0, 1, 2});
  f.io.cancel(1);
  f.io.set_now(timestamp{} + 2s);
  CHECK(f.log.all().empty()); // the disk still holds them
  CHECK(f.file_at(block, 1) == std::string(1, '\0'));
  CHECK(f.io.release(1));
  CHECK(f.log.all().back().status == errc::cancelled);
  CHECK_FALSE(f.io.release(1));
  CHECK(f.io.release_all() == 2);
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  CHECK(f.log.wait_for_tag(2).status == errc::timeout);
  CHECK(f.submit(operation::write, 3, timestamp{} + 1s).status == errc::timeout);
}

TEST_CASE("fault engine: stopping the fault engine ends all requests", "[io][fault_engine]") {
  fixture f;
  f.io.set_plan(always({.held = true}));
  f.submit(operation::write, 0);
  f.io.stop();
  CHECK(f.log.wait_for_tag(0).status == errc::shutting_down);
  CHECK(f.submit(operation::write, 1).status == errc::shutting_down);
  CHECK(f.log.all().size() == 2);
}

} // namespace io_fault_engine_test
