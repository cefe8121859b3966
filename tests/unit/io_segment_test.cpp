#include "io/segment.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <limits>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

TEST_CASE("a segment is zeroed, aligned and rounded up", "[io][segment]") {
  auto made = segment::create(5000);
  REQUIRE(made.has_value());
  const auto bytes = (*made)->bytes();
  CHECK(bytes.size() == 8192);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % page_alignment == 0);
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(segment::create(0).error().code == errc::invalid_argument);
}

TEST_CASE("a segment asks for memory of a node, and takes any other", "[io][segment]") {
  for (const std::int32_t node : {0, 1, 1023, 1024, -5, std::numeric_limits<std::int32_t>::max()}) {
    INFO(node);
    auto made = segment::create(1 << 16, node);
    REQUIRE(made.has_value());
    (*made)->bytes().back() = std::byte{1};
  }
  // What the kernel was asked for: mode and node of the mapping.
  auto made = segment::create(1 << 16, 0);
  int mode = -1;
  unsigned long nodes[16]{};
  if (::syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, (*made)->bytes().data(), MPOL_F_ADDR) != 0) {
    WARN("this machine has no memory policies");
    return;
  }
  CHECK(mode == MPOL_PREFERRED);
  CHECK(nodes[0] == 1);
}

TEST_CASE("what another process writes into a segment arrives", "[io][segment]") {
  auto made = segment::create(1 << 20);
  REQUIRE(made.has_value());
  const auto node = ::getpid();
  const auto descriptor = (*made)->descriptor();
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto mapped = segment::map(node, descriptor, 1 << 20);
    if (!mapped)
      ::_exit(1);
    (*mapped)->bytes().back() = std::byte{42};
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK((*made)->bytes().back() == std::byte{42});
}

TEST_CASE("a mapped segment outlives the one who made it", "[io][segment]") {
  auto made = segment::create(4096);
  REQUIRE(made.has_value());
  auto mapped = segment::map(::getpid(), (*made)->descriptor(), 4096);
  REQUIRE(mapped.has_value());
  (*made)->bytes()[7] = std::byte{9};
  made->reset();
  CHECK((*mapped)->bytes()[7] == std::byte{9});
}

TEST_CASE("nobody can shrink or grow a segment", "[io][segment]") {
  auto made = segment::create(8192);
  REQUIRE(made.has_value());
  CHECK(::ftruncate((*made)->descriptor(), 4096) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate((*made)->descriptor(), 16384) == -1);
  CHECK(::fcntl((*made)->descriptor(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
}

TEST_CASE("mapping refuses what is not the promised segment", "[io][segment]") {
  auto made = segment::create(8192);
  REQUIRE(made.has_value());
  const auto self = ::getpid();
  SECTION("another size") {
    CHECK(segment::map(self, (*made)->descriptor(), 4096).error().code == errc::invalid_argument);
    CHECK(segment::map(self, (*made)->descriptor(), 12288).error().code == errc::invalid_argument);
    CHECK(segment::map(self, (*made)->descriptor(), 0).error().code == errc::invalid_argument);
  }
  SECTION("no such process") {
    const auto e = segment::map(0x7fffffff, (*made)->descriptor(), 8192).error();
    CHECK(e.code == errc::unreachable);
    CHECK(missing(e.text, {"same user", "node's host"}) == "");
  }
  SECTION("no such descriptor") {
    CHECK(segment::map(self, 999'999, 8192).error().code == errc::unreachable);
    CHECK(segment::map(self, -1, 8192).error().code == errc::unreachable);
  }
  SECTION("a file") {
    scratch_directory scratch;
    const auto file = make_file(scratch / "file", 8192);
    CHECK(segment::map(self, file.get(), 8192).error().code == errc::invalid_argument);
  }
  SECTION("a pipe, without waiting for its other end") {
    const auto ends = make_pipe();
    CHECK_FALSE(segment::map(self, ends.read_end.get(), 8192).has_value());
  }
  SECTION("memory that can still shrink") {
    const unique_descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(loose.get(), 8192) == 0);
    CHECK(segment::map(self, loose.get(), 8192).error().code == errc::invalid_argument);
  }
}

TEST_CASE("more memory than the host has is an error", "[io][segment]") {
  const auto e = segment::create(std::uint64_t{1} << 46U).error();
  CHECK(e.code == errc::limit_exceeded);
  CHECK(missing(e.text, {"70368744177664 bytes"}) == "");
}
