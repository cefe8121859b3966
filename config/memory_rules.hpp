#pragma once

#include "base/host_memory.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The memory and disk that a node can use according to its config: calculations for the start and for `check-config`.
/// Pure functions of a valid config.

namespace troupe::config {

/// Memory of an idle node besides its pages: measured at 30 MiB, of which 27 are its program and libraries, and rounded
/// up.
inline constexpr std::uint64_t memory_of_idle_node = 64 * mebibyte;

/// Slots of a rank for pages of this size. A rank without a slab has as many as fit into all memory.
std::uint64_t slots_of_rank(const node_config& config, const rank_storage& rank, std::uint64_t page_bytes);

/// Slots of all ranks of the namespaces in the config.
std::uint64_t slots_of_config(const node_config& config);

/// Whether pages of this rank are in memory only.
bool is_in_memory_only(const node_config& config, const rank_storage& rank) noexcept;

/// Why the node can never have the memory that its config requests; none if it can, or if the limit is unknown. For
/// ordinary pages: huge ones are not counted by `bound`.
std::optional<problem> fault_of_memory(const node_config& config, const memory_bound& bound);

/// Whether pages may be in memory only, beyond what the slab files have room for.
bool keeps_pages_beyond_disk(const node_config& config) noexcept;

/// How much of a node's memory pages can occupy. Where each of them needs a slot on the disk also while it is in
/// memory, memory beyond the size of the slabs is never used.
struct page_room {
  std::uint64_t memory_bytes = 0;
  /// Size of all slab files in the config, without their trailers.
  std::uint64_t slab_bytes = 0;
  /// The most that slab files of clients' namespaces can have together; 0: none.
  std::uint64_t made_slab_bytes = 0;
  /// Pages of some rank in the config need no disk: all memory can be used.
  bool without_disk = false;
  /// The same for namespaces that clients create.
  bool made_without_disk = false;

  /// Every page needs a place on the disk.
  bool needs_disk = false;

  /// For the namespaces in the config, or, without any, for those that clients create.
  std::uint64_t usable_bytes() const noexcept;
  std::uint64_t unusable_bytes() const noexcept { return memory_bytes - usable_bytes(); }
};

page_room room_for_pages(const node_config& config);

/// A notice for the operator, with the way out: none unless more than a tenth of the memory can never be used.
std::optional<problem> notice_of_unusable_memory(const node_config& config);

/// The memory that one client may use at once: its limit, and at most a quarter of all `bytes`.
std::uint64_t memory_of_client(const node_config& config, std::uint64_t bytes) noexcept;

/// Where `memory.client_bytes` was set to more than that.
std::optional<problem> notice_of_client_bytes(const node_config& config);

} // namespace troupe::config
