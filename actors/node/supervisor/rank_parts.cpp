#include "actors/node/supervisor/rank_parts.hpp"

#include "base/log.hpp"
#include "io/page.hpp"
#include "io/uring_engine.hpp"

#include <chrono>
#include <filesystem>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// How long a slab may stay in use by nobody: its lock ends when the kernel has taken down the rings of a process that
/// was killed, which is some time after the process itself is gone.
constexpr auto slab_patience = std::chrono::seconds(5);

result<io::slab_file> open_slab(const io::slab_spec& spec, bool direct) {
  const auto give_up = std::chrono::steady_clock::now() + slab_patience;
  auto slab = io::slab_file::open(spec, direct);
  const auto busy = [&] { return !slab && slab.error().code == errc::busy; };
  if (busy())
    log::get("node")->info("{} is in use: waiting, in case its last node has just died", spec.path.string());
  while (busy() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slab = io::slab_file::open(spec, direct);
  }
  return slab;
}

/// As the config says: "auto" falls back to threads, "io_uring" does not.
result<std::unique_ptr<io::engine>> make_engine(const io::engine_options& options, std::string_view choice,
                                                const std::shared_ptr<completion_target>& target) {
  const auto sink = [target](std::span<const io::completion> done) { target->deliver(done); };
  if (choice != "io_uring")
    return io::make_engine(options, sink);
  auto made = io::uring_engine::start(options, sink);
  if (!made && made.error().code == errc::unsupported)
    return fail(errc::unsupported, made.error().text + "; set io.engine to \"auto\" or \"threads\" to do without");
  return made;
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
  io::slab_spec spec;
  spec.path = slab_path(options, space, rank);
  spec.space = space.id();
  spec.space_name = space.name;
  spec.rank = rank;
  spec.slot_bytes = io::slot_bytes(space.geometry.page_bytes());
  spec.slots = config::slab_slots(storage.slab_bytes, space.geometry.page_bytes());
  const bool existed = fs::exists(spec.path);
  auto slab = open_slab(spec, options.storage.direct);
  if (!slab)
    return tl::unexpected<error>(slab.error());
  const auto logger = log::get("node");
  if (existed && options.registry.durability == "none")
    logger->warn("{} holds pages of an earlier run; the registry starts empty, so none of them is served",
                 spec.path.string());
  rank_parts out{space_index, rank, spec.slots, slab->spec().incarnation, std::make_shared<io_worker_parts>()};
  auto& parts = *out.worker;
  parts.slab = std::make_shared<io::slab_file>(std::move(*slab));
  parts.target = std::make_shared<completion_target>();
  io::engine_options engine;
  engine.name = "io-" + std::to_string(space_index) + "-" + std::to_string(rank);
  engine.depth = options.io.queue_depth;
  engine.threads = options.io.threads;
  engine.max_buffers = options.io.max_clients;
  engine.allow_uring = options.io.engine != "threads";
  auto made = make_engine(engine, options.io.engine, parts.target);
  if (!made)
    return tl::unexpected<error>(made.error());
  parts.engine = std::move(*made);
  const auto file = parts.engine->add_file(parts.slab->descriptor());
  if (!file)
    return tl::unexpected<error>(file.error());
  parts.options.slots = spec.slots;
  parts.options.slot_bytes = spec.slot_bytes;
  parts.options.file = *file;
  parts.options.deadline_max = options.io.deadline;
  parts.options.batch_pages_max = options.io.max_batch_pages;
  parts.options.pages_in_flight_max = options.io.max_pages_in_flight;
  parts.options.segment_bytes_max = options.io.client_buffer_bytes;
  parts.options.segments_max = options.io.max_clients;
  parts.options.first_segment = std::random_device{}();
  logger->info("namespace '{}' rank {}: {} slots of {} bytes in {}, {}", space.name, rank, spec.slots, spec.slot_bytes,
               spec.path.string(), parts.engine->describe());
  return out;
}

} // namespace troupe
