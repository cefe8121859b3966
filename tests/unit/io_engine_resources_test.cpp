#include "io/engine/engine_resources.hpp"
#include "tests/catch.hpp"

#include <array>
#include <cerrno>

namespace io_engine_resources_test {

using namespace troupe;
using namespace troupe::io;

TEST_CASE("engine resources: files and buffers are bounded and their ids are reused", "[io][engine_resources]") {
  engine_resources resources(2, 2);
  std::array<std::byte, 64> memory{};
  CHECK(resources.add_file(-1).error().code == errc::invalid_argument);
  CHECK(resources.add_file(7) == 0U);
  CHECK(resources.add_file(8) == 1U);
  CHECK(resources.add_file(9).error().code == errc::limit_exceeded);
  resources.remove_file(0);
  CHECK(resources.descriptor(0) == -1);
  CHECK(resources.add_file(9) == 0U);
  CHECK(resources.descriptor(0) == 9);
  CHECK(resources.descriptor(2) == -1);
  CHECK(resources.add_buffer({}).error().code == errc::invalid_argument);
  CHECK(resources.add_buffer(memory) == 0U);
  CHECK(resources.add_buffer(memory) == 1U);
  CHECK(resources.add_buffer(memory).error().code == errc::limit_exceeded);
  resources.remove_buffer(1);
  CHECK(resources.buffer(1).empty());
  resources.remove_buffer(99);
  resources.remove_file(99);
}

TEST_CASE("engine resources: a request must lie within its file and buffer", "[io][engine_resources]") {
  engine_resources resources(1, 1);
  std::array<std::byte, 64> memory{};
  REQUIRE(resources.add_file(7));
  REQUIRE(resources.add_buffer(memory));
  request what{.file = 0, .file_offset = 0, .data = memory.data(), .length = 64, .buffer = 0};
  CHECK(resources.check(what) == errc::ok);
  SECTION("no such file") {
    what.file = 1;
    CHECK(resources.check(what) == errc::invalid_argument);
  }
  SECTION("no such buffer") {
    what.buffer = 1;
    CHECK(resources.check(what) == errc::invalid_argument);
  }
  SECTION("nothing to transfer") {
    what.length = 0;
    CHECK(resources.check(what) == errc::invalid_argument);
  }
  SECTION("one byte too long") {
    what.length = 65;
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("over the end from the middle") {
    what.data += 1;
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("behind the end") {
    what.data += 65;
    what.length = 1;
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("in front") {
    what.data -= 1;
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("a length that wraps around") {
    what.length = ~std::uint64_t{0};
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("an offset that no file has") {
    what.file_offset = ~std::uint64_t{0};
    CHECK(resources.check(what) == errc::out_of_range);
  }
  SECTION("an end that no file has") {
    what.file_offset = static_cast<std::uint64_t>(INT64_MAX) - 63;
    CHECK(resources.check(what) == errc::out_of_range);
  }
}

TEST_CASE("engine resources: results of a transfer are evaluated", "[io][engine_resources]") {
  request what{.length = 8192};
  std::uint64_t done = 0;
  std::uint32_t fruitless = 0;
  SECTION("the whole") {
    const auto p = judge_transfer(what, 8192, done, fruitless);
    CHECK_FALSE(p.again);
    CHECK(p.status == errc::ok);
  }
  SECTION("in two parts") {
    CHECK(judge_transfer(what, 4096, done, fruitless).again);
    CHECK(done == 4096);
    CHECK_FALSE(judge_transfer(what, 4096, done, fruitless).again);
    CHECK(done == 8192);
  }
  SECTION("the end of the file") {
    CHECK(judge_transfer(what, 4096, done, fruitless).again);
    CHECK(judge_transfer(what, 0, done, fruitless).status == errc::slab_damaged);
  }
  SECTION("the end of the file inside a sector, which direct I/O cannot go on from") {
    CHECK(judge_transfer(what, 1000, done, fruitless).again);
    CHECK(judge_transfer(what, -EINVAL, done, fruitless).status == errc::slab_damaged);
  }
  SECTION("an invalid transfer from the start") {
    const auto p = judge_transfer(what, -EINVAL, done, fruitless);
    CHECK(p.status == errc::io_error);
    CHECK(p.system_errno == EINVAL);
  }
  SECTION("a write that moves nothing") {
    what.op = operation::write;
    CHECK(judge_transfer(what, 0, done, fruitless).status == errc::io_error);
  }
  SECTION("no space left") {
    CHECK(judge_transfer(what, -ENOSPC, done, fruitless).status == errc::no_space);
    CHECK(judge_transfer(what, -EDQUOT, done, fruitless).status == errc::no_space);
  }
  SECTION("interruptions are retried a bounded number of times") {
    std::uint32_t tries = 0;
    auto p = judge_transfer(what, -EINTR, done, fruitless);
    for (; p.again; ++tries)
      p = judge_transfer(what, tries % 2 == 0 ? -EAGAIN : -EINTR, done, fruitless);
    CHECK(tries == max_fruitless_tries - 1);
    CHECK(p.status == errc::io_error);
  }
  SECTION("progress resets the retry count") {
    for (std::uint32_t i = 0; i + 1 < max_fruitless_tries; ++i)
      CHECK(judge_transfer(what, -EINTR, done, fruitless).again);
    CHECK(judge_transfer(what, 1, done, fruitless).again);
    CHECK(judge_transfer(what, -EINTR, done, fruitless).again);
  }
}

TEST_CASE("engine resources: a cancelled request is reported as cancelled unless it had failed or ended before",
          "[io][engine_resources]") {
  CHECK(final_status(errc::ok, errc::ok) == errc::ok);
  CHECK(final_status(errc::ok, errc::cancelled) == errc::ok);
  CHECK(final_status(errc::ok, errc::shutting_down) == errc::ok);
  CHECK(final_status(errc::ok, errc::timeout) == errc::timeout);
  CHECK(final_status(errc::cancelled, errc::timeout) == errc::timeout);
  CHECK(final_status(errc::cancelled, errc::cancelled) == errc::cancelled);
  CHECK(final_status(errc::cancelled, errc::shutting_down) == errc::shutting_down);
  CHECK(final_status(errc::io_error, errc::timeout) == errc::io_error);
  CHECK(final_status(errc::slab_damaged, errc::cancelled) == errc::slab_damaged);
}

} // namespace io_engine_resources_test
