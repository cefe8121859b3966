#include "actors/node/namespaces/slab_places.hpp"

namespace troupe {

std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& ns, rank_number rank) {
  auto directory = options.data_dir;
  if (const auto& storage = options.storage.ranks[rank]; storage.directory)
    directory /= *storage.directory;
  return directory / (ns.name + ".rank-" + std::to_string(rank) + ".slab");
}

bool keeps_slabs(const config::node_config& options) {
  return options.memory.write_back != "never";
}

bool keeps_made_slabs(const config::node_config& options) {
  return keeps_slabs(options) && options.storage.disk_bytes > 0;
}

std::filesystem::path made_slabs(const config::node_config& options) {
  return options.data_dir / "namespaces";
}

std::string made_slab_name(const namespace_id& ns, rank_number rank) {
  return to_string(ns) + ".rank-" + std::to_string(rank) + ".slab";
}

result<shared_slab> shared_place(const config::node_config& options, const std::filesystem::path& slab,
                                 incarnation_number incarnation) {
  if (!options.storage.shared)
    return shared_slab{};
  // Directories may be symbolic links, for example to a mount point.
  std::error_code failed;
  const auto root = std::filesystem::weakly_canonical(config::shared_directory(options), failed);
  const auto file = std::filesystem::weakly_canonical(slab, failed);
  const auto below = file.lexically_relative(root);
  if (failed || below.empty() || *below.begin() == "..")
    return fail(errc::invalid_argument, "slab '" + slab.string() + "' is not in '" + root.string() +
                                            "', which other nodes read: set storage.shared_directory to the directory "
                                            "on the shared file system that contains the slabs of all nodes");
  return shared_slab{below.string(), incarnation};
}

std::filesystem::path index_directory(const config::node_config& options) {
  return options.data_dir / "index";
}

} // namespace troupe
