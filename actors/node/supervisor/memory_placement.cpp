#include "actors/node/supervisor/memory_placement.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace troupe {

std::vector<config::problem> faults_of_numa_nodes(const config::node_config& options,
                                                  std::span<const io::numa_node> usable) {
  std::vector<config::problem> out;
  const auto& ranks = options.storage.ranks;
  for (std::size_t i = 0; i < ranks.size() && !usable.empty(); ++i)
    if (const auto& wished = ranks[i].numa_node; wished && std::ranges::find(usable, *wished) == usable.end())
      out.push_back({"storage.ranks[" + std::to_string(i) + "].numa_node",
                     "is " + std::to_string(*wished) + ", and the memory of this host that the node may use is on " +
                         io::numa_text(usable) + ": choose of these, or leave it out",
                     {}});
  return out;
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
