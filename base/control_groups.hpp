#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The limits that control groups set for this process: its own group and those above it, in version 1, in version 2,
/// and on hosts with both. May be called by any thread; reads some small files each time.

namespace troupe {

/// A limit of a control group, and its use.
struct group_limit {
  std::uint64_t bytes = 0;
  /// The group's use, without what the kernel can reclaim at once.
  std::uint64_t used = 0;
  /// The file with the limit, for messages: "/sys/fs/cgroup/kv/memory.max".
  std::string file;

  std::uint64_t left() const noexcept { return bytes - (used < bytes ? used : bytes); }
};

/// The number in a file of a control group; nothing where there is none, or where it means "no limit".
std::optional<std::uint64_t> limit_of_group(std::string_view text);

/// The limits on memory: memory.max and memory.high, or memory.limit_in_bytes. `root` is the directory of /proc and of
/// the mount points; only tests use another one than "/".
std::vector<group_limit> memory_limits_of_groups(const std::filesystem::path& root = "/");

/// The least CPU quota, in processors, as 1.5: cpu.max, or cpu.cfs_quota_us by cpu.cfs_period_us; nothing if no group
/// has one.
std::optional<double> processor_quota_of_groups(const std::filesystem::path& root = "/");

/// The limits on huge pages of a size as the kernel writes it, "2MB" or "1GB".
std::vector<group_limit> huge_page_limits_of_groups(std::string_view size, const std::filesystem::path& root = "/");

/// The limit with the least left; null if there is none.
const group_limit* tightest(const std::vector<group_limit>& limits);

} // namespace troupe
