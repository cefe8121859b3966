#include "actors/node/supervisor/memory_placement.hpp"

#include "config/memory_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace troupe {

std::vector<config::problem> faults_of_numa_nodes(const config::node_config& options,
                                                  std::span<const io::numa_node> usable) {
  std::vector<config::problem> out;
  const auto& ranks = options.storage.ranks;
  for (std::size_t i = 0; i < ranks.size() && !usable.empty(); ++i)
    if (const auto& wished = ranks[i].numa_node; wished && std::ranges::find(usable, *wished) == usable.end())
      out.push_back({"storage.ranks[" + std::to_string(i) + "].numa_node",
                     "is " + std::to_string(*wished) + ", and the memory of this host that the node may use is on " +
                         io::numa_text(usable) + ": choose one of these, or leave it out",
                     {}});
  return out;
}

io::huge_page_choice huge_page_choice_of(const config::node_config& options) noexcept {
  const auto& wanted = options.memory.huge_pages;
  if (wanted == "2 MiB")
    return io::huge_page_choice::two_mib;
  if (wanted == "1 GiB")
    return io::huge_page_choice::one_gib;
  return wanted == "off" ? io::huge_page_choice::off : io::huge_page_choice::automatic;
}

const io::huge_page_kind& huge_pages_for(const config::node_config& options) noexcept {
  return options.memory.huge_pages == "1 GiB" ? io::one_gib_pages : io::two_mib_pages;
}

std::vector<config::problem> faults_of_memory(const config::node_config& options, const memory_bound& bound,
                                              const io::huge_page_room& huge) {
  const auto& memory = options.memory;
  const auto& kind = huge_pages_for(options);
  const auto needed = kind.pages_of(memory.bytes);
  // All pages count as free, because those in use now may belong to this node.
  auto all = huge;
  if (all.host)
    all.host->free = all.host->all;
  if (all.group)
    all.group->used = 0;
  const bool enough = all.host && all.host->all >= needed && all.is_allowed(needed * kind.bytes);
  if (memory.huge_pages == "2 MiB" || memory.huge_pages == "1 GiB") {
    if (enough)
      return {};
    return {{"memory.huge_pages",
             io::lack_of_huge_pages("memory.bytes", memory.bytes, kind, all, {}, "set it to \"auto\"").text,
             {}}};
  }
  const bool is_named = options.lmcache.enabled || options.io.engine.starts_with("usrbio");
  if (memory.huge_pages == "auto" && !is_named && enough)
    return {};
  auto fault = config::fault_of_memory(options, bound);
  if (!fault)
    return {};
  return {std::move(*fault)};
}

result<std::vector<io::numa_node>> numa_nodes_for(const config::node_config& options,
                                                  std::span<const io::numa_node> usable) {
  if (options.memory.numa != "spread")
    return std::vector<io::numa_node>{};
  if (const auto faults = faults_of_numa_nodes(options, usable); !faults.empty())
    return fail(errc::invalid_argument, config::to_string(faults.front()));
  return std::vector<io::numa_node>(usable.begin(), usable.end());
}

} // namespace troupe
