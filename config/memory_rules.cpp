#include "config/memory_rules.hpp"

#include "base/geometry_bounds.hpp"
#include "base/identifiers.hpp"
#include "base/page_limits.hpp"
#include "base/size_text.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <limits>

namespace troupe::config {

namespace {

/// Slot numbers have 32 bits.
constexpr std::uint64_t slots_max = std::numeric_limits<slot_number>::max();

/// Unusable memory of up to this part is not reported: sizes of slabs are rarely a multiple of anything.
constexpr std::uint64_t unusable_part = 10;

/// Calls `look` with the bytes of a slot of a namespace and with each of the ranks that keep its pages.
template <class Look>
void for_each_rank(const node_config& config, Look look) {
  for (const auto& ns : config.namespaces) {
    if (find_broken_bound(ns.geometry, geometry_extent::whole))
      continue;
    const auto page = ns.geometry.page_bytes();
    if (page > max_page_bytes)
      continue;
    const auto ranks = std::min<std::size_t>(config.storage.ranks.size(), ns.world_size);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      look(page, config.storage.ranks[rank]);
  }
}

} // namespace

bool is_in_memory_only(const node_config& config, const rank_storage& rank) noexcept {
  return rank.slab_bytes == 0 || config.memory.write_back == "never";
}

bool keeps_pages_beyond_disk(const node_config& config) noexcept {
  return config.memory.beyond_disk && config.registry.durability != "strict";
}

std::uint64_t slots_of_rank(const node_config& config, const rank_storage& rank, std::uint64_t page_bytes) {
  return is_in_memory_only(config, rank) ? config.memory.bytes / io::least_slot_bytes(page_bytes)
                                         : slab_slots(rank.slab_bytes, page_bytes);
}

std::uint64_t slots_of_config(const node_config& config) {
  std::uint64_t out = 0;
  for_each_rank(config, [&](std::uint64_t page, const rank_storage& rank) {
    out += std::min(slots_of_rank(config, rank, page), slots_max);
  });
  return out;
}

std::optional<problem> fault_of_memory(const node_config& config, const memory_bound& bound) {
  const auto bytes = config.memory.bytes;
  if (bound.bytes == 0 || (bytes <= bound.bytes && memory_of_idle_node <= bound.bytes - bytes))
    return std::nullopt;
  const auto most = bound.bytes - std::min(bound.bytes, memory_of_idle_node);
  return problem{"memory.bytes",
                 size_text(bytes) + ", and " + size_text(memory_of_idle_node) +
                     " for the node itself, are more than the " + size_text(bound.bytes) + " of memory that " +
                     bound.whose + ": " + (most > 0 ? "lower it to less than " + size_text(most) + ", or " : "") +
                     "give the node more; otherwise the kernel kills it when the memory is used",
                 {}};
}

std::uint64_t page_room::usable_bytes() const noexcept {
  if (!needs_disk || without_disk || (made_without_disk && slab_bytes == 0))
    return memory_bytes;
  const auto sum = slab_bytes + std::min(made_slab_bytes, std::numeric_limits<std::uint64_t>::max() - slab_bytes);
  return std::min(memory_bytes, sum);
}

page_room room_for_pages(const node_config& config) {
  page_room out;
  out.memory_bytes = config.memory.bytes;
  out.needs_disk = !keeps_pages_beyond_disk(config);
  for_each_rank(config, [&](std::uint64_t page, const rank_storage& rank) {
    if (is_in_memory_only(config, rank))
      out.without_disk = true;
    else
      out.slab_bytes += std::min(slab_slots(rank.slab_bytes, page), slots_max) * io::slot_bytes(page);
  });
  const bool makers = config.actors.make_namespaces && (config.actors.serves_makers() || config.lmcache.enabled);
  if (makers && config.storage.disk_bytes > 0 && config.memory.write_back != "never")
    out.made_slab_bytes = config.storage.disk_bytes;
  else
    out.made_without_disk = makers;
  return out;
}

std::uint64_t memory_of_client(const node_config& config, std::uint64_t bytes) noexcept {
  return std::min(config.memory.client_bytes, bytes / 4);
}

std::optional<problem> notice_of_client_bytes(const node_config& config) {
  const auto wanted = config.memory.client_bytes;
  const auto most = memory_of_client(config, config.memory.bytes);
  // The default is more than a quarter of a small node, and no decision of its operator.
  if (wanted <= most || wanted == memory_config{}.client_bytes)
    return std::nullopt;
  return problem{"memory.client_bytes",
                 "is " + size_text(wanted) + ", and one client uses at most a quarter of memory.bytes, " +
                     size_text(most) + ": raise memory.bytes, or lower it",
                 {}};
}

std::optional<problem> notice_of_unusable_memory(const node_config& config) {
  const auto room = room_for_pages(config);
  const auto unusable = room.unusable_bytes();
  // A node without namespaces, where clients cannot create any, keeps no pages: it serves metadata.
  if (room.usable_bytes() == 0 || unusable <= room.memory_bytes / unusable_part)
    return std::nullopt;
  std::string slabs;
  std::string way_out;
  if (room.slab_bytes > 0) {
    slabs = size_text(room.slab_bytes) + " of slots in slab files of the config (storage.ranks)";
    way_out = "storage.ranks[i].slab_bytes";
  }
  if (room.made_slab_bytes > 0) {
    slabs += (slabs.empty() ? "" : " and ") + size_text(room.made_slab_bytes) +
             " for namespaces that clients create (storage.disk_bytes)";
    way_out += std::string(way_out.empty() ? "" : " or ") + "storage.disk_bytes";
  }
  const std::string others =
      room.made_without_disk
          ? "; only namespaces that clients create could use the rest, because they have no disk here"
          : "";
  const bool strict = config.registry.durability == "strict";
  const std::string cause = strict ? "registry.durability \"strict\"" : "memory.beyond_disk false";
  return problem{"memory.bytes",
                 size_text(unusable) + " of " + size_text(room.memory_bytes) + " can never hold a page: with " + cause +
                     " a page has a slot of its slab file also while it is in memory, and there are " + slabs + others +
                     "; raise " + way_out + " above memory.bytes, lower memory.bytes to " +
                     size_text(room.usable_bytes()) +
                     (strict ? ", or use \"relaxed\"" : ", or set memory.beyond_disk to true"),
                 {}};
}

} // namespace troupe::config
