#include "workload/runner/own_node.hpp"

#include "io/page.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/keys.hpp"

#include <unordered_set>
#include <utility>

namespace troupe::replay {

namespace {

constexpr std::uint64_t default_page_bytes = 64 * config::kibibyte;

/// The number of slots until the trace is known; `give_room` replaces it.
constexpr std::uint64_t provisional_slots = 1024;

/// The size of a slab with exactly so many slots: they and the trailer, which takes one page.
std::uint64_t slab_bytes(std::uint64_t slots, std::uint64_t slot_bytes) {
  return slots * slot_bytes + io::page_alignment;
}

config::node_config base_config() {
  config::node_config out;
  out.node_name = "replay";
  out.log_level = "warn";
  out.statistics_interval = duration::zero();
  namespace_spec ns;
  ns.name = "replay";
  ns.model = "replay";
  ns.revision = "1";
  ns.dtype = "bfloat16";
  out.namespaces.push_back(ns);
  return out;
}

tl::unexpected<std::vector<config::problem>> wrong(std::string option, std::string text) {
  return tl::unexpected(std::vector{config::problem{std::move(option), std::move(text), {}}});
}

bool sets_data_dir(const std::vector<std::string>& overrides) {
  for (const auto& x : overrides)
    if (x.starts_with("data_dir="))
      return true;
  return false;
}

} // namespace

tl::expected<own_node, std::vector<config::problem>> make_own_node(const own_node_options& options) {
  own_node out;
  if (options.file) {
    auto loaded = config::load(*options.file, options.overrides);
    if (!loaded)
      return tl::unexpected(std::move(loaded.error()));
    out.config = std::move(*loaded);
  } else {
    out.config = base_config();
  }
  std::size_t namespace_index = 0;
  while (namespace_index < out.config.namespaces.size() && !options.ns.empty() &&
         out.config.namespaces[namespace_index].name != options.ns)
    ++namespace_index;
  if (namespace_index == out.config.namespaces.size())
    return wrong("--namespace", "the config has no namespace '" + options.ns + "'");
  auto& ns = out.config.namespaces[namespace_index];
  if (options.page_bytes || !options.file) {
    const auto geometry = geometry_for_page_bytes(options.page_bytes.value_or(default_page_bytes));
    if (!geometry)
      return wrong("--page-bytes", geometry.error().text);
    ns.geometry = *geometry;
  }
  const auto slot = io::slot_bytes(ns.geometry.page_bytes());
  if (options.ranks || !options.file)
    ns.world_size = options.ranks.value_or(1);
  auto& ranks = out.config.storage.ranks;
  const auto provisional = config::rank_storage{slab_bytes(provisional_slots, slot), {}};
  while (ranks.size() < ns.world_size)
    ranks.push_back(ranks.empty() ? provisional : ranks.back());
  if (options.capacity_pages) {
    for (auto& x : ranks)
      x.slab_bytes = slab_bytes(*options.capacity_pages, slot);
    // So many, and not those that memory could hold beside them.
    out.config.memory.beyond_disk = false;
  }
  if (options.file) {
    if (auto problems = config::validate(out.config); !problems.empty())
      return tl::unexpected(std::move(problems));
    return out;
  }
  if (!sets_data_dir(options.overrides)) {
    // In the working directory and not in /tmp, which is often in memory: the pages should reach a disk.
    const auto here = std::filesystem::current_path();
    out.leftovers = remove_leftovers(here);
    auto scratch = scratch_directory::make(here);
    if (!scratch)
      return wrong("data_dir", scratch.error().text);
    out.config.data_dir = scratch->path() / scratch_directory::node_name;
    out.scratch = std::move(*scratch);
  }
  auto effective = config::parse(config::to_json(out.config), "built-in config", options.overrides);
  if (!effective)
    return tl::unexpected(std::move(effective.error()));
  out.config = std::move(*effective);
  return out;
}

void give_room(const own_node_options& options, const trace& what, std::uint64_t salt, config::node_config& config) {
  if (options.file || options.capacity_pages)
    return;
  std::unordered_set<key_digest> unique;
  for (const auto& x : what.requests)
    for (const auto& key : chain_keys(x.hash_ids, salt))
      unique.insert(key);
  // Eviction begins at the low watermark; so many slots stay free beside the trace's.
  const auto slots =
      static_cast<std::uint64_t>(static_cast<double>(unique.size() + 256) / (1.0 - config.storage.low_watermark)) + 64;
  const auto slot = io::slot_bytes(config.namespaces.front().geometry.page_bytes());
  for (auto& x : config.storage.ranks)
    if (x.slab_bytes == slab_bytes(provisional_slots, slot))
      x.slab_bytes = slab_bytes(slots, slot);
}

} // namespace troupe::replay
