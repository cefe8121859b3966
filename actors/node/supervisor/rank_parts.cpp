#include "actors/node/supervisor/rank_parts.hpp"

#include "base/log.hpp"
#include "io/page.hpp"
#include "io/slab_store.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// How long a slab may stay in use by nobody: its lock ends when the kernel has taken down the rings of a process that
/// was killed, which is some time after the process itself is gone.
constexpr auto slab_patience = std::chrono::seconds(5);

io::engine_kind kind_of(std::string_view choice) {
  if (choice == "io_uring")
    return io::engine_kind::uring;
  return choice == "threads" ? io::engine_kind::threads : io::engine_kind::automatic;
}

} // namespace

std::uint64_t pinned_bytes_max(const config::node_config& options, const io::arena_facts& arena,
                               std::uint64_t page_bytes) {
  return std::max(std::min(options.memory.client_bytes, arena.bytes / 4), 2 * io::slot_bytes(page_bytes));
}

std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& space, rank_number rank) {
  auto directory = options.data_dir;
  if (const auto& storage = options.storage.ranks[rank]; storage.directory)
    directory /= *storage.directory;
  return directory / (space.name + ".rank-" + std::to_string(rank) + ".slab");
}

result<rank_parts> open_rank(const config::node_config& options, std::size_t space_index, rank_number rank,
                             std::shared_ptr<io::extent_source> extents) {
  const auto& space = options.namespaces[space_index];
  rank_parts out{space_index, rank, 0, 0, std::make_shared<io_worker_parts>()};
  auto& parts = *out.worker;
  parts.name = {space.id(), space.name, rank};
  parts.page_bytes = space.geometry.page_bytes();
  parts.extents = std::move(extents);
  auto& rules = parts.options;
  rules.slot_bytes = io::slot_bytes(parts.page_bytes);
  rules.deadline_max = options.io.deadline;
  rules.batch_pages_max = options.io.max_batch_pages;
  rules.pinned_bytes_max = pinned_bytes_max(options, parts.extents->info(), parts.page_bytes);
  rules.reads_max = options.io.max_pages_in_flight;
  rules.writes_max = options.io.queue_depth;
  rules.clients_max = options.io.max_clients;
  rules.first_pin = (pin_number{std::random_device{}()} << 32U) | std::random_device{}();
  const auto logger = log::get("node");
  if (options.storage.ranks[rank].slab_bytes == 0 || options.memory.write_back == "never") {
    const auto& arena = parts.extents->info();
    rules.memory_only = true;
    rules.slots = arena.bytes / arena.extent_bytes * (arena.extent_bytes / rules.slot_bytes);
    out.slots = rules.slots;
    out.incarnation = fresh_incarnation();
    logger->info("namespace '{}' rank {}: in memory only, {} pages of {} bytes at most", space.name, rank, rules.slots,
                 rules.slot_bytes);
    return out;
  }
  io::slab_store_options wanted;
  wanted.direct = options.storage.direct;
  wanted.patience = slab_patience;
  auto& slab = wanted.slab;
  slab.path = slab_path(options, space, rank);
  slab.space = parts.name.space;
  slab.space_name = space.name;
  slab.rank = rank;
  slab.slot_bytes = rules.slot_bytes;
  slab.slots = config::slab_slots(options.storage.ranks[rank].slab_bytes, parts.page_bytes);
  auto& engine = wanted.engine;
  engine.name = "io-" + std::to_string(space_index) + "-" + std::to_string(rank);
  engine.depth = options.io.queue_depth;
  engine.threads = options.io.threads;
  engine.max_buffers = static_cast<std::uint32_t>(parts.extents->info().bytes / parts.extents->info().extent_bytes);
  engine.kind = kind_of(options.io.engine);
  const bool existed = fs::exists(slab.path);
  const auto target = std::make_shared<completion_target>();
  auto store = io::open_slab_store(wanted, [target](std::span<const io::completion> done) { target->deliver(done); });
  if (!store)
    return tl::unexpected<error>(store.error());
  if (existed && options.registry.durability == "none")
    logger->warn("{} holds pages of an earlier run; the registry starts empty, so none of them is served",
                 slab.path.string());
  const auto& traits = (*store)->traits();
  logger->info("namespace '{}' rank {}: {} slots of {} bytes in {}, {}", space.name, rank, traits.slots,
               traits.slot_bytes, traits.place, (*store)->describe());
  out.slots = traits.slots;
  out.incarnation = traits.incarnation;
  rules.slots = traits.slots;
  rules.write_through = options.registry.durability == "strict";
  rules.write_eagerly = options.memory.write_back != "on_eviction";
  rules.second_hit = options.memory.admission == "second_hit";
  rules.prefetch_pages_max =
      std::min(options.memory.prefetch_bytes, parts.extents->info().bytes / 4) / rules.slot_bytes;
  rules.prefetch_reads_max = std::max(options.io.queue_depth / 2, 1U);
  parts.target = target;
  parts.store = std::move(*store);
  return out;
}

} // namespace troupe
