#pragma once

#include "config/node_config.hpp"
#include "workload/replay/trace.hpp"
#include "workload/runner/scratch.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::replay {

/// What is asked of the node that a run has for itself. Without a file: one namespace, with room for everything in the
/// trace.
struct own_node_options {
  std::optional<std::filesystem::path> file;
  /// Overrides, as after `--set`.
  std::vector<std::string> overrides;
  /// The namespace that the rest applies to; the first if empty.
  std::string space;
  std::optional<std::uint64_t> page_bytes;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint64_t> capacity_pages;
};

/// The config of the node that a run has for itself.
struct own_node {
  config::node_config config;
  /// Where the node writes, unless the user chose a place.
  scratch_directory scratch;
  /// What runs that were killed had left beside it.
  std::vector<leftover> leftovers;
};

/// Puts the config together: the file if there is one, else one namespace; then the options; then the overrides.
/// Errors: what is wrong with the file, or with an option, which is the problem's path then.
tl::expected<own_node, std::vector<config::problem>> make_own_node(const own_node_options& options);

/// Gives a config that was made for any trace the slots that this one needs, where neither file nor option say.
void give_room(const own_node_options& options, const trace& what, std::uint64_t salt, config::node_config& config);

} // namespace troupe::replay
