#include "io/arena.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace io_segment_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

TEST_CASE("an arena is zeroed, aligned and rounded up", "[io][arena]") {
  auto made = arena::create(5000);
  REQUIRE(made.has_value());
  const auto bytes = (*made)->bytes();
  CHECK(bytes.size() == 8192);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % page_alignment == 0);
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(arena::create(0).error().code == errc::invalid_argument);
}

TEST_CASE("an arena asks for memory of a node, and takes any other", "[io][arena]") {
  for (const std::int32_t node : {0, 1, 1023, 1024, -5, std::numeric_limits<std::int32_t>::max()}) {
    INFO(node);
    auto made = arena::create(1 << 16, node);
    REQUIRE(made.has_value());
    (*made)->bytes().back() = std::byte{1};
  }
  // What the kernel was asked for: mode and node of the mapping.
  auto made = arena::create(1 << 16, 0);
  int mode = -1;
  unsigned long nodes[16]{};
  if (::syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, (*made)->bytes().data(), MPOL_F_ADDR) != 0) {
    WARN("this machine has no memory policies");
    return;
  }
  CHECK(mode == MPOL_PREFERRED);
  CHECK(nodes[0] == 1);
}

TEST_CASE("what another process writes into an arena arrives", "[io][arena]") {
  auto made = arena::create(1 << 20);
  REQUIRE(made.has_value());
  const auto node = ::getpid();
  const auto descriptor = (*made)->descriptor();
  const auto& proof = (*made)->proof();
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto mapped = arena::map(node, descriptor, 1 << 20, proof);
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

TEST_CASE("a mapped arena outlives the one who made it", "[io][arena]") {
  auto made = arena::create(4096);
  REQUIRE(made.has_value());
  auto mapped = arena::map(::getpid(), (*made)->descriptor(), 4096, (*made)->proof());
  REQUIRE(mapped.has_value());
  (*made)->bytes()[7] = std::byte{9};
  made->reset();
  CHECK((*mapped)->bytes()[7] == std::byte{9});
}

TEST_CASE("nobody can shrink or grow an arena", "[io][arena]") {
  auto made = arena::create(8192);
  REQUIRE(made.has_value());
  CHECK(::ftruncate((*made)->descriptor(), 4096) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate((*made)->descriptor(), 16384) == -1);
  CHECK(::fcntl((*made)->descriptor(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
}

TEST_CASE("mapping refuses what is not the promised arena", "[io][arena]") {
  auto made = arena::create(8192);
  REQUIRE(made.has_value());
  const auto self = ::getpid();
  const auto descriptor = (*made)->descriptor();
  const auto& proof = (*made)->proof();
  const auto mapped = [&](int fd, std::uint64_t bytes = 8192) { return arena::map(self, fd, bytes, proof); };
  SECTION("another size") {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{12288},
                                      ~std::uint64_t{0}, ~std::uint64_t{0} - 4095})
      CHECK(mapped(descriptor, bytes).error().code == errc::identity_mismatch);
  }
  SECTION("no such process") {
    const auto e = arena::map(0x7fffffff, descriptor, 8192, proof).error();
    CHECK(e.code == errc::unreachable);
    CHECK(missing(e.text, {"same user", "node's host"}) == "");
  }
  SECTION("no such descriptor") {
    CHECK(mapped(999'999).error().code == errc::unreachable);
    CHECK(mapped(-1).error().code == errc::unreachable);
  }
  SECTION("a file") {
    scratch_directory scratch;
    const auto file = make_file(scratch / "file", 8192 + 4096);
    CHECK(mapped(file.get()).error().code == errc::identity_mismatch);
  }
  SECTION("a pipe, without waiting for its other end") {
    const auto ends = make_pipe();
    CHECK_FALSE(mapped(ends.read_end.get()).has_value());
    CHECK_FALSE(mapped(ends.write_end.get()).has_value());
  }
  SECTION("memory that can still shrink, or grow") {
    std::vector<std::uint8_t> contents(8192 + 4096);
    REQUIRE(::pread(descriptor, contents.data(), contents.size(), 0) == static_cast<ssize_t>(contents.size()));
    for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW}) {
      const unique_descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      REQUIRE(::pwrite(loose.get(), contents.data(), contents.size(), 0) == static_cast<ssize_t>(contents.size()));
      REQUIRE(::fcntl(loose.get(), F_ADD_SEALS, seals) == 0);
      CHECK(mapped(loose.get()).error().code == errc::identity_mismatch);
      // All else is as it should be.
      REQUIRE(::fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
      CHECK(mapped(loose.get()).has_value());
    }
  }
}

TEST_CASE("an arena of another node is refused, though process, descriptor and size are right", "[io][arena]") {
  // Two nodes in process namespaces of their own have the same numbers; here, each finds the other's memory.
  auto mine = arena::create(8192);
  auto other = arena::create(8192);
  REQUIRE(mine.has_value());
  REQUIRE(other.has_value());
  CHECK((*mine)->proof() != (*other)->proof());
  const auto e = arena::map(::getpid(), (*other)->descriptor(), 8192, (*mine)->proof()).error();
  CHECK(e.code == errc::identity_mismatch);
  CHECK(missing(e.text, {"is not the memory of this node", "host, process namespace and user"}) == "");
  CHECK_FALSE(arena::map(::getpid(), (*mine)->descriptor(), 8192, (*other)->proof()).has_value());
}

TEST_CASE("a proof has all its bytes, and none is left out of the comparison", "[io][arena]") {
  auto made = arena::create(4096);
  REQUIRE(made.has_value());
  const auto map = [&](std::span<const std::uint8_t> proof) {
    return arena::map(::getpid(), (*made)->descriptor(), 4096, proof);
  };
  const auto& proof = (*made)->proof();
  REQUIRE(proof.size() == 32);
  CHECK(map(proof).has_value());
  CHECK(map({}).error().code == errc::identity_mismatch);
  CHECK(map(std::span(proof).first(31)).error().code == errc::identity_mismatch);
  auto longer = proof;
  longer.push_back(0);
  CHECK(map(longer).error().code == errc::identity_mismatch);
  for (std::size_t i = 0; i < proof.size(); ++i) {
    auto wrong = proof;
    wrong[i] ^= 1U;
    CHECK(map(wrong).error().code == errc::identity_mismatch);
  }
}

TEST_CASE("nobody is told to map memory of another program whose contents are known", "[io][arena]") {
  // Sealed, of the right size, and with a proof that the node names: but not a node's arena.
  const unique_descriptor foreign(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(foreign.get(), 8192) == 0);
  REQUIRE(::fcntl(foreign.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  const std::vector<std::uint8_t> zeroes(32);
  CHECK(arena::map(::getpid(), foreign.get(), 4096, zeroes).error().code == errc::identity_mismatch);
}

TEST_CASE("the proof lies outside of the memory that transfers reach", "[io][arena]") {
  auto made = arena::create(4096);
  REQUIRE(made.has_value());
  auto mapped = arena::map(::getpid(), (*made)->descriptor(), 4096, (*made)->proof());
  REQUIRE(mapped.has_value());
  for (auto* x : {&*made, &*mapped}) {
    REQUIRE((*x)->bytes().size() == 4096);
    std::fill((*x)->bytes().begin(), (*x)->bytes().end(), std::byte{0xff});
  }
  CHECK(arena::map(::getpid(), (*made)->descriptor(), 4096, (*made)->proof()).has_value());
}

TEST_CASE("more memory than the host has is an error", "[io][arena]") {
  const auto e = arena::create(std::uint64_t{1} << 46U).error();
  CHECK(e.code == errc::limit_exceeded);
  CHECK(missing(e.text, {"70368744177664 bytes"}) == "");
}

} // namespace io_segment_test
