#pragma once

#include "io/slab_file.hpp"

#include <filesystem>
#include <optional>

namespace troupe::io {

/// The slab file of a namespace that has another name now. Looks beside `wanted.path`, where no file is, for one that
/// holds pages of the same namespace identity, rank and shape: names of namespaces are in file names, and not in
/// identities. Opens files for reading alone. Nothing where there is none, where there are several, or where a node has
/// it open. May wait for the disk.
std::optional<std::filesystem::path> find_renamed_slab(const slab_spec& wanted);

} // namespace troupe::io
