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

/// Huge pages of the host, which an operator reserves and which programs take from that reserve.

namespace troupe::io {

/// A size of huge pages, and how the kernel and people call it.
struct huge_page_kind {
  std::uint64_t bytes = 0;
  /// Of `memfd_create`.
  unsigned flag = 0;
  const char* directory = "";
  const char* name = "";
  /// As control groups call it.
  const char* group_name = "";

  std::uint64_t pages_of(std::uint64_t memory) const noexcept { return (memory + bytes - 1) / bytes; }
};

inline constexpr huge_page_kind two_mib_pages{std::uint64_t{2} << 20U, MFD_HUGE_2MB,
                                              "/sys/kernel/mm/hugepages/hugepages-2048kB", "2 MiB", "2MB"};
inline constexpr huge_page_kind one_gib_pages{std::uint64_t{1} << 30U, MFD_HUGE_1GB,
                                              "/sys/kernel/mm/hugepages/hugepages-1048576kB", "1 GiB", "1GB"};

/// How many huge pages of a kind the host has, and how many are neither in use nor set aside.
struct huge_page_counts {
  std::uint64_t all = 0;
  std::uint64_t free = 0;
};

/// Nothing if the kernel has no such pages.
std::optional<huge_page_counts> counts_of(const huge_page_kind& kind);

/// What stands between a process and huge pages of a kind.
struct huge_page_room {
  /// Nothing if the kernel has no such pages.
  std::optional<huge_page_counts> host;
  /// The limit of a control group of which the least is left; nothing if there is none.
  std::optional<group_limit> group;

  /// Whether the control groups of this process let it have so many bytes more.
  bool is_allowed(std::uint64_t bytes) const noexcept { return !group || group->left() >= bytes; }
};

huge_page_room room_for(const huge_page_kind& kind);

/// Whether an arena of so many bytes would get huge pages of 2 MiB now, where they are taken if they can be had.
bool has_room_for(std::uint64_t bytes, const huge_page_room& room) noexcept;

/// Why `what`, of so many bytes, does not get huge pages, and that the other way out is `otherwise`: `unsupported`
/// where the kernel has no such pages, else `limit_exceeded`, because the host has too few, or a control group allows
/// too few, or for the reason that an attempt has given.
error lack_of_huge_pages(std::string_view what, std::uint64_t bytes, const huge_page_kind& kind,
                         const huge_page_room& room, std::string_view attempt, const std::string& otherwise);

/// Waits until so many pages are free, where the host has as many at all; no longer than `patience`. A program that was
/// killed is gone before its memory is: the kernel lets go of what io_uring or a device used only some time later. A
/// node that starts again at once would be left with ordinary pages for all its life. `counts()`: as `counts_of`.
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
