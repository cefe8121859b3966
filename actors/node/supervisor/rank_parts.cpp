#include "actors/node/supervisor/rank_parts.hpp"

#include "base/log.hpp"
#include "io/page.hpp"
#include "io/arena_name.hpp"
#include "io/slab_store.hpp"

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

std::filesystem::path slab_path(const config::node_config& options, const namespace_spec& space, rank_number rank) {
  auto directory = options.data_dir;
  if (const auto& storage = options.storage.ranks[rank]; storage.directory)
    directory /= *storage.directory;
  return directory / (space.name + ".rank-" + std::to_string(rank) + ".slab");
}

result<rank_parts> open_rank(const config::node_config& options, std::size_t space_index, rank_number rank) {
  const auto& space = options.namespaces[space_index];
  const auto& storage = options.storage.ranks[rank];
  io::slab_store_options wanted;
  wanted.direct = options.storage.direct;
  wanted.patience = slab_patience;
  auto& slab = wanted.slab;
  slab.path = slab_path(options, space, rank);
  slab.space = space.id();
  slab.space_name = space.name;
  slab.rank = rank;
  slab.slot_bytes = io::slot_bytes(space.geometry.page_bytes());
  slab.slots = config::slab_slots(storage.slab_bytes, space.geometry.page_bytes());
  auto& engine = wanted.engine;
  engine.name = "io-" + std::to_string(space_index) + "-" + std::to_string(rank);
  engine.depth = options.io.queue_depth;
  engine.threads = options.io.threads;
  engine.max_buffers = options.io.max_clients;
  engine.kind = kind_of(options.io.engine);
  const bool existed = fs::exists(slab.path);
  const auto target = std::make_shared<completion_target>();
  auto store = io::open_slab_store(wanted, [target](std::span<const io::completion> done) { target->deliver(done); });
  if (!store)
    return tl::unexpected<error>(store.error());
  const auto logger = log::get("node");
  if (existed && options.registry.durability == "none")
    logger->warn("{} holds pages of an earlier run; the registry starts empty, so none of them is served",
                 slab.path.string());
  const auto& traits = (*store)->traits();
  logger->info("namespace '{}' rank {}: {} slots of {} bytes in {}, {}", space.name, rank, traits.slots,
               traits.slot_bytes, traits.place, (*store)->describe());
  rank_parts out{space_index, rank, traits.slots, traits.incarnation, std::make_shared<io_worker_parts>()};
  auto& parts = *out.worker;
  parts.name = {slab.space, space.name, rank};
  parts.target = target;
  parts.options.slots = traits.slots;
  parts.options.slot_bytes = traits.slot_bytes;
  parts.options.alignment = traits.alignment;
  parts.options.deadline_max = options.io.deadline;
  parts.options.batch_pages_max = options.io.max_batch_pages;
  parts.options.pages_in_flight_max = options.io.max_pages_in_flight;
  parts.options.segment_bytes_max = options.io.client_buffer_bytes;
  parts.options.segments_max = options.io.max_clients;
  parts.options.first_segment = std::random_device{}();
  parts.store = std::move(*store);
  parts.buffers = std::make_unique<io::segment_source>(*parts.store);
  return out;
}

} // namespace troupe
