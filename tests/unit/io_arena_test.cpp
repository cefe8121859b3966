#include "io/memory/arena.hpp"
#include "io/page.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <utility>

namespace io_arena_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

/// An arena of ordinary pages.
result<std::shared_ptr<arena>> ordinary(std::uint64_t bytes, std::uint64_t extent_bytes = 4096) {
  return arena::create({bytes, extent_bytes, huge_page_choice::off});
}

/// How many of the pages of an arena are really there.
std::size_t pages_there(arena& x) {
  std::vector<unsigned char> there(x.bytes().size() / page_alignment);
  REQUIRE(::mincore(x.bytes().data(), x.bytes().size(), there.data()) == 0);
  return static_cast<std::size_t>(std::ranges::count_if(there, [](unsigned char c) { return (c & 1U) != 0; }));
}

/// The number after this word in a file.
std::uint64_t number_in(const char* path, const std::string& word) {
  std::ifstream file(path);
  for (std::string next; file >> next;)
    if (std::uint64_t number = 0; next == word && file >> number)
      return number;
  FAIL(path << " has no " << word);
  return 0;
}

// The runtime of a sanitizer has `mlock` do nothing, so that it can have more memory than may be locked.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool locks = false;
#else
constexpr bool locks = true;
#endif

std::uint64_t locked_kilobytes() {
  return number_in("/proc/self/status", "VmLck:");
}

/// All memory of this host, in whole pages.
std::uint64_t host_bytes() {
  return number_in("/proc/meminfo", "MemTotal:") * 1024 / page_alignment * page_alignment;
}

/// Huge pages of 2 MiB that can be had now.
std::uint64_t free_huge_pages() {
  const auto number = [](const char* name) {
    std::ifstream file(std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + name);
    std::uint64_t out = 0;
    file >> out;
    return out;
  };
  return number("free_hugepages") - number("resv_hugepages");
}

/// Nothing may be locked into memory while it lives, also not by root.
class no_locking {
public:
  no_locking() {
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &limit_) == 0);
    auto none = limit_;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    REQUIRE(::syscall(SYS_capget, &header_, before_.data()) == 0);
    auto less = before_;
    less[0].effective &= ~(1U << CAP_IPC_LOCK);
    REQUIRE(::syscall(SYS_capset, &header_, less.data()) == 0);
  }
  no_locking(const no_locking&) = delete;
  no_locking& operator=(const no_locking&) = delete;
  ~no_locking() {
    ::syscall(SYS_capset, &header_, before_.data());
    ::setrlimit(RLIMIT_MEMLOCK, &limit_);
  }

private:
  rlimit limit_{};
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_{};
};

constexpr std::uint64_t mebibyte = 1U << 20U;

/// An arena of ordinary pages on NUMA nodes.
result<std::shared_ptr<arena>> placed(std::vector<numa_node> nodes, std::uint64_t bytes = 8 * 8192) {
  return arena::create({bytes, 8192, huge_page_choice::off, std::move(nodes)});
}

/// The NUMA node on which the kernel has placed this byte.
int node_of(const std::byte* at) {
  int out = -1;
  REQUIRE(::syscall(SYS_get_mempolicy, &out, nullptr, 0UL, at, static_cast<unsigned long>(MPOL_F_NODE | MPOL_F_ADDR)) ==
          0);
  return out;
}

/// Runs something in a thread in which the kernel answers this call with this error. False if it cannot be done.
template <class F>
bool while_refused(long call, int code, F what) {
  bool refused = false;
  std::jthread([&] {
    std::array<sock_filter, 4> rules{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(code)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
    refused = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
    if (refused)
      what();
  }).join();
  return refused;
}

} // namespace

TEST_CASE("arena: an arena consists of whole extents", "[io][arena]") {
  auto made = ordinary(5000);
  REQUIRE(made.has_value());
  CHECK((*made)->bytes().size() == 4096);
  CHECK((*made)->extent_bytes() == 4096);
  CHECK(reinterpret_cast<std::uintptr_t>((*made)->bytes().data()) % page_alignment == 0);
  CHECK((*ordinary(5 * 8192 + 4096, 8192))->bytes().size() == 5 * 8192);
  CHECK(ordinary(0).error().code == errc::invalid_argument);
  CHECK(ordinary(4095).error().code == errc::invalid_argument);
  CHECK(ordinary(1 << 20, 0).error().code == errc::invalid_argument);
  CHECK(ordinary(1 << 20, 4097).error().code == errc::invalid_argument);
}

TEST_CASE("arena: memory of an arena exists once it is provided, extent by extent, and is zeroed", "[io][arena]") {
  auto made = ordinary(16 * 8192, 8192);
  REQUIRE(made.has_value());
  auto& x = **made;
  CHECK(pages_there(x) == 0);
  const auto third = x.provide(3);
  REQUIRE(third);
  CHECK(third->data() == x.bytes().data() + 3 * 8192);
  CHECK(third->size() == 8192);
  CHECK(std::ranges::all_of(*third, [](std::byte b) { return b == std::byte{0}; }));
  CHECK(pages_there(x) == 2);
  REQUIRE(x.provide(15));
  CHECK(pages_there(x) == 4);
  CHECK(x.provide(16).error().code == errc::out_of_range);
  CHECK(pages_there(x) == 4);
}

TEST_CASE("arena: an arena without provided memory may be as large as host memory and no larger", "[io][arena]") {
  CHECK(ordinary(host_bytes()));
  const auto e = ordinary(std::uint64_t{1} << 46U).error();
  CHECK(e.code == errc::limit_exceeded);
  CHECK(missing(e.text, {"64 TiB", "memory.bytes"}) == "");
}

TEST_CASE("arena: an extent for which the host has no memory is an error and not a signal", "[io][arena]") {
  // Running programs, at least the kernel, use some of it.
  auto made = ordinary(host_bytes(), host_bytes());
  REQUIRE(made);
  const auto e = (*made)->provide(0).error();
  CHECK(e.code == errc::limit_exceeded);
  CHECK(missing(e.text, {"the host has no memory for an extent", "are available"}) == "");
}

TEST_CASE("arena: provided memory is locked", "[io][arena]") {
  auto made = ordinary(4 * 8192, 8192);
  REQUIRE(made);
  const auto before = locked_kilobytes();
  REQUIRE((*made)->provide(1));
  CHECK(locked_kilobytes() == before + (locks ? 8 : 0));
  CHECK((*made)->describe() == "4 KiB pages");
  made->reset();
  CHECK(locked_kilobytes() == before);
}

TEST_CASE("arena: memory that may not be locked is used with a warning", "[io][arena]") {
  auto made = ordinary(4 * 8192, 8192);
  REQUIRE(made);
  const auto before = locked_kilobytes();
  {
    const no_locking meanwhile;
    CHECK((*made)->describe() == "4 KiB pages");
    const auto bytes = (*made)->provide(1);
    REQUIRE(bytes);
    bytes->back() = std::byte{1};
  }
  CHECK(locked_kilobytes() == before);
  CHECK((*made)->describe() == (locks ? "4 KiB pages, not locked (RLIMIT_MEMLOCK)" : "4 KiB pages"));
}

TEST_CASE("arena: an arena uses huge pages where the host has enough, otherwise ordinary ones", "[io][arena]") {
  const auto free = free_huge_pages();
  INFO(free);
  if (free < 2)
    WARN("skipped in part: this host has no huge pages (sysctl vm.nr_hugepages=64)");
  auto made = arena::create({4 * mebibyte, 2 * mebibyte});
  REQUIRE(made);
  CHECK((*made)->describe() == (free < 2 ? "4 KiB pages, huge ones where the kernel joins them" : "2 MiB huge pages"));
  const auto bytes = (*made)->provide(1);
  REQUIRE(bytes);
  CHECK(std::ranges::all_of(*bytes, [](std::byte b) { return b == std::byte{0}; }));
  bytes->back() = std::byte{42};
  auto mapped = arena::map((*made)->name(), 4 * mebibyte);
  REQUIRE(mapped);
  CHECK((*mapped)->bytes().back() == std::byte{42});
  CHECK((*mapped)->bytes().size() == 4 * mebibyte);
  if (free >= 2)
    CHECK(free_huge_pages() == free - 2);
  made->reset();
  mapped->reset();
  CHECK(free_huge_pages() == free);
}

TEST_CASE("arena: requested huge pages are provided, or the error states how to get them", "[io][arena]") {
  const auto free = free_huge_pages();
  const auto made = arena::create({4 * mebibyte, 2 * mebibyte, huge_page_choice::two_mib});
  if (free >= 2) {
    REQUIRE(made);
    CHECK((*made)->describe() == "2 MiB huge pages");
    CHECK((*made)->provide(0));
  } else {
    REQUIRE_FALSE(made);
    CHECK(made.error().code == errc::limit_exceeded);
    CHECK(missing(made.error().text, {"takes 2 huge pages of 2 MiB", "vm.nr_hugepages=", "memory.huge_pages"}) == "");
  }
  // More than any host of ours has set aside.
  const auto large =
      arena::create({host_bytes() / mebibyte / 2 * 2 * mebibyte, 2 * mebibyte, huge_page_choice::two_mib});
  REQUIRE_FALSE(large);
  CHECK(large.error().code == errc::limit_exceeded);
  CHECK(arena::create({4 * mebibyte, mebibyte, huge_page_choice::two_mib}).error().code == errc::invalid_argument);
}

TEST_CASE("arena: huge pages of one GiB hold a smaller arena", "[io][arena]") {
  const auto made = arena::create({6 * mebibyte, 2 * mebibyte, huge_page_choice::one_gib});
  if (!made) {
    WARN("skipped in part: this host has no huge page of 1 GiB");
    CHECK(missing(made.error().text, {"1 GiB", "memory.huge_pages"}) == "");
    return;
  }
  CHECK((*made)->describe() == "1 GiB huge pages");
  CHECK((*made)->bytes().size() == 6 * mebibyte);
  REQUIRE((*made)->provide(2));
  (*made)->bytes().back() = std::byte{42};
  auto mapped = arena::map((*made)->name(), 6 * mebibyte);
  REQUIRE(mapped);
  CHECK((*mapped)->bytes().back() == std::byte{42});
}

TEST_CASE("arena: an arena lies on the given NUMA nodes", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  if (usable.empty()) {
    WARN("skipped: the kernel tells of no NUMA nodes");
    return;
  }
  auto made = placed({usable.front()});
  REQUIRE(made);
  CHECK((*made)->describe() == "4 KiB pages, on NUMA node " + std::to_string(usable.front()));
  for (std::uint32_t extent = 0; extent < 8; ++extent) {
    CHECK((*made)->numa_node_of(extent) == usable.front());
    const auto bytes = (*made)->provide(extent);
    REQUIRE(bytes);
    CHECK((*made)->numa_node_of(extent) == usable.front());
    CHECK(node_of(bytes->data()) == static_cast<int>(usable.front()));
    CHECK(node_of(&bytes->back()) == static_cast<int>(usable.front()));
  }
  CHECK((*made)->numa_node_of(8) == std::nullopt);
  // A process that maps it does not know the placement and does not need it.
  auto mapped = arena::map((*made)->name(), 8 * 8192);
  REQUIRE(mapped);
  CHECK((*mapped)->numa_node_of(0) == std::nullopt);

  auto spread = placed(usable);
  REQUIRE(spread);
  for (std::uint32_t extent = 0; extent < 8; ++extent) {
    CHECK((*spread)->numa_node_of(extent) == usable[extent % usable.size()]);
    const auto bytes = (*spread)->provide(extent);
    REQUIRE(bytes);
    CHECK(node_of(bytes->data()) == static_cast<int>((*spread)->numa_node_of(extent).value()));
  }
}

TEST_CASE("arena: huge pages lie on the given NUMA nodes", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  const bool huge = free_huge_pages() >= 4;
  if (usable.empty() || !huge) {
    WARN("skipped: this host has no huge pages (sysctl vm.nr_hugepages=64), or tells of no NUMA nodes");
    return;
  }
  auto made = arena::create({8 * mebibyte, 2 * mebibyte, huge_page_choice::two_mib, usable});
  REQUIRE(made);
  for (std::uint32_t extent = 0; extent < 4; ++extent) {
    const auto bytes = (*made)->provide(extent);
    REQUIRE(bytes);
    CHECK(node_of(bytes->data()) == static_cast<int>((*made)->numa_node_of(extent).value()));
  }
}

TEST_CASE("arena: without given NUMA nodes the kernel places the arena", "[io][arena]") {
  auto made = placed({});
  REQUIRE(made);
  CHECK((*made)->describe() == "4 KiB pages");
  CHECK((*made)->numa_node_of(0) == std::nullopt);
  REQUIRE((*made)->provide(0));
  CHECK((*made)->numa_node_of(0) == std::nullopt);
}

TEST_CASE("arena: an unknown NUMA node is refused, and the error lists those of the host", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  if (usable.empty()) {
    WARN("skipped: the kernel tells of no NUMA nodes");
    return;
  }
  const auto absent = GENERATE(numa_nodes_max - 1, numa_nodes_max, ~numa_node{0});
  const auto e = placed({usable.front(), absent}).error();
  CHECK(e.code == errc::invalid_argument);
  CHECK(missing(e.text, {"NUMA node " + std::to_string(absent) + ":", numa_text(usable)}) == "");
}

TEST_CASE("arena: an arena is used without placement where the kernel refuses it", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  const auto code = GENERATE(EPERM, ENOSYS, EINVAL, ENOMEM);
  const auto refused = while_refused(SYS_mbind, code, [&] {
    auto made = placed({usable.empty() ? 0 : usable.front()});
    REQUIRE(made);
    CHECK((*made)->describe() == "4 KiB pages");
    CHECK((*made)->numa_node_of(0) == std::nullopt);
    const auto bytes = (*made)->provide(0);
    REQUIRE(bytes);
    bytes->back() = std::byte{1};
  });
  if (!refused)
    WARN("skipped: calls cannot be refused here");
}

TEST_CASE("arena: memory counts as placed as requested where the kernel does not report its node", "[io][arena]") {
  const auto usable = usable_numa_nodes();
  if (usable.empty()) {
    WARN("skipped: the kernel tells of no NUMA nodes");
    return;
  }
  const auto refused = while_refused(SYS_get_mempolicy, EPERM, [&] {
    auto made = placed({usable.back()});
    REQUIRE(made);
    REQUIRE((*made)->provide(0));
    CHECK((*made)->numa_node_of(0) == usable.back());
  });
  if (!refused)
    WARN("skipped: calls cannot be refused here");
}

TEST_CASE("arena: writes of another process to an arena are visible", "[io][arena]") {
  auto made = ordinary(1 << 20, 1 << 20);
  REQUIRE(made.has_value());
  REQUIRE((*made)->provide(0));
  const auto name = (*made)->name();
  CHECK(name.process == ::getpid());
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto mapped = arena::map(name, 1 << 20);
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

TEST_CASE("arena: a mapped arena outlives its creator and provides no more memory", "[io][arena]") {
  auto made = ordinary(4096);
  REQUIRE(made.has_value());
  auto mapped = arena::map((*made)->name(), 4096);
  REQUIRE(mapped.has_value());
  REQUIRE((*made)->provide(0));
  (*made)->bytes()[7] = std::byte{9};
  made->reset();
  CHECK((*mapped)->bytes()[7] == std::byte{9});
  CHECK((*mapped)->provide(0).error().code == errc::out_of_range);
}

TEST_CASE("arena: an arena cannot be resized, and its proof cannot be written", "[io][arena]") {
  auto made = ordinary(8192);
  REQUIRE(made.has_value());
  const auto name = (*made)->name();
  for (const auto& [descriptor, bytes] : {std::pair{name.descriptor, 8192}, std::pair{name.proof_descriptor, 4096}}) {
    CHECK(::ftruncate(descriptor, bytes - 4096) == -1);
    CHECK(errno == EPERM);
    CHECK(::ftruncate(descriptor, bytes + 4096) == -1);
    CHECK(errno == EPERM);
    CHECK(::fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  }
  CHECK(::pwrite(name.proof_descriptor, "x", 1, 0) == -1);
  CHECK(errno == EPERM);
  CHECK(::mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, name.proof_descriptor, 0) == MAP_FAILED);
}

TEST_CASE("arena: mapping refuses anything but the promised arena", "[io][arena]") {
  auto made = ordinary(8192);
  REQUIRE(made.has_value());
  const auto name = (*made)->name();
  const auto mapped = [&](int descriptor, std::uint64_t bytes = 8192) {
    auto other = name;
    other.descriptor = descriptor;
    return arena::map(other, bytes);
  };
  const auto proved = [&](int descriptor) {
    auto other = name;
    other.proof_descriptor = descriptor;
    return arena::map(other, 8192);
  };
  CHECK(mapped(name.descriptor));
  SECTION("another size") {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{12288},
                                      ~std::uint64_t{0}, ~std::uint64_t{0} - 4095})
      CHECK(mapped(name.descriptor, bytes).error().code == errc::identity_mismatch);
  }
  SECTION("no such process") {
    auto other = name;
    other.process = 0x7fffffff;
    const auto e = arena::map(other, 8192).error();
    CHECK(e.code == errc::unreachable);
    CHECK(missing(e.text, {"same user", "node's host"}) == "");
  }
  SECTION("no such descriptor") {
    for (const int descriptor : {999'999, -1}) {
      CHECK(mapped(descriptor).error().code == errc::unreachable);
      CHECK(proved(descriptor).error().code == errc::unreachable);
    }
  }
  SECTION("a file") {
    scratch_directory scratch;
    const auto file = make_file(scratch / "file", 8192);
    CHECK(mapped(file.get()).error().code == errc::identity_mismatch);
    CHECK(proved(file.get()).error().code == errc::identity_mismatch);
  }
  SECTION("a pipe, without waiting for its other end") {
    const auto ends = make_pipe();
    CHECK_FALSE(mapped(ends.read_end.get()).has_value());
    CHECK_FALSE(mapped(ends.write_end.get()).has_value());
    CHECK_FALSE(proved(ends.read_end.get()).has_value());
  }
  SECTION("memory that can still shrink, or grow") {
    for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW}) {
      const unique_descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      REQUIRE(::ftruncate(loose.get(), 8192) == 0);
      REQUIRE(::fcntl(loose.get(), F_ADD_SEALS, seals) == 0);
      const auto e = mapped(loose.get()).error();
      CHECK(e.code == errc::identity_mismatch);
      CHECK(missing(e.text, {"could be shrunk"}) == "");
    }
  }
  SECTION("a proof that can still be written") {
    std::vector<std::uint8_t> contents(4096);
    REQUIRE(::pread(name.proof_descriptor, contents.data(), contents.size(), 0) == 4096);
    const int all_but_write = F_SEAL_SHRINK | F_SEAL_GROW;
    const unique_descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::pwrite(loose.get(), contents.data(), contents.size(), 0) == 4096);
    REQUIRE(::fcntl(loose.get(), F_ADD_SEALS, all_but_write) == 0);
    CHECK(proved(loose.get()).error().code == errc::identity_mismatch);
    // All else is as it should be.
    REQUIRE(::fcntl(loose.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0);
    CHECK(proved(loose.get()).has_value());
  }
}

TEST_CASE("arena: a proof belongs to one arena only", "[io][arena]") {
  auto made = ordinary(8192);
  REQUIRE(made.has_value());
  // It has the same seals, the same size and the same process.
  const unique_descriptor other(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(other.get(), 8192) == 0);
  REQUIRE(::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  auto name = (*made)->name();
  name.descriptor = other.get();
  CHECK(arena::map(name, 8192).error().code == errc::identity_mismatch);
}

TEST_CASE("arena: an arena of another node is refused although process, descriptors and size are right",
          "[io][arena]") {
  // Two nodes in process namespaces of their own have the same numbers; here, each finds the other's memory.
  auto mine = ordinary(8192);
  auto other = ordinary(8192);
  REQUIRE(mine.has_value());
  REQUIRE(other.has_value());
  CHECK((*mine)->name().proof != (*other)->name().proof);
  auto name = (*other)->name();
  name.proof = (*mine)->name().proof;
  const auto e = arena::map(name, 8192).error();
  CHECK(e.code == errc::identity_mismatch);
  CHECK(missing(e.text, {"is not the memory of this node", "Unix socket"}) == "");
}

TEST_CASE("arena: every byte of the proof is compared", "[io][arena]") {
  auto made = ordinary(4096);
  REQUIRE(made.has_value());
  auto name = (*made)->name();
  const auto proof = name.proof;
  const auto map = [&](std::vector<std::uint8_t> other) {
    name.proof = std::move(other);
    return arena::map(name, 4096);
  };
  REQUIRE(proof.size() == 32);
  CHECK(map(proof).has_value());
  CHECK(map({}).error().code == errc::identity_mismatch);
  CHECK(map({proof.begin(), proof.end() - 1}).error().code == errc::identity_mismatch);
  auto longer = proof;
  longer.push_back(0);
  CHECK(map(longer).error().code == errc::identity_mismatch);
  for (std::size_t i = 0; i < proof.size(); ++i) {
    auto wrong = proof;
    wrong[i] ^= 1U;
    CHECK(map(wrong).error().code == errc::identity_mismatch);
  }
}

TEST_CASE("arena: memory of another program with known contents is refused", "[io][arena]") {
  // Sealed, of the right size, and with a proof that the node names: but not a node's arena.
  const unique_descriptor foreign(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(foreign.get(), 4096) == 0);
  REQUIRE(::fcntl(foreign.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
  const auto e = arena::map({::getpid(), foreign.get(), foreign.get(), std::vector<std::uint8_t>(32)}, 4096).error();
  CHECK(e.code == errc::identity_mismatch);
}

TEST_CASE("arena: overwriting an arena does not reach its proof", "[io][arena]") {
  auto made = ordinary(4096);
  REQUIRE(made.has_value());
  auto mapped = arena::map((*made)->name(), 4096);
  REQUIRE(mapped.has_value());
  REQUIRE((*made)->provide(0));
  for (auto* x : {&*made, &*mapped})
    std::fill((*x)->bytes().begin(), (*x)->bytes().end(), std::byte{0xff});
  CHECK(arena::map((*made)->name(), 4096).has_value());
}

} // namespace io_arena_test
