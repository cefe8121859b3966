#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// NUMA placement of memory on hosts with several sockets.

namespace troupe::io {

/// The kernel's number of a NUMA node: memory that some cores are nearer to than to other memory.
using numa_node = std::uint32_t;

/// The upper limit of all kernels.
inline constexpr numa_node numa_nodes_max = 1024;

/// Parses a set as the kernel writes it, "0-1,4": ascending, each number once. Empty for any other text.
std::vector<numa_node> numa_nodes_in(std::string_view list);

/// The nodes of this host that have cores and memory that this process may use, ascending. Memory without cores belongs
/// to a device, or is slow. Empty where the kernel reports no nodes.
std::vector<numa_node> usable_numa_nodes();

/// "NUMA node 0", "NUMA nodes 0, 1 and 4"; "no NUMA node".
std::string numa_text(std::span<const numa_node> nodes);

/// Asks for pages of this memory that are not populated yet to come from this node, if it has free ones. Affects whole
/// pages of the mapping only. Returns 0 or an error number: ENOSYS where the kernel has no NUMA support; EPERM in
/// containers that may not choose; EINVAL for a node without memory or without any for this process; ENOMEM if there
/// are too many mappings.
int prefer_numa_node(std::span<std::byte> memory, numa_node node) noexcept;

/// Reverts `prefer_numa_node`, also where that failed in part.
void prefer_no_numa_node(std::span<std::byte> memory) noexcept;

/// The node of the page with this byte, which must be populated; nothing if the kernel does not say.
std::optional<numa_node> numa_node_of_page(const std::byte* byte) noexcept;

/// The reason why memory is not on the intended node, and the remedy, for the log. `code` is the kernel's error.
std::string why_not_placed(int code);

/// The placement of an arena over several nodes: in stretches, on each node in turn, beginning with the first. In small
/// arenas each stretch is an extent. In large ones it is several, since every stretch is a separate mapping for the
/// kernel and their number is limited; with huge pages it is whole pages.
class numa_stretches {
public:
  /// The most stretches of an arena, unless its huge pages are few.
  static constexpr std::uint64_t most = 4096;

  /// No placement.
  numa_stretches() = default;
  /// `page_bytes` is the size of the arena's pages. Extents are whole pages, or pages are whole extents; otherwise the
  /// node of an extent is that of its first byte.
  numa_stretches(std::vector<numa_node> nodes, std::uint64_t arena_bytes, std::uint64_t extent_bytes,
                 std::uint64_t page_bytes);

  const std::vector<numa_node>& nodes() const noexcept { return nodes_; }
  std::uint64_t stretch_bytes() const noexcept { return stretch_bytes_; }

  /// The node of the byte at this offset of the arena. Requires nodes.
  numa_node node_at(std::uint64_t offset) const noexcept { return nodes_[offset / stretch_bytes_ % nodes_.size()]; }

private:
  std::vector<numa_node> nodes_;
  std::uint64_t stretch_bytes_ = 1;
};

} // namespace troupe::io
