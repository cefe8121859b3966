#include "cli/replay_node.hpp"

#include "io/page.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/keys.hpp"
#include "workload/replay/text_table.hpp"

#include <iostream>
#include <unistd.h>
#include <unordered_set>

namespace troupe::cli {

namespace {

constexpr std::uint64_t default_page_bytes = 64 * config::kibibyte;

/// Slots until the trace is known; replaced by `give_room`.
constexpr std::uint64_t provisional_slots = 1024;

/// The slab with exactly so many slots: they and the trailer, which takes a page of its own.
std::uint64_t slab_bytes(std::uint64_t slots, std::uint64_t slot_bytes) {
  return slots * slot_bytes + io::page_alignment;
}

std::optional<kv_geometry> geometry_of(std::uint64_t page_bytes) {
  auto geometry = replay::geometry_for_page_bytes(page_bytes);
  if (geometry)
    return *geometry;
  std::cerr << "--page-bytes: " << geometry.error().text << '\n';
  return std::nullopt;
}

config::node_config base_config() {
  config::node_config out;
  out.node_name = "replay";
  out.log_level = "warn";
  out.statistics_interval = duration::zero();
  namespace_spec space;
  space.name = "replay";
  space.model = "replay";
  space.revision = "1";
  space.dtype = "bfloat16";
  out.namespaces.push_back(space);
  return out;
}

/// Beside the working directory and not in /tmp, which is often memory: the pages are to reach a disk.
std::optional<scratch_directory> make_scratch() {
  const auto here = std::filesystem::current_path();
  for (const auto& x : remove_leftovers(here))
    std::cerr << "troupe replay: " << (x.removed ? "removed " : "cannot remove ") << x.path.string() << " ("
              << replay::human_bytes(x.bytes) << "), which a replay left behind that was killed\n";
  auto made = scratch_directory::make(here);
  if (made)
    return std::move(*made);
  std::cerr << "troupe replay: " << made.error().text << '\n';
  return std::nullopt;
}

bool sets_data_dir(const std::vector<std::string>& overrides) {
  for (const auto& x : overrides)
    if (x.starts_with("data_dir="))
      return true;
  return false;
}

} // namespace

std::optional<own_node> make_own_node(const replay_options& options) {
  own_node out;
  if (options.config) {
    auto loaded = config::load(*options.config, options.overrides);
    if (!loaded) {
      print_problems(loaded.error());
      return std::nullopt;
    }
    out.config = std::move(*loaded);
  } else {
    out.config = base_config();
  }
  std::size_t space_index = 0;
  while (space_index < out.config.namespaces.size() && !options.space.empty() &&
         out.config.namespaces[space_index].name != options.space)
    ++space_index;
  if (space_index == out.config.namespaces.size()) {
    std::cerr << "--namespace: the config has no namespace '" << options.space << "'\n";
    return std::nullopt;
  }
  auto& space = out.config.namespaces[space_index];
  if (options.page_bytes || !options.config) {
    const auto geometry = geometry_of(options.page_bytes.value_or(default_page_bytes));
    if (!geometry)
      return std::nullopt;
    space.geometry = *geometry;
  }
  const auto slot = io::slot_bytes(space.geometry.page_bytes());
  if (options.ranks || !options.config)
    space.world_size = options.ranks.value_or(1);
  auto& ranks = out.config.storage.ranks;
  const auto provisional = config::rank_storage{slab_bytes(provisional_slots, slot), {}};
  while (ranks.size() < space.world_size)
    ranks.push_back(ranks.empty() ? provisional : ranks.back());
  if (options.capacity_pages)
    for (auto& x : ranks)
      x.slab_bytes = slab_bytes(*options.capacity_pages, slot);
  if (!options.config) {
    if (!sets_data_dir(options.overrides)) {
      auto scratch = make_scratch();
      if (!scratch)
        return std::nullopt;
      out.config.data_dir = scratch->path();
      out.scratch = std::move(*scratch);
    }
    auto effective = config::parse(config::to_json(out.config), "built-in config", options.overrides);
    if (!effective) {
      print_problems(effective.error());
      return std::nullopt;
    }
    out.config = std::move(*effective);
  } else if (const auto problems = config::validate(out.config); !problems.empty()) {
    print_problems(problems);
    return std::nullopt;
  }
  return out;
}

result<void> check_memory(std::uint64_t bytes, std::string_view who, std::string_view options) {
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > memory / 2)
    return fail(errc::limit_exceeded, std::string(who) + " would need " + std::to_string(bytes >> 20U) +
                                          " MiB of KV cache, and this machine has " + std::to_string(memory >> 20U) +
                                          " MiB: choose a smaller " + std::string(options));
  return {};
}

void give_room(const replay_options& options, const replay::trace& trace, config::node_config& config) {
  if (options.config || options.capacity_pages)
    return;
  std::unordered_set<key_digest> unique;
  for (const auto& x : trace.requests)
    for (const auto& key : replay::chain_keys(x.hash_ids, options.salt))
      unique.insert(key);
  // Eviction begins at the low watermark; so much stays free beside what the trace fills.
  const auto slots =
      static_cast<std::uint64_t>(static_cast<double>(unique.size() + 256) / (1.0 - config.storage.low_watermark)) + 64;
  const auto slot = io::slot_bytes(config.namespaces.front().geometry.page_bytes());
  for (auto& x : config.storage.ranks)
    if (x.slab_bytes == slab_bytes(provisional_slots, slot))
      x.slab_bytes = slab_bytes(slots, slot);
}

} // namespace troupe::cli
