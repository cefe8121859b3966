#pragma once

#include "base/error.hpp"
#include "base/host_memory.hpp"
#include "config/node_config.hpp"
#include "io/huge_pages.hpp"
#include "io/numa.hpp"

#include <span>
#include <vector>

namespace troupe {

/// Where ranks want memory of NUMA nodes that a host does not have, by key. `usable`: those that it has, of which this
/// process may use the memory; empty where the kernel does not tell, and then nothing is wrong.
std::vector<config::problem> faults_of_numa_nodes(const config::node_config& options,
                                                  std::span<const io::numa_node> usable);

/// The huge pages that the config asks for, or would take.
const io::huge_page_kind& huge_pages_for(const config::node_config& options) noexcept;

/// Why the memory that the config asks for can never be had, by key. `bound`: the ordinary memory that there is;
/// `huge`: what stands between this process and those huge pages, used or not.
std::vector<config::problem> faults_of_memory(const config::node_config& options, const memory_bound& bound,
                                              const io::huge_page_room& huge);

/// The NUMA nodes over which the arena is to be spread; none: it lies where the kernel likes. invalid_argument with the
/// first fault.
result<std::vector<io::numa_node>> numa_nodes_for(const config::node_config& options,
                                                  std::span<const io::numa_node> usable);

} // namespace troupe
