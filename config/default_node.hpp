#pragma once

#include "config/node_config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::config {

/// The default memory for pages: a quarter of what is available, in whole 64 MiB, and from 64 MiB to 1 TiB. With 0,
/// which means unknown: the default of `memory.bytes`.
std::uint64_t memory_for_pages(std::uint64_t available) noexcept;

/// The config of `troupe serve` without a file: pages are in memory only, in namespaces that clients create; clients of
/// this host and this user attach by a Unix socket, and HTTP is served on the loopback interface.
node_config default_node(std::uint64_t available_memory);

/// Its keys that are usually changed first, as for `to_commented_json`.
std::vector<std::string> first_keys();

} // namespace troupe::config
