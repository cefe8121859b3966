#pragma once

#include "base/clock.hpp"
#include "base/control_groups.hpp"
#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <linux/memfd.h>
#include <optional>
#include <string_view>
#include <thread>

/// Huge pages of the host, which an operator reserves and programs allocate from that reserve.

namespace troupe::io {

/// A size of huge pages, with its names for the kernel and for messages.
struct huge_page_kind {
  std::uint64_t bytes = 0;
  /// The flag of `memfd_create`.
  unsigned flag = 0;
  const char* directory = "";
  const char* name = "";
  /// The name in control groups.
  const char* group_name = "";

  std::uint64_t pages_of(std::uint64_t memory) const noexcept { return (memory + bytes - 1) / bytes; }
};

inline constexpr huge_page_kind two_mib_pages{std::uint64_t{2} << 20U, MFD_HUGE_2MB,
                                              "/sys/kernel/mm/hugepages/hugepages-2048kB", "2 MiB", "2MB"};
inline constexpr huge_page_kind one_gib_pages{std::uint64_t{1} << 30U, MFD_HUGE_1GB,
                                              "/sys/kernel/mm/hugepages/hugepages-1048576kB", "1 GiB", "1GB"};

/// How many huge pages of a kind the host has, and how many are neither in use nor reserved.
struct huge_page_counts {
  std::uint64_t all = 0;
  std::uint64_t free = 0;
};

/// Nothing if the kernel has no such pages.
std::optional<huge_page_counts> counts_of(const huge_page_kind& kind);

/// The limits on huge pages of a kind for a process.
struct huge_page_room {
  /// Nothing if the kernel has no such pages.
  std::optional<huge_page_counts> host;
  /// The control group limit with the least left; nothing if there is none.
  std::optional<group_limit> group;

  /// Whether the control groups of this process allow so many more bytes.
  bool is_allowed(std::uint64_t bytes) const noexcept { return !group || group->left() >= bytes; }
};

huge_page_room room_for(const huge_page_kind& kind);

/// Whether an arena of so many bytes would get huge pages of 2 MiB now, if it prefers them.
bool has_room_for(std::uint64_t bytes, const huge_page_room& room) noexcept;

/// The error for `what`, of so many bytes, that did not get huge pages; `otherwise` is the alternative. `unsupported`
/// where the kernel has no such pages, else `limit_exceeded`: the host has too few, a control group allows too few, or
/// the reason of `attempt`.
error lack_of_huge_pages(std::string_view what, std::uint64_t bytes, const huge_page_kind& kind,
                         const huge_page_room& room, std::string_view attempt, const std::string& otherwise);

/// Waits at most `patience` until so many pages are free, if the host has as many at all. The memory of a killed
/// program outlives its process: the kernel frees what io_uring or a device used some time later. A node that restarts
/// at once would otherwise run on ordinary pages for all its life. `counts()`: as `counts_of`.
template <class Counts>
bool await_spare_huge_pages(std::uint64_t pages, duration patience, Counts counts) {
  constexpr auto pause = std::chrono::milliseconds(20);
  for (auto waited = duration(0);; waited += pause) {
    const auto now = counts();
    if (!now || now->all < pages)
      return false;
    if (now->free >= pages)
      return true;
    if (waited >= patience)
      return false;
    std::this_thread::sleep_for(pause);
  }
}

} // namespace troupe::io
