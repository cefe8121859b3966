#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The limits that the control groups of this process set: its own group and those above it, in version 1 of control
/// groups, in version 2, and where a host has both. May be called by any thread; reads some small files each time.

namespace troupe {

/// A limit of a control group, and what is used of it.
struct group_limit {
  std::uint64_t bytes = 0;
  /// What the group uses, without what the kernel gives up as soon as it is short.
  std::uint64_t used = 0;
  /// Which says so, for people: "/sys/fs/cgroup/kv/memory.max".
  std::string file;

  std::uint64_t left() const noexcept { return bytes - (used < bytes ? used : bytes); }
};

/// A number that a file of a control group holds; nothing where there is none, or where it means "no limit".
std::optional<std::uint64_t> limit_of_group(std::string_view text);

/// The limits on memory: memory.max and memory.high, or memory.limit_in_bytes. `root`: where /proc and the mount points
/// of control groups lie; another one than "/" is for tests.
std::vector<group_limit> memory_limits_of_groups(const std::filesystem::path& root = "/");

/// The limits on huge pages of a size as the kernel writes it, "2MB" or "1GB".
std::vector<group_limit> huge_page_limits_of_groups(std::string_view size, const std::filesystem::path& root = "/");

/// The limit of which the least is left; null if there is none.
const group_limit* tightest(const std::vector<group_limit>& limits);

} // namespace troupe
