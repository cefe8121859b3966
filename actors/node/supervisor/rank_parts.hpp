#pragma once

#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/supervisor/slab_places.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/memory_budget.hpp"
#include "base/write_gate.hpp"
#include "config/node_config.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace troupe {

/// One rank of a namespace: what its slab is, and what serves it.
struct rank_parts {
  /// Index into the config's namespaces, if it is one of these.
  std::size_t space = 0;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  /// Of what its pages lie in.
  incarnation_number incarnation = 0;
  std::shared_ptr<io_worker_parts> worker;
  /// Where its slots lie in a file that grows; else null.
  std::shared_ptr<io::store_growth> growth{};
  /// What other nodes are told, where the storage is shared.
  shared_slab slab{};
};

/// The memory of a rank: its allocator's, and what the io worker keeps of each slot, of those that are there. no_memory
/// if that does not suffice.
result<memory_share> memory_of(const rank_parts& rank, const shared_budget& memory);

/// What a client may have pinned of a rank: what the config says, and no more than a quarter of the memory that there
/// is, so that it cannot wait for what only itself has; two pages in any case, one to load and one to save.
std::uint64_t pinned_bytes_max(const config::node_config& options, const io::arena_facts& arena,
                               std::uint64_t page_bytes);

/// Opens the slab file, or makes it, with its io engine; none where the rank has no disk. Blocks, for some seconds
/// where the slab is in use. `extents`: where its pages get their memory from. `gate`: whether the file may be written;
/// null where nobody else could take it over.
result<rank_parts> open_rank(const config::node_config& options, std::size_t space_index, rank_number rank,
                             std::shared_ptr<io::extent_source> extents,
                             std::shared_ptr<const write_gate> gate = nullptr);

/// The most slots that a rank of a namespace can have that clients make; 0: its pages are in memory only.
std::uint64_t made_slots_max(const config::node_config& options, std::uint64_t page_bytes);

/// The same as `open_rank` for such a rank. With `first_slots` in its slab file at first, where it is made; 0 for none:
/// in memory only.
result<rank_parts> open_made_rank(const config::node_config& options, const namespace_spec& space, rank_number rank,
                                  std::uint64_t first_slots, std::shared_ptr<io::extent_source> extents,
                                  std::shared_ptr<const write_gate> gate = nullptr);

} // namespace troupe
