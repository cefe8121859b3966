#include "base/control_groups.hpp"
#include "base/host_memory.hpp"
#include "base/processors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace base_host_memory_test {

using namespace troupe;

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;

/// A directory that looks like the /proc and /sys of a host of 1000 MiB, of which 800 are available.
class host {
public:
  host() { put("proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable: 819200 kB\nHugetlb: 102400 kB\n"); }

  const fs::path& root() const { return directory_.path(); }

  void put(const fs::path& file, const std::string& text) const {
    const auto whole = root() / file;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  void put(const fs::path& file, std::uint64_t bytes) const { put(file, std::to_string(bytes) + "\n"); }

private:
  test::scratch_directory directory_;
};

constexpr auto none_of_version_1 = "9223372036854771712\n";

/// Prepares a host with cgroup v1 only.
void be_version_1(const host& x, const std::string& group) {
  x.put("proc/self/cgroup", "9:name=systemd:/\n5:cpuacct,memory:" + group + "\n4:hugetlb:" + group + "\n");
  x.put("proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,cpuacct,memory\n"
        "36 31 0:33 / /mnt/tlb rw,relatime - cgroup cgroup rw,hugetlb\n");
}

} // namespace

TEST_CASE("host memory: host memory is parsed from the text of the kernel", "[base]") {
  const auto available = [](std::string_view text) { return bytes_of_meminfo(text, "MemAvailable:"); };
  CHECK(available("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:     512 kB\nBuffers: 3 kB\n") == 512 * 1024);
  CHECK_FALSE(available("MemTotal:  1000 kB\n"));
  CHECK_FALSE(available("MemAvailable: much\n"));
  CHECK_FALSE(available(""));
  CHECK(available("MemAvailable: 7") == 7 * 1024);
}

TEST_CASE("host memory: a cgroup limit is a number, or one of two texts for unlimited", "[base]") {
  CHECK(limit_of_group("4096\n") == 4096);
  CHECK(limit_of_group("0\n") == 0);
  CHECK_FALSE(limit_of_group("max\n"));
  CHECK_FALSE(limit_of_group(none_of_version_1));
  CHECK_FALSE(limit_of_group("18446744073709551615\n"));
  CHECK_FALSE(limit_of_group(""));
  CHECK(group_limit{4096, 1024, {}}.left() == 3072);
  CHECK(group_limit{4096, 8192, {}}.left() == 0);
}

TEST_CASE("host memory: without cgroups a process may use the memory of the host", "[base]") {
  const host x;
  CHECK(available_memory(x.root()) == 800 * mebibyte);
  CHECK(memory_bound_of_process(x.root()) == memory_bound{900 * mebibyte, "this host has"});
  CHECK(memory_limits_of_groups(x.root()).empty());
  CHECK(available_memory("/nowhere") == 0);
  CHECK_FALSE(memory_left("/nowhere"));
  CHECK(memory_bound_of_process("/nowhere").bytes == 0);
}

TEST_CASE(
    "host memory: cgroup v2 limits apply, including those of parent groups, and idle memory is not counted as used",
    "[base]") {
  const host x;
  x.put("proc/self/cgroup", "0::/pods/kv\n");
  x.put("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  x.put("sys/fs/cgroup/pods/kv/memory.max", "max\n");
  x.put("sys/fs/cgroup/pods/kv/memory.current", 100 * mebibyte);
  CHECK(available_memory(x.root()) == 800 * mebibyte);
  x.put("sys/fs/cgroup/pods/memory.max", 300 * mebibyte);
  x.put("sys/fs/cgroup/pods/memory.current", 120 * mebibyte);
  x.put("sys/fs/cgroup/pods/memory.stat", "anon 5\ninactive_file " + std::to_string(20 * mebibyte) + "\n");
  CHECK(available_memory(x.root()) == 200 * mebibyte);
  auto bound = memory_bound_of_process(x.root());
  CHECK(bound.bytes == 300 * mebibyte);
  CHECK(bound.whose.find("sys/fs/cgroup/pods/memory.max") != std::string::npos);
  // Beyond it the kernel does not kill, and lets the process hardly run.
  x.put("sys/fs/cgroup/pods/kv/memory.high", 200 * mebibyte);
  CHECK(available_memory(x.root()) == 100 * mebibyte);
  x.put("sys/fs/cgroup/pods/kv/memory.current", 250 * mebibyte);
  CHECK(memory_left(x.root()) == 0); // which is not the same as not to know
  x.put("sys/fs/cgroup/pods/kv/memory.current", 100 * mebibyte);
  CHECK(memory_bound_of_process(x.root()).bytes == 200 * mebibyte);
}

TEST_CASE("host memory: cgroup v1 limits apply, including those of parent groups", "[base]") {
  const host x;
  be_version_1(x, "/docker/kv");
  x.put("sys/fs/cgroup/memory/docker/kv/memory.limit_in_bytes", none_of_version_1);
  x.put("sys/fs/cgroup/memory/docker/kv/memory.usage_in_bytes", 10 * mebibyte);
  CHECK(available_memory(x.root()) == 800 * mebibyte);
  x.put("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", 400 * mebibyte);
  x.put("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", 50 * mebibyte);
  x.put("sys/fs/cgroup/memory/docker/memory.stat", "total_inactive_file " + std::to_string(10 * mebibyte) + "\n");
  CHECK(available_memory(x.root()) == 360 * mebibyte);
  const auto bound = memory_bound_of_process(x.root());
  CHECK(bound.bytes == 400 * mebibyte);
  CHECK(bound.whose.find("memory.limit_in_bytes") != std::string::npos);
  // The group does not count its subgroups.
  x.put("sys/fs/cgroup/memory/docker/memory.use_hierarchy", "0\n");
  CHECK(available_memory(x.root()) == 800 * mebibyte);
}

TEST_CASE("host memory: on a host with both cgroup versions, the one with the memory controller applies", "[base]") {
  const host x;
  be_version_1(x, "/kv");
  std::ofstream(x.root() / "proc/self/cgroup", std::ios::app) << "0::/\n";
  std::ofstream(x.root() / "proc/self/mountinfo", std::ios::app)
      << "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
  x.put("sys/fs/cgroup/memory/kv/memory.limit_in_bytes", 400 * mebibyte);
  x.put("sys/fs/cgroup/memory/kv/memory.usage_in_bytes", 100 * mebibyte);
  CHECK(available_memory(x.root()) == 300 * mebibyte);
}

TEST_CASE("host memory: in a container that sees only its own cgroup, its limit and those of its parents apply",
          "[base]") {
  const host x;
  x.put("proc/self/cgroup", "5:memory:/docker/0123\n");
  x.put("sys/fs/cgroup/memory/memory.limit_in_bytes", 500 * mebibyte);
  x.put("sys/fs/cgroup/memory/memory.usage_in_bytes", 100 * mebibyte);
  SECTION("its cgroup is the one that is mounted") {
    x.put("proc/self/mountinfo", "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    CHECK(available_memory(x.root()) == 400 * mebibyte);
  }
  SECTION("another cgroup is mounted than /proc/self/cgroup names") {
    x.put("proc/self/mountinfo", "35 31 0:32 /docker/9 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    CHECK(available_memory(x.root()) == 400 * mebibyte);
  }
  SECTION("/proc/self/cgroup names a path outside the mount") {
    x.put("proc/self/cgroup", "5:memory:/../0123\n");
    x.put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    CHECK(available_memory(x.root()) == 400 * mebibyte);
  }
  SECTION("a limit is set in a parent group") {
    x.put("proc/self/mountinfo", "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    x.put("sys/fs/cgroup/memory/memory.stat",
          "cache 1\nhierarchical_memory_limit " + std::to_string(300 * mebibyte) + "\n");
    CHECK(available_memory(x.root()) == 200 * mebibyte);
    CHECK(memory_bound_of_process(x.root()).bytes == 300 * mebibyte);
  }
}

TEST_CASE("host memory: limits on huge pages are parsed by size, for used and for reserved pages", "[base]") {
  const host x;
  be_version_1(x, "/b");
  CHECK(huge_page_limits_of_groups("2MB", x.root()).empty());
  x.put("mnt/tlb/b/hugetlb.2MB.limit_in_bytes", std::uint64_t{0});
  x.put("mnt/tlb/b/hugetlb.1GB.limit_in_bytes", none_of_version_1);
  CHECK(huge_page_limits_of_groups("1GB", x.root()).empty());
  const auto limits = huge_page_limits_of_groups("2MB", x.root());
  REQUIRE(limits.size() == 1);
  CHECK(limits[0].left() == 0);
  CHECK(limits[0].file.find("mnt/tlb/b/hugetlb.2MB.limit_in_bytes") != std::string::npos);

  const host y;
  y.put("proc/self/cgroup", "0::/b\n");
  y.put("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  y.put("sys/fs/cgroup/b/hugetlb.2MB.max", 64 * mebibyte);
  y.put("sys/fs/cgroup/b/hugetlb.2MB.current", 16 * mebibyte);
  y.put("sys/fs/cgroup/b/hugetlb.2MB.rsvd.max", 32 * mebibyte);
  y.put("sys/fs/cgroup/b/hugetlb.2MB.rsvd.current", 2 * mebibyte);
  const auto found = huge_page_limits_of_groups("2MB", y.root());
  REQUIRE(tightest(found) != nullptr);
  CHECK(tightest(found)->left() == 30 * mebibyte);
  CHECK(tightest({}) == nullptr);
}

TEST_CASE("host memory: this host reports some memory", "[base]") {
  CHECK(available_memory() > 0);
  CHECK(memory_bound_of_process().bytes > 0);
}

TEST_CASE("host memory: the CPU quota of a container is that of the tightest group, in both versions", "[base]") {
  const host x;
  CHECK_FALSE(processor_quota_of_groups(x.root()));
  x.put("proc/self/cgroup", "0::/pods/kv\n");
  x.put("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  CHECK_FALSE(processor_quota_of_groups(x.root()));
  x.put("sys/fs/cgroup/pods/kv/cpu.max", "max 100000\n");
  CHECK_FALSE(processor_quota_of_groups(x.root()));
  x.put("sys/fs/cgroup/pods/cpu.max", "400000 100000\n");
  CHECK(processor_quota_of_groups(x.root()) == 4.0);
  x.put("sys/fs/cgroup/pods/kv/cpu.max", "75000 50000\n");
  CHECK(processor_quota_of_groups(x.root()) == 1.5);
  x.put("sys/fs/cgroup/pods/cpu.max", "50000 100000\n");
  CHECK(processor_quota_of_groups(x.root()) == 0.5);
  x.put("sys/fs/cgroup/pods/cpu.max", "50000");
  CHECK(processor_quota_of_groups(x.root()) == 1.5);

  const host y;
  y.put("proc/self/cgroup", "7:cpu,cpuacct:/kv\n");
  y.put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n");
  y.put("sys/fs/cgroup/cpu/kv/cpu.cfs_quota_us", "-1\n");
  y.put("sys/fs/cgroup/cpu/kv/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(processor_quota_of_groups(y.root()));
  y.put("sys/fs/cgroup/cpu/kv/cpu.cfs_quota_us", "250000\n");
  CHECK(processor_quota_of_groups(y.root()) == 2.5);
}

TEST_CASE("host memory: threads are for the processors that affinity and quota allow, and for one at least", "[base]") {
  CHECK(usable_processors(128, std::nullopt) == 128);
  CHECK(usable_processors(128, 1.5) == 2);
  CHECK(usable_processors(128, 2.0) == 2);
  CHECK(usable_processors(4, 64.0) == 4);
  CHECK(usable_processors(4, 1e18) == 4);
  CHECK(usable_processors(4, 0.01) == 1);
  CHECK(usable_processors(4, 0.0) == 1);
  CHECK(usable_processors(0, std::nullopt) == 1);
  CHECK(usable_processors() >= 1);
}

TEST_CASE("host memory: a process that may use one processor of several counts one", "[base]") {
  // In a child: the number is counted once, and the affinity of this process is its own affair.
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    int first = 0;
    while (!CPU_ISSET(first, &set))
      ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ::_exit(::sched_setaffinity(0, sizeof set, &set) == 0 && affinity_processors() == 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

} // namespace base_host_memory_test
