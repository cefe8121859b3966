#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// What this host, or the container that the process is in, has of memory. For defaults and for what is told to people:
/// all of it may change the next moment. `root`: where /proc and /sys lie; another one than "/" is for tests.

namespace troupe {

/// A line of the text of /proc/meminfo, such as "MemAvailable:", in bytes; nothing if it is not there.
std::optional<std::uint64_t> bytes_of_meminfo(std::string_view text, std::string_view line);

/// Bytes that could be taken without pushing others out: the least of what the host and this process's control groups
/// say; nothing if nobody says anything.
std::optional<std::uint64_t> memory_left(const std::filesystem::path& root = "/");

/// The same, 0 if nobody says anything.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

/// The most memory of ordinary pages that this process can ever have.
struct memory_bound {
  /// 0 where nobody says anything.
  std::uint64_t bytes = 0;
  /// What sets it, for people: "this host has", or "the control group of this process has (/sys/…/memory.max)".
  std::string whose;

  friend bool operator==(const memory_bound&, const memory_bound&) = default;
};

/// The least of what the host has beside its huge pages, and of the limits of this process's control groups.
memory_bound memory_bound_of_process(const std::filesystem::path& root = "/");

/// How much memory this process may lock; nothing if that has no limit, by RLIMIT_MEMLOCK or by its capabilities.
std::optional<std::uint64_t> lockable_memory();

} // namespace troupe
