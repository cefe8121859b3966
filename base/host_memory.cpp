#include "base/host_memory.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/resource.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// Lets a process lock whatever it likes.
constexpr unsigned capability_ipc_lock = 14;

/// As one that lies in /proc or /sys, whose sizes say nothing.
std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::uint64_t> leading_number(std::string_view text, int base = 10) {
  const auto from = std::min(text.find_first_not_of(" \t"), text.size());
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data() + from, text.data() + text.size(), value, base);
  return failure == std::errc{} ? std::optional(value) : std::nullopt;
}

/// What stands behind the word that a line begins with.
std::optional<std::string_view> line_of(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.starts_with(word))
      return line.substr(word.size());
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

/// Of the group of this process and of all above it, in the unified hierarchy.
std::optional<std::uint64_t> left_of_groups() {
  const fs::path root = "/sys/fs/cgroup";
  const auto groups = text_of("/proc/self/cgroup");
  const auto own = line_of(groups, "0::/");
  if (!own)
    return std::nullopt;
  std::optional<std::uint64_t> least;
  for (auto at = (root / *own).lexically_normal();; at = at.parent_path()) {
    if (const auto left = left_of_group(text_of(at / "memory.max"), text_of(at / "memory.current")))
      least = std::min(least.value_or(*left), *left);
    // Also where a path has an end that is no name.
    if (at == root || at.string().size() <= root.string().size())
      return least;
  }
}

} // namespace

std::optional<std::uint64_t> available_of_meminfo(std::string_view text) {
  const auto line = line_of(text, "MemAvailable:");
  const auto kibibytes = line ? leading_number(*line) : std::nullopt;
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::optional<std::uint64_t> left_of_group(std::string_view max, std::string_view current) {
  const auto limit = leading_number(max); // "max" is none
  if (!limit)
    return std::nullopt;
  return *limit - std::min(*limit, leading_number(current).value_or(0));
}

std::uint64_t available_memory() {
  const auto host = available_of_meminfo(text_of("/proc/meminfo"));
  const auto groups = left_of_groups();
  if (host && groups)
    return std::min(*host, *groups);
  return host.value_or(groups.value_or(0));
}

std::optional<std::uint64_t> lockable_memory() {
  const auto status = text_of("/proc/self/status");
  if (const auto line = line_of(status, "CapEff:"))
    if (const auto capabilities = leading_number(*line, 16);
        capabilities && (*capabilities >> capability_ipc_lock) & 1U)
      return std::nullopt;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

} // namespace troupe
