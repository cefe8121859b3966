#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/namespace_spec.hpp"
#include "config/node_config.hpp"
#include "messages/transfer_messages.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// Where the slab file of that rank lies.
std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& space, rank_number rank);

/// Whether ranks of the namespaces of the config have slab files; those whose storage has no bytes have none either.
bool keeps_slabs(const config::node_config& options);

/// Whether those of namespaces that clients make have slab files, as far as there is room.
bool keeps_made_slabs(const config::node_config& options);

/// Where the slab files lie of namespaces that clients have made, and of no others.
std::filesystem::path made_slabs(const config::node_config& options);

/// What that of a rank is called.
std::string made_slab_name(const namespace_id& space, rank_number rank);

/// What other nodes are told of a slab file, where the storage is shared; nothing where it is not. `invalid_argument`
/// for one that does not lie in the directory that all nodes share.
result<shared_slab> shared_place(const config::node_config& options, const std::filesystem::path& slab,
                                 incarnation_number incarnation);

/// Where the durable index lies.
std::filesystem::path index_directory(const config::node_config& options);

} // namespace troupe
