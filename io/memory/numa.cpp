#include "io/memory/numa.hpp"

#include "base/error.hpp"

#include <climits>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

constexpr std::size_t bits_per_word = sizeof(unsigned long) * CHAR_BIT;

using node_mask = std::array<unsigned long, numa_nodes_max / bits_per_word>;

/// Removes a number from the start of the text and returns it.
std::optional<numa_node> next_number(std::string_view& text) {
  numa_node out = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (wrong != std::errc{} || out >= numa_nodes_max)
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return out;
}

std::vector<numa_node> listed(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return numa_nodes_in(line);
}

/// The nodes whose memory this process may use; empty if the kernel does not say.
std::vector<numa_node> allowed() {
  constexpr std::string_view key = "Mems_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) {
      const auto at = line.find_first_not_of(" \t", key.size());
      return at == std::string::npos ? std::vector<numa_node>{} : numa_nodes_in(std::string_view(line).substr(at));
    }
  return {};
}

/// The intersection of both sets, or all of `nodes` if it is empty: then the kernel does not report the other set, or a
/// process is confined to memory without cores.
std::vector<numa_node> narrowed(std::vector<numa_node> nodes, const std::vector<numa_node>& to) {
  std::vector<numa_node> out;
  std::ranges::set_intersection(nodes, to, std::back_inserter(out));
  return out.empty() ? nodes : out;
}

} // namespace

std::vector<numa_node> numa_nodes_in(std::string_view list) {
  std::vector<numa_node> out;
  while (!list.empty()) {
    const auto first = next_number(list);
    auto last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = next_number(list);
    }
    if (!first || !last || *last < *first || (!out.empty() && *first <= out.back()))
      return {};
    for (auto x = *first; x <= *last; ++x)
      out.push_back(x);
    if (list.starts_with(',') && list.size() > 1)
      list.remove_prefix(1);
    else if (!list.empty())
      return {};
  }
  return out;
}

std::vector<numa_node> usable_numa_nodes() {
  return narrowed(narrowed(listed("/sys/devices/system/node/has_memory"), allowed()),
                  listed("/sys/devices/system/node/has_cpu"));
}

std::string numa_text(std::span<const numa_node> nodes) {
  if (nodes.empty())
    return "no NUMA node";
  std::string out = nodes.size() == 1 ? "NUMA node " : "NUMA nodes ";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i > 0)
      out += i + 1 == nodes.size() ? " and " : ", ";
    out += std::to_string(nodes[i]);
  }
  return out;
}

int prefer_numa_node(std::span<std::byte> memory, numa_node node) noexcept {
  node_mask mask{};
  if (node >= numa_nodes_max)
    return EINVAL;
  mask[node / bits_per_word] = 1UL << (node % bits_per_word);
  // The kernel uses one bit less than the given number.
  const auto bits = static_cast<unsigned long>(numa_nodes_max) + 1;
  return ::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, mask.data(), bits, 0U) == 0 ? 0 : errno;
}

void prefer_no_numa_node(std::span<std::byte> memory) noexcept {
  ::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_DEFAULT, nullptr, 0UL, 0U);
}

std::optional<numa_node> numa_node_of_page(const std::byte* byte) noexcept {
  int node = -1;
  if (::syscall(SYS_get_mempolicy, &node, nullptr, 0UL, byte, static_cast<unsigned long>(MPOL_F_NODE | MPOL_F_ADDR)) !=
          0 ||
      node < 0)
    return std::nullopt;
  return static_cast<numa_node>(node);
}

std::string why_not_placed(int code) {
  if (code == ENOSYS)
    return "the kernel has no NUMA support";
  if (code == EPERM)
    return "this process may not choose NUMA nodes: give its container the capability SYS_NICE, or a seccomp "
           "profile that allows mbind and get_mempolicy";
  return system_error(code, "mbind").text;
}

numa_stretches::numa_stretches(std::vector<numa_node> nodes, std::uint64_t arena_bytes, std::uint64_t extent_bytes,
                               std::uint64_t page_bytes)
    : nodes_(std::move(nodes)) {
  const auto least = (extent_bytes + page_bytes - 1) / page_bytes * page_bytes;
  const auto all = arena_bytes / least + (arena_bytes % least != 0 ? 1 : 0);
  stretch_bytes_ = least * std::max<std::uint64_t>((all + most - 1) / most, 1);
}

} // namespace troupe::io
