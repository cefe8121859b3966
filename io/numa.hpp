#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Memory of hosts with several sockets, as far as it is to lie on one of them.

namespace troupe::io {

/// Memory that some cores are nearer to than to other memory, as the kernel numbers it.
using numa_node = std::uint32_t;

/// No kernel has more of them.
inline constexpr numa_node numa_nodes_max = 1024;

/// As the kernel writes sets of numbers, "0-1,4": in their order, each once. Nothing of a text that is none.
std::vector<numa_node> numa_nodes_in(std::string_view list);

/// Nodes of this host that have memory, which this process may use, and cores; in their order. Memory without cores is
/// that of a device, or slow. Empty where the kernel tells of no nodes.
std::vector<numa_node> usable_numa_nodes();

/// "NUMA node 0", "NUMA nodes 0, 1 and 4"; "no NUMA node".
std::string numa_text(std::span<const numa_node> nodes);

/// Pages of this memory that are not there yet are to come from this node, if it has some to spare. Whole pages of the
/// mapping only. 0, or what the kernel said: ENOSYS where it knows of no nodes; EPERM in containers which may not say
/// where memory is to lie; EINVAL for a node that has no memory or none for this process; ENOMEM if there are too many
/// mappings.
int prefer_numa_node(std::span<std::byte> memory, numa_node node) noexcept;

/// Takes that back. Also where some of it was refused.
void prefer_no_numa_node(std::span<std::byte> memory) noexcept;

/// Where the page of this byte lies, which must be there; nothing if the kernel does not say.
std::optional<numa_node> numa_node_of_page(const std::byte* byte) noexcept;

/// Why memory is not where it was to lie, and what can be done: for the log. `code` is what the kernel said.
std::string why_not_placed(int code);

/// How an arena lies on several nodes: in stretches, on each in turn, beginning with the first. Of small arenas each
/// stretch is an extent. Of large ones it is several, since every stretch is a mapping of its own for the kernel, of
/// which a process cannot have many; and of huge pages it is whole ones.
class numa_stretches {
public:
  /// So many an arena has at most, unless its huge pages are few.
  static constexpr std::uint64_t most = 4096;

  /// On no nodes.
  numa_stretches() = default;
  /// `page_bytes`: of the pages that the arena is made of. Extents are whole pages, or pages whole extents, or else the
  /// node of an extent is that of its first byte.
  numa_stretches(std::vector<numa_node> nodes, std::uint64_t arena_bytes, std::uint64_t extent_bytes,
                 std::uint64_t page_bytes);

  const std::vector<numa_node>& nodes() const noexcept { return nodes_; }
  std::uint64_t stretch_bytes() const noexcept { return stretch_bytes_; }

  /// Of the byte at this place of the arena; there must be nodes.
  numa_node node_at(std::uint64_t offset) const noexcept { return nodes_[offset / stretch_bytes_ % nodes_.size()]; }

private:
  std::vector<numa_node> nodes_;
  std::uint64_t stretch_bytes_ = 1;
};

} // namespace troupe::io
