#include "actors/node/supervisor/slab_places.hpp"

namespace troupe {

std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& space, rank_number rank) {
  auto directory = options.data_dir;
  if (const auto& storage = options.storage.ranks[rank]; storage.directory)
    directory /= *storage.directory;
  return directory / (space.name + ".rank-" + std::to_string(rank) + ".slab");
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

std::string made_slab_name(const namespace_id& space, rank_number rank) {
  return to_string(space) + ".rank-" + std::to_string(rank) + ".slab";
}

std::filesystem::path index_directory(const config::node_config& options) {
  return options.data_dir / "index";
}

} // namespace troupe
