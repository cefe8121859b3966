#pragma once

#include "io/slab/slab_file.hpp"

#include <filesystem>
#include <optional>

namespace troupe::io {

/// Finds the slab file of a renamed namespace. Looks beside `wanted.path`, which must not exist, for a file with pages
/// of the same namespace identity, rank and shape: names of namespaces are in file names, and not in identities. Opens
/// files read-only. Nothing where there is none, where there are several, or where a node has it open. May wait for the
/// disk.
std::optional<std::filesystem::path> find_renamed_slab(const slab_spec& wanted);

} // namespace troupe::io
