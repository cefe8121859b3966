#include "io/huge_pages.hpp"

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

error lack_of_huge_pages(std::string_view what, std::uint64_t bytes, const huge_page_kind& kind) {
  const auto way_out = std::string("set memory.huge_pages to \"auto\"");
  const auto counts = counts_of(kind);
  if (!counts)
    return {errc::unsupported, "the kernel has no huge pages of " + std::string(kind.name) + ": " + way_out};
  const auto needed = kind.pages_of(bytes);
  const auto wanted = std::to_string(counts->all + needed - std::min(counts->free, needed));
  const auto command = kind.bytes == two_mib_pages.bytes ? "sysctl vm.nr_hugepages=" + wanted
                                                         : "write " + wanted + " to " + kind.directory +
                                                               "/nr_hugepages soon after the host has started";
  return {errc::limit_exceeded, std::string(what) + " takes " + std::to_string(needed) + " huge pages of " + kind.name +
                                    ", and " + std::to_string(counts->free) + " are free: reserve more (" + command +
                                    "), or " + way_out};
}

} // namespace troupe::io
