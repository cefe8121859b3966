#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// The memory of this host, or of the container of this process, for defaults and messages: every value may change at
/// any moment. `root` is the directory of /proc and /sys; only tests use another one than "/".

namespace troupe {

/// A line of the text of /proc/meminfo, such as "MemAvailable:", in bytes; nothing if it does not exist.
std::optional<std::uint64_t> bytes_of_meminfo(std::string_view text, std::string_view line);

/// Bytes that can be allocated without reclaiming memory of others: the minimum over the host and the control groups of
/// this process; nothing if none is known.
std::optional<std::uint64_t> memory_left(const std::filesystem::path& root = "/");

/// The same, with 0 if none is known.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

/// The most memory of ordinary pages that this process can ever have.
struct memory_bound {
  /// 0 where no bound is known.
  std::uint64_t bytes = 0;
  /// The source of the bound for messages: "this host has", or "the control group of this process has
  /// (/sys/…/memory.max)".
  std::string whose;

  friend bool operator==(const memory_bound&, const memory_bound&) = default;
};

/// The minimum of the host's memory without its huge pages, and of the limits of this process's control groups.
memory_bound memory_bound_of_process(const std::filesystem::path& root = "/");

/// How much memory this process may lock; nothing if RLIMIT_MEMLOCK or its capabilities set no limit.
std::optional<std::uint64_t> lockable_memory();

} // namespace troupe
