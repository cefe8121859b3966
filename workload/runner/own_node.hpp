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

/// The options of a run's own node. Without a file: one namespace, with room for everything in the trace.
struct own_node_options {
  std::optional<std::filesystem::path> file;
  /// The arguments of `--set`.
  std::vector<std::string> overrides;
  /// The namespace that the rest applies to; the first if empty.
  std::string ns;
  std::optional<std::uint64_t> page_bytes;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint64_t> capacity_pages;
};

/// The config of a run's own node.
struct own_node {
  config::node_config config;
  /// The node's directory, unless the user has chosen one.
  scratch_directory scratch;
  /// What killed runs had left beside it.
  std::vector<leftover> leftovers;
};

/// Makes the config: the file if there is one, else one namespace; then the options; then the overrides. Errors: those
/// of the file, or of an option, which is then the problem's path.
tl::expected<own_node, std::vector<config::problem>> make_own_node(const own_node_options& options);

/// Sets the slots that the trace needs in a config that was made without it, unless the file or an option sets them.
void give_room(const own_node_options& options, const trace& what, std::uint64_t salt, config::node_config& config);

} // namespace troupe::replay
