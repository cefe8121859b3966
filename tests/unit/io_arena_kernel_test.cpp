#include "io/memory/arena.hpp"
#include "io/memory/private_memory.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/mman.h>

namespace io_arena_kernel_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

constexpr std::uint64_t mebibyte = 1U << 20U;

/// The flags of the mapping that contains this byte, as " rd wr sh".
std::string flags_of_mapping(const void* at) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(at);
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      is_it = begin <= wanted && wanted < end;
    if (is_it && line.starts_with("VmFlags:"))
      return line.substr(8);
  }
  return {};
}

/// A host that claims to have huge pages, made of ordinary ones; it provides the first `given` extents and no more.
struct promising_host {
  huge_page_room room{huge_page_counts{8, 8}, std::nullopt};
  int given = 0;
  int made = 0;

  arena_options with(huge_page_choice choice) {
    arena_options out{8 * mebibyte, 2 * mebibyte, choice};
    out.huge_page_patience = duration::zero();
    out.kernel.huge_pages = [this](const huge_page_kind& /*kind*/) { return room; };
    out.kernel.create = [this](unsigned flags) {
      made += (flags & MFD_HUGETLB) != 0 ? 1 : 0;
      return ::memfd_create("troupe-test", flags & (MFD_CLOEXEC | MFD_ALLOW_SEALING));
    };
    out.kernel.populate = [this](std::span<std::byte> /*bytes*/, int /*file*/, std::uint64_t /*offset*/) {
      return given-- > 0 ? 0 : EFAULT;
    };
    return out;
  }
};

} // namespace

TEST_CASE("arena kernel: without the huge pages that the kernel reserved, ordinary ones are used, or the start fails",
          "[io][arena]") {
  promising_host host;
  const auto made = arena::create(host.with(huge_page_choice::automatic));
  REQUIRE(made);
  CHECK(host.made == 1);
  CHECK_FALSE((*made)->of_huge_pages());
  CHECK((*made)->describe() == "4 KiB pages, huge ones where the kernel joins them");
  const auto refused = arena::create(host.with(huge_page_choice::two_mib));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(missing(refused.error().text, {"8 MiB takes 4 huge pages of 2 MiB", "a control group limit",
                                       "set memory.huge_pages to \"auto\""}) == "");
  // A host that keeps its word.
  host.given = 1;
  const auto huge = arena::create(host.with(huge_page_choice::automatic));
  REQUIRE(huge);
  CHECK((*huge)->of_huge_pages());
}

TEST_CASE("arena kernel: huge pages beyond the limit of a cgroup are not attempted", "[io][arena]") {
  promising_host host;
  host.given = 1;
  host.room.group = group_limit{8 * mebibyte, 2 * mebibyte, "/sys/fs/cgroup/kv/hugetlb.2MB.max"};
  const auto made = arena::create(host.with(huge_page_choice::automatic));
  REQUIRE(made);
  CHECK_FALSE((*made)->of_huge_pages());
  CHECK(host.made == 0);
  const auto refused = arena::create(host.with(huge_page_choice::two_mib));
  REQUIRE_FALSE(refused);
  CHECK(missing(refused.error().text,
                {"hugetlb limit", "6 MiB of 8 MiB", "/sys/fs/cgroup/kv/hugetlb.2MB.max", "hugepages-2Mi"}) == "");
  host.room.group->used = 0;
  CHECK((*arena::create(host.with(huge_page_choice::two_mib)))->of_huge_pages());
}

TEST_CASE("arena kernel: the error for missing huge pages states how many to reserve in total", "[io][arena]") {
  promising_host host;
  host.room.host = huge_page_counts{100, 1};
  const auto refused = arena::create(host.with(huge_page_choice::two_mib));
  REQUIRE_FALSE(refused);
  CHECK(missing(refused.error().text, {"1 of the 100", "103 in all", "sysctl vm.nr_hugepages=103"}) == "");
}

TEST_CASE("arena kernel: no core dump contains the arena, neither of the node nor of a client", "[io][arena]") {
  auto made = arena::create({4 * mebibyte, mebibyte, huge_page_choice::off});
  REQUIRE(made);
  REQUIRE((*made)->provide(0));
  const auto mapped = arena::map((*made)->name(), 4 * mebibyte);
  REQUIRE(mapped);
  const auto own = private_memory::get(mebibyte);
  REQUIRE(own);
  for (const auto* at : {(*made)->bytes().data(), (*mapped)->bytes().data(), own->bytes().data()})
    CHECK(flags_of_mapping(at).find(" dd") != std::string::npos);
}

} // namespace io_arena_kernel_test
