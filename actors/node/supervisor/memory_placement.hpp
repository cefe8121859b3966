#pragma once

#include "base/error.hpp"
#include "base/host_memory.hpp"
#include "config/node_config.hpp"
#include "io/memory/arena.hpp"
#include "io/memory/huge_pages.hpp"
#include "io/memory/numa.hpp"

#include <span>
#include <vector>

namespace troupe {

/// Config errors, by key, about ranks that want memory of NUMA nodes that the host does not have. `usable`: the NUMA
/// nodes whose memory this process may use; empty where the kernel does not report them, and then there are no errors.
std::vector<config::problem> faults_of_numa_nodes(const config::node_config& options,
                                                  std::span<const io::numa_node> usable);

/// The kind of huge pages that the config requires or prefers.
const io::huge_page_kind& huge_pages_for(const config::node_config& options) noexcept;

/// `memory.huge_pages`, as the arena takes it.
io::huge_page_choice huge_page_choice_of(const config::node_config& options) noexcept;

/// Config errors, by key, about memory that can never be allocated. `bound`: the ordinary memory there is; `huge`: the
/// limits on huge pages for this process, used or not.
std::vector<config::problem> faults_of_memory(const config::node_config& options, const memory_bound& bound,
                                              const io::huge_page_room& huge);

/// The NUMA nodes over which the arena is spread; none: the kernel places it. invalid_argument with the first error.
result<std::vector<io::numa_node>> numa_nodes_for(const config::node_config& options,
                                                  std::span<const io::numa_node> usable);

} // namespace troupe
