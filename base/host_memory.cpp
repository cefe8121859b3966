#include "base/host_memory.hpp"

#include "base/control_groups.hpp"
#include "base/kernel_text.hpp"

#include <algorithm>
#include <sys/resource.h>

namespace troupe {

namespace {

/// CAP_IPC_LOCK, which removes the limit on locked memory.
constexpr unsigned capability_ipc_lock = 14;

std::string meminfo(const std::filesystem::path& root) {
  return text_of_file(root / "proc/meminfo");
}

} // namespace

std::optional<std::uint64_t> bytes_of_meminfo(std::string_view text, std::string_view line) {
  const auto found = line_of(text, line);
  const auto kibibytes = found ? leading_number(*found) : std::nullopt;
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::optional<std::uint64_t> memory_left(const std::filesystem::path& root) {
  const auto host = bytes_of_meminfo(meminfo(root), "MemAvailable:");
  const auto groups = memory_limits_of_groups(root);
  const auto* const least = tightest(groups);
  if (least == nullptr)
    return host;
  return std::min(host.value_or(least->left()), least->left());
}

std::uint64_t available_memory(const std::filesystem::path& root) {
  return memory_left(root).value_or(0);
}

memory_bound memory_bound_of_process(const std::filesystem::path& root) {
  const auto text = meminfo(root);
  memory_bound out;
  if (const auto total = bytes_of_meminfo(text, "MemTotal:"))
    out = {*total - std::min(*total, bytes_of_meminfo(text, "Hugetlb:").value_or(0)), "this host has"};
  for (const auto& x : memory_limits_of_groups(root))
    if (out.bytes == 0 || x.bytes < out.bytes)
      out = {x.bytes, "the control group of this process has (" + x.file + ")"};
  return out;
}

std::optional<std::uint64_t> lockable_memory() {
  const auto status = text_of_file("/proc/self/status");
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
