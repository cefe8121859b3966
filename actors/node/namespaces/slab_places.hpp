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

/// The path of the slab file of a rank.
std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& ns, rank_number rank);

/// Whether ranks of the config's namespaces have slab files; those whose storage has no bytes have none.
bool keeps_slabs(const config::node_config& options);

/// Whether ranks of namespaces that clients create have slab files, as far as there is room.
bool keeps_made_slabs(const config::node_config& options);

/// The directory of the slab files of namespaces that clients have created, and of no others.
std::filesystem::path made_slabs(const config::node_config& options);

/// The file name of the slab of a rank there.
std::string made_slab_name(const namespace_id& ns, rank_number rank);

/// The description of a slab file for other nodes, where the storage is shared; empty where it is not.
/// `invalid_argument` for a file outside the directory that all nodes share.
result<shared_slab> shared_place(const config::node_config& options, const std::filesystem::path& slab,
                                 incarnation_number incarnation);

/// The directory of the durable index.
std::filesystem::path index_directory(const config::node_config& options);

} // namespace troupe
