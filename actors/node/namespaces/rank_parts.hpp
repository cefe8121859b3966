#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/namespaces/slab_places.hpp"
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

/// One rank of a namespace: its slab, and the parts that serve it.
struct rank_parts {
  /// Index into the config's namespaces, for a rank of one of these.
  std::size_t ns = 0;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  /// The incarnation of the storage of its pages.
  incarnation_number incarnation = 0;
  std::shared_ptr<io_worker_parts> worker;
  /// Slots beyond those, for pages that are in memory only; as in `io_worker_options`.
  std::uint64_t memory_slots = 0;
  /// The growth of a slab file that grows; else null.
  std::shared_ptr<io::store_growth> growth{};
  /// The description of the slab for other nodes, where the storage is shared.
  shared_slab slab{};
};

/// Takes the memory of a rank from the budget: that of its allocator, and what the io worker keeps for each existing
/// slot of the slab file. no_memory if the budget does not suffice.
result<memory_share> memory_of(const rank_parts& rank, const shared_budget& memory);

/// Takes memory for the slots beyond the slab file as well, once all other ranks that are known have theirs. Half of
/// the budget is left to keys and to further ranks: the rank gets fewer such slots, with a warning, if that does not
/// suffice.
void take_memory_slots(rank_parts& rank, memory_share& share, const shared_budget& memory);

/// Options of the allocator of a rank, with watermarks for all its slots.
allocator_options options_for_rank(const rank_parts& rank, const config::node_config& options);

/// The most bytes that a client may have pinned of a rank: the configured limit, and at most a quarter of the memory
/// there is, so that a client cannot wait for memory that only it holds; but at least two pages, one to load and one to
/// save.
std::uint64_t pinned_bytes_max(const config::node_config& options, const io::arena_facts& arena,
                               std::uint64_t page_bytes);

/// Opens or creates the slab file with its io engine; without a slab file where the rank has no disk. Blocks, for some
/// seconds where the slab is in use. `extents`: the source of memory for its pages. `gate`: whether the file may be
/// written.
result<rank_parts> open_rank(const config::node_config& options, std::size_t namespace_index, rank_number rank,
                             std::shared_ptr<io::extent_source> extents,
                             std::shared_ptr<const write_gate> gate = write_gate::always_open());

/// The most slots of a rank of a namespace that clients create; 0: its pages are in memory only.
std::uint64_t made_slots_max(const config::node_config& options, std::uint64_t page_bytes);

/// As `open_rank`, for a rank of a namespace that clients create. A new slab file starts with `first_slots` slots; 0:
/// in memory only.
result<rank_parts> open_made_rank(const config::node_config& options, const namespace_spec& ns, rank_number rank,
                                  std::uint64_t first_slots, std::shared_ptr<io::extent_source> extents,
                                  std::shared_ptr<const write_gate> gate = write_gate::always_open());

} // namespace troupe
