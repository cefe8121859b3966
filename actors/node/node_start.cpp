#include "actors/node/node_start.hpp"

#include "actors/actor_support.hpp"
#include "actors/allocator/allocator.hpp"
#include "actors/io_worker/io_worker.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/node/node.hpp"
#include "actors/registry/registry.hpp"
#include "base/log.hpp"
#include "io/page.hpp"
#include "io/uring_engine.hpp"

#include <caf/io/all.hpp>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <sys/file.h>
#include <thread>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// One node per data directory, also before any slab is opened.
result<io::unique_descriptor> lock_directory(const fs::path& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure)
    return tl::unexpected<error>(system_error(failure.value(), "create " + directory.string()));
  const auto path = directory / "lock";
  io::unique_descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0)
    return tl::unexpected<error>(system_error(errno, "open " + path.string()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(errc::busy, directory.string() + " is in use by another node: stop it, or give this one another "
                                                   "data_dir");
    return tl::unexpected<error>(system_error(errno, "lock " + path.string()));
  }
  return lock;
}

/// What a slab will be, and what serves it.
struct rank_parts {
  std::size_t space = 0;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  std::shared_ptr<io_worker_parts> worker;
};

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

result<rank_parts> open_rank(const config::node_config& options, std::size_t space_index, rank_number rank) {
  const auto& space = options.namespaces[space_index];
  const auto& storage = options.storage.ranks[rank];
  auto directory = options.data_dir;
  if (storage.directory)
    directory /= *storage.directory;
  io::slab_spec spec;
  spec.path = directory / (space.name + ".rank-" + std::to_string(rank) + ".slab");
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
  if (existed)
    logger->warn("{} holds pages of an earlier run; the registry starts empty, so none of them is served",
                 spec.path.string());
  rank_parts out{space_index, rank, spec.slots, std::make_shared<io_worker_parts>()};
  auto& parts = *out.worker;
  parts.slab = std::make_shared<io::slab_file>(std::move(*slab));
  parts.target = std::make_shared<completion_target>();
  io::engine_options engine;
  engine.name = "io-" + std::to_string(space_index) + "-" + std::to_string(rank);
  engine.depth = options.io.queue_depth;
  engine.threads = options.io.threads;
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
  logger->info("namespace '{}' rank {}: {} slots of {} bytes in {}, {}", space.name, rank, spec.slots, spec.slot_bytes,
               spec.path.string(), parts.engine->describe());
  return out;
}

} // namespace

result<std::unique_ptr<running_node>> start_node(caf::actor_system& system, const config::node_config& options) {
  auto lock = lock_directory(options.data_dir);
  if (!lock)
    return tl::unexpected<error>(lock.error());
  std::vector<rank_parts> ranks;
  for (std::size_t space = 0; space < options.namespaces.size(); ++space)
    for (rank_number rank = 0; rank < options.namespaces[space].world_size; ++rank) {
      auto opened = open_rank(options, space, rank);
      if (!opened)
        return tl::unexpected<error>(opened.error());
      ranks.push_back(std::move(*opened));
    }

  node_children children;
  children.spaces = options.namespaces;
  children.metrics = spawn_actor<metrics>(system, options.node_name);
  registry_peers peers;
  // Unpredictable, so that nobody can choose keys that all fall on one place of the index.
  std::random_device entropy;
  const auto seed = (std::uint64_t{entropy()} << 32U) | entropy();
  for (std::uint32_t shard = 0; shard < options.registry.shards; ++shard) {
    registry_options shard_options;
    shard_options.shard = shard;
    shard_options.shard_count = options.registry.shards;
    shard_options.max_lease = options.registry.lease_max;
    shard_options.max_reservation = options.registry.reservation_deadline;
    shard_options.max_batch = options.registry.max_batch_keys;
    shard_options.hash_seed = seed;
    children.shards.push_back(spawn_actor<registry>(system, shard_options, options.namespaces, children.metrics));
  }
  for (auto& x : ranks) {
    x.worker->metrics = children.metrics;
    allocator_options slots;
    slots.slots = static_cast<slot_number>(x.slots);
    const auto fraction = [&](double share) {
      return static_cast<std::uint32_t>(std::ceil(share * static_cast<double>(x.slots)));
    };
    slots.low_watermark = fraction(options.storage.low_watermark);
    slots.high_watermark = fraction(options.storage.high_watermark);
    // Small enough never to wrap around within the life of a disk.
    slots.first_generation = entropy() & 0x3fffffffU;
    const auto worker = spawn_actor<io_worker>(system, x.worker);
    const auto& space = options.namespaces[x.space];
    const auto slot_owner = spawn_actor<allocator>(system, slots, space.id(), x.rank, worker);
    children.ranks.push_back({x.rank, x.slots, worker, slot_owner});
    children.space_of_rank.push_back(x.space);
    peers.allocators.push_back(slot_owner);
    peers.spaces.push_back(space.id());
    peers.ranks.push_back(x.rank);
  }
  peers.shards = children.shards;
  // Sent before anybody else knows these actors, so it is the first message each of them gets.
  for (const auto& x : children.shards)
    caf::anon_send(x, bind_atom_v, peers);
  for (const auto& x : peers.allocators)
    caf::anon_send(x, bind_atom_v, peers);
  auto supervisor =
      spawn_actor<node>(system, std::make_shared<const config::node_config>(options), std::move(children));
  return std::make_unique<running_node>(std::move(supervisor), std::move(*lock));
}

result<void> running_node::stop(caf::actor_system& system, duration drain_timeout) {
  result<void> outcome;
  caf::scoped_actor self{system};
  self->monitor(supervisor_);
  self->request(supervisor_, drain_timeout + std::chrono::seconds(5), drain_atom_v)
      .receive([] {}, [&](const caf::error& e) { outcome = tl::unexpected<error>(from_caf(e)); });
  self->send_exit(supervisor_, caf::exit_reason::user_shutdown);
  self->receive([](const caf::down_msg&) {});
  supervisor_ = nullptr;
  return outcome;
}

result<std::uint16_t> publish_node(caf::actor_system& system, const running_node& node,
                                   const config::actors_config& where) {
  auto port = system.middleman().publish(node.supervisor(), where.port, where.host.c_str(), true);
  if (!port)
    return fail(errc::io_error, "cannot listen on " + where.host + ":" + std::to_string(where.port) + " (" +
                                    from_caf(port.error()).text +
                                    "): is another process using the port? Choose another actors.port, or 0 for any");
  return *port;
}

} // namespace troupe
