#pragma once

#include "base/host_memory.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What of its memory and its disk a node can use, by its config alone: arithmetic for the start and for
/// `check-config`. Plain functions of a config that is sound.

namespace troupe::config {

/// What a node takes beside its pages before it has served anybody: measured at 30 MiB, of which 27 are its program and
/// libraries, and rounded up.
inline constexpr std::uint64_t memory_of_idle_node = 64 * mebibyte;

/// Slots of all ranks of the namespaces of the config. A rank without a slab has as many as all memory has room for.
std::uint64_t slots_of_config(const node_config& config);

/// Whether pages of this rank are in memory only.
bool is_in_memory_only(const node_config& config, const rank_storage& rank) noexcept;

/// Why the node can never have the memory that its config asks for; nothing if it can, or if nobody says how much there
/// is. Of ordinary pages: huge ones are not counted by `bound`.
std::optional<problem> fault_of_memory(const node_config& config, const memory_bound& bound);

/// How much of a node's memory pages can lie in. A page has a slot of the disk also while it lies in memory, so memory
/// beyond what the slabs hold is never used.
struct page_room {
  std::uint64_t memory_bytes = 0;
  /// Of all slab files of the config, without their trailers.
  std::uint64_t slab_bytes = 0;
  /// Of all slab files that clients can have made; 0: they can make none that have any.
  std::uint64_t made_slab_bytes = 0;
  /// Pages of some rank of the config need no disk: all memory can be used.
  bool without_disk = false;
  /// Those of namespaces that clients make need none.
  bool made_without_disk = false;

  /// By what the config names, and by what clients make where it names nothing.
  std::uint64_t usable_bytes() const noexcept;
  std::uint64_t unusable_bytes() const noexcept { return memory_bytes - usable_bytes(); }
};

page_room room_for_pages(const node_config& config);

/// What the operator should know of it, with the way out: nothing unless more than a tenth of the memory can never be
/// used.
std::optional<problem> notice_of_unusable_memory(const node_config& config);

} // namespace troupe::config
