#include "io/memory/huge_pages.hpp"

#include "base/size_text.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace troupe::io {

std::optional<huge_page_counts> counts_of(const huge_page_kind& kind) {
  const auto number = [&](const char* name) -> std::optional<std::uint64_t> {
    std::ifstream file(std::string(kind.directory) + "/" + name);
    std::uint64_t out = 0;
    if (file >> out)
      return out;
    return std::nullopt;
  };
  const auto all = number("nr_hugepages");
  const auto free = number("free_hugepages");
  const auto reserved = number("resv_hugepages");
  if (!all || !free || !reserved)
    return std::nullopt;
  return huge_page_counts{*all, *free - std::min(*free, *reserved)};
}

huge_page_room room_for(const huge_page_kind& kind) {
  huge_page_room out{counts_of(kind), std::nullopt};
  const auto limits = huge_page_limits_of_groups(kind.group_name);
  if (const auto* const least = tightest(limits))
    out.group = *least;
  return out;
}

bool has_room_for(std::uint64_t bytes, const huge_page_room& room) noexcept {
  return room.host && room.host->free >= two_mib_pages.pages_of(bytes) && room.is_allowed(bytes);
}

error lack_of_huge_pages(std::string_view what, std::uint64_t bytes, const huge_page_kind& kind,
                         const huge_page_room& room, std::string_view attempt, const std::string& otherwise) {
  if (!room.host)
    return {errc::unsupported, "the kernel has no huge pages of " + std::string(kind.name) + ": " + otherwise};
  const auto needed = kind.pages_of(bytes);
  const auto takes =
      std::string(what) + " takes " + std::to_string(needed) + " huge pages of " + std::string(kind.name);
  const auto [all, free] = *room.host;
  if (free < needed) {
    // The setting counts all huge pages, so it has to include those in use by other processes.
    const auto wanted = std::to_string(all + needed - free);
    const auto command = kind.bytes == two_mib_pages.bytes ? "sysctl vm.nr_hugepages=" + wanted
                                                           : "write " + wanted + " to " + kind.directory +
                                                                 "/nr_hugepages soon after the host has started";
    return {errc::limit_exceeded, takes + ", and " + std::to_string(free) + " of the " + std::to_string(all) +
                                      " that the host has are free: reserve " + wanted + " in all (" + command +
                                      "), or " + otherwise};
  }
  if (!room.is_allowed(kind.bytes * needed))
    return {errc::limit_exceeded, takes + ", and the hugetlb limit of this process's control group leaves " +
                                      size_text(room.group->left()) + " of " + size_text(room.group->bytes) + " (" +
                                      room.group->file + "): raise it (hugepages-" +
                                      (kind.bytes == two_mib_pages.bytes ? "2Mi" : "1Gi") +
                                      " in the limits of a container of Kubernetes), or " + otherwise};
  return {errc::limit_exceeded, takes + ", and the kernel refuses them although " + std::to_string(free) +
                                    " are free: " + std::string(attempt) + "; " + otherwise};
}

} // namespace troupe::io
