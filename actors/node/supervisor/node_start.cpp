#include "actors/node/supervisor/node_start.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/directory/directory.hpp"
#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/memory/memory_broker.hpp"
#include "actors/node/metrics/metrics.hpp"
#include "actors/node/namespaces/namespace_manager.hpp"
#include "actors/node/namespaces/namespace_terms.hpp"
#include "actors/node/namespaces/namespaces.hpp"
#include "actors/node/namespaces/rank_parts.hpp"
#include "actors/node/reception/directory_proxy.hpp"
#include "actors/node/reception/reception.hpp"
#include "actors/node/registry/registry.hpp"
#include "actors/node/supervisor/directory_claim.hpp"
#include "actors/node/supervisor/directory_options.hpp"
#include "actors/node/supervisor/index_restore.hpp"
#include "actors/node/supervisor/memory_placement.hpp"
#include "actors/node/supervisor/node.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/remote_transport.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "base/size_text.hpp"
#include "base/threads.hpp"
#include "config/memory_rules.hpp"
#include "io/data_directory.hpp"
#include "io/memory/arena_pool.hpp"
#include "io/memory/memory_name.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <random>
#include <utility>

namespace troupe {

namespace {

/// The time beyond draining: for the answer, and for children to end, which stop engines that are idle by then.
constexpr auto stop_patience = std::chrono::seconds(5);

allocator_actor spawn_allocator(caf::actor_system& system, const config::node_config& options, const rank_parts& rank,
                                const io_worker_actor& worker, memory_share memory) {
  auto wanted = options_for_rank(rank, options);
  wanted.elastic = rank.worker->options.memory_only;
  return spawn_actor<allocator>(system, wanted, options.namespaces[rank.ns].id(), rank.rank, worker, std::move(memory));
}

// The config is validated before there is an allocator, so its constant must match.
static_assert(config::memory_per_slot ==
              allocator_state::bytes_per_slot + sizeof(generation_number) + 1 + slab_usage::bytes_per_slot);

/// Allocates the configured memory for pages.
result<std::shared_ptr<io::arena_pool>> open_arena(const config::node_config& options) {
  std::uint64_t largest = 0;
  for (const auto& x : options.namespaces)
    largest = std::max(largest, io::slot_bytes(x.geometry.page_bytes()));
  const auto extent_bytes = io::extent_bytes_for(options.memory.bytes, largest);
  if (!extent_bytes)
    return tl::unexpected<error>(extent_bytes.error());
  auto nodes = numa_nodes_for(options, io::usable_numa_nodes());
  if (!nodes)
    return tl::unexpected<error>(nodes.error());
  if (nodes->empty() && options.memory.numa == "spread")
    log::get("node")->warn("memory.numa \"spread\" has no effect: {}", io::why_not_placed(ENOSYS));
  // 3FS's daemon finds memory by its name, as LMCache's workers do.
  const bool is_named = options.lmcache.enabled || options.io.engine.starts_with("usrbio");
  io::remove_left_memory(options.data_dir);
  auto shared_name = is_named ? io::draw_memory_name(options.data_dir) : result<std::string>();
  if (!shared_name)
    return tl::unexpected<error>(shared_name.error());
  auto memory = io::arena::create(
      {options.memory.bytes, *extent_bytes, huge_page_choice_of(options), *std::move(nodes), *shared_name});
  if (!memory)
    return tl::unexpected<error>(memory.error());
  // Checked before any of the memory is used: the kernel would kill the node otherwise.
  if (const auto fault = config::fault_of_memory(options, memory_bound_of_process());
      fault && !(*memory)->of_huge_pages())
    return fail(errc::limit_exceeded, config::to_string(*fault));
  if (const auto notice = config::notice_of_unusable_memory(options))
    log::get("node")->warn("{}", config::to_string(*notice));
  const auto pool = std::make_shared<io::arena_pool>(std::move(*memory));
  log::get("node")->info("memory for pages: {} extents of {}, {}", pool->counts().extents, size_text(*extent_bytes),
                         pool->describe());
  return pool;
}

/// A rank of the config, before it has actors.
struct opened_rank {
  rank_parts parts;
  memory_share memory;
};

/// Describes the arena and the slab files of the config, for status output.
opened_parts opened_of(const std::shared_ptr<io::arena_pool>& pool, const config::node_config& options,
                       const std::vector<opened_rank>& ranks) {
  opened_parts out;
  out.memory = [pool, bytes = options.memory.bytes] {
    auto text = pool->describe();
    const auto lockable = lockable_memory();
    if (text.find("not locked") == std::string::npos && text.find(" huge pages") == std::string::npos)
      text += !lockable || *lockable >= bytes ? ", locked"
                                              : ", of which " + std::to_string(*lockable / config::mebibyte) +
                                                    " MiB can be locked (RLIMIT_MEMLOCK)";
    return text;
  };
  if (const auto notice = config::notice_of_unusable_memory(options))
    out.unusable_memory = notice->path + ": " + notice->text;
  std::map<std::string, std::size_t> kinds;
  for (const auto& x : ranks) {
    if (!x.parts.worker->store)
      continue;
    const bool direct = x.parts.worker->store->traits().direct;
    const auto how = x.parts.worker->store->describe();
    ++kinds[std::string(direct ? "direct" : "through the page cache") + ", " + how];
    out.buffered = out.buffered || (options.storage.direct && !direct);
    out.without_io_uring = out.without_io_uring || (options.io.engine == "auto" && how.starts_with("thread pool"));
  }
  for (const auto& [how, count] : kinds)
    out.slabs += (out.slabs.empty() ? "" : "; ") + std::to_string(count) + (count == 1 ? " file " : " files ") + how;
  // Their files are opened when an engine attaches.
  if (const auto made = options.storage.disk_bytes; made > 0)
    out.slabs += (out.slabs.empty() ? "" : ", and ") + std::to_string(made / config::mebibyte) +
                 " MiB for namespaces that clients make";
  return out;
}

/// Null where the config has none.
result<std::shared_ptr<io::remote_mover>> open_mover(const config::remote_config& options) {
  if (!options.enabled)
    return nullptr;
  auto made = make_remote_mover(options);
  if (made && options.transport == "ucx")
    log::get("node")->info("pages move between hosts through UCX, by \"{}\"{}", options.ucx_transports,
                           options.ucx_interfaces.empty() ? "" : " on " + options.ucx_interfaces);
  else if (made)
    log::get("node")->info("pages move over TCP, by up to {} connections for a rank", streams_of(options));
  return made;
}

result<std::vector<opened_rank>> open_ranks(const config::node_config& options, const shared_budget& memory,
                                            const std::shared_ptr<io::extent_source>& extents,
                                            const std::shared_ptr<scrub_pace>& pace,
                                            const std::shared_ptr<const write_gate>& gate) {
  std::vector<opened_rank> out;
  for (std::size_t ns = 0; ns < options.namespaces.size(); ++ns)
    for (rank_number rank = 0; rank < options.namespaces[ns].world_size; ++rank) {
      auto opened = open_rank(options, ns, rank, extents, gate);
      if (!opened)
        return tl::unexpected<error>(opened.error());
      auto share = memory_of(*opened, memory);
      if (!share)
        return tl::unexpected<error>(share.error());
      opened->worker->options.scrub.pace = pace;
      out.push_back({std::move(*opened), std::move(*share)});
    }
  // Slots of the slab files come first.
  for (auto& x : out)
    take_memory_slots(x.parts, x.memory, memory);
  return out;
}

/// Gives shards, allocators and io workers the handles of each other. To be called before any other actor knows them,
/// so that it is the first message each of them gets.
void introduce(const node_children& children, const std::vector<known_rank>& ranks) {
  registry_peers peers;
  peers.shards = children.shards();
  for (const auto& x : ranks) {
    peers.allocators.push_back(x.allocator);
    peers.namespaces.push_back(x.ns);
    peers.ranks.push_back(x.rank);
  }
  // In the same order as `ranks`; workers that need no notices of lookups are left out.
  for (const auto& x : children.ranks())
    peers.workers.push_back(x.listens ? x.worker : io_worker_actor{});
  for (const auto& x : peers.shards)
    caf::anon_send(x, bind_atom_v, peers);
  for (const auto& x : peers.allocators)
    caf::anon_send(x, bind_atom_v, peers);
  for (const auto& x : children.ranks())
    caf::anon_send(x.worker, bind_atom_v, peers);
}

/// Reports the slots of the config's ranks to the shards, where there is no store to do so. Blocks.
result<void> notify_shards(caf::actor_system& system, const std::vector<registry_actor>& shards,
                           const std::vector<known_rank>& ranks) {
  result<void> outcome;
  caf::scoped_actor self{system};
  for (const auto& shard : shards)
    for (const auto& x : ranks)
      self->request(shard, caf::infinite, add_rank_request{x.ns, x.rank, x.slots, x.allocator, x.incarnation, {}})
          .receive([] {}, [&](const caf::error& e) { outcome = tl::unexpected<error>(from_caf(e)); });
  return outcome;
}

namespaces_config config_of_namespaces(const std::shared_ptr<const config::node_config>& config,
                                       const node_children& children, const std::vector<known_rank>& own_ranks,
                                       const shared_budget& memory, const namespace_manager_actor& keeper) {
  const auto& options = *config;
  namespaces_config out;
  out.keeper = keeper;
  out.judge = [config, arena = children.extents->info()](const namespace_spec& ns) {
    return judge_namespace(*config, arena, ns);
  };
  out.memory = memory;
  out.own = options.namespaces;
  out.own_ranks = own_ranks;
  out.shards = children.shards();
  out.max_slots = options.hf3fs.max_pages_per_rank;
  out.low_watermark = options.storage.low_watermark;
  out.high_watermark = options.storage.high_watermark;
  // A late writer is assumed to be no later than a reader.
  out.rest = options.hf3fs.protect_locations;
  out.longest_promise = options_for_shard(options, 0).max_protection;
  return out;
}

/// Removes files of namespaces that clients had created and that no longer exist. Blocks.
result<void> sweep_made_slabs(caf::actor_system& system, const namespace_manager_actor& keeper) {
  result<void> outcome;
  caf::scoped_actor self{system};
  self->request(keeper, caf::infinite, restored_atom_v)
      .receive([] {}, [&](const caf::error& e) { outcome = tl::unexpected<error>(from_caf(e)); });
  return outcome;
}

/// Waits until actors have ended, which were requested to end by their owner. Afterwards they hold no slab and no
/// store. Blocks.
result<void> see_end(caf::scoped_actor& self, const std::vector<caf::actor>& children, duration patience) {
  bool all = true;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const auto& x : children) {
    self->monitor(x);
    self->receive([](const caf::down_msg&) {},
                  caf::after(std::max(deadline - std::chrono::steady_clock::now(), duration::zero())) >>
                      [&] { all = false; });
  }
  if (!all)
    return fail(errc::timeout, "a part of the node has not ended; its files and memory stay in use");
  return {};
}

std::vector<caf::actor> handles_of(const node_children& children) {
  std::vector<caf::actor> out;
  for (const auto& x : children.all())
    out.push_back(x.handle);
  return out;
}

/// Null if the config has none: then the store's records of handshakes stay there, until their deadlines expire.
directory_actor spawn_directory(caf::actor_system& system, const config::node_config& options,
                                const std::shared_ptr<store::metadata_store>& store,
                                const restored_handshakes& restored, const std::shared_ptr<outgoing_budget>& outgoing,
                                node_children& children) {
  if (!options.handshake.enabled)
    return {};
  auto made = spawn_actor<directory>(system, options_of_directory(options.handshake), store, restored, outgoing);
  children.add({"the directory of handshakes", caf::actor_cast<caf::actor>(made), "engines could not find each other",
                false, true});
  return made;
}

/// The secret for hashing the keys of HTTP clients: from the store, so that keys are found again after a restart, or
/// for this run alone.
std::array<std::byte, 32> key_secret(const std::shared_ptr<store::metadata_store>& store) {
  return store ? store->identity().secret : store::first_identity().secret;
}

/// A guard for the actors that a start has spawned. If the start fails, it ends them, so that another node may start at
/// once. The error of the start is the one reported; an actor that does not end in time is ignored.
class begun_node {
public:
  explicit begun_node(caf::actor_system& system) : system_(system) {}
  begun_node(const begun_node&) = delete;
  begun_node& operator=(const begun_node&) = delete;
  ~begun_node() {
    if (!is_whole_)
      end_all();
  }

  node_children children;
  /// Actors that were spawned and are not children yet.
  std::vector<caf::actor> others;
  /// Null before it is spawned.
  node_actor supervisor;

  /// Releases the guard: the running node ends its actors.
  void is_whole() noexcept { is_whole_ = true; }

private:
  void end_all() const {
    auto all = handles_of(children);
    all.insert(all.end(), others.begin(), others.end());
    caf::scoped_actor self{system_};
    // The supervisor ends first, because it would react to the death of the others.
    if (supervisor) {
      self->send_exit(supervisor, caf::exit_reason::user_shutdown);
      static_cast<void>(see_end(self, {caf::actor_cast<caf::actor>(supervisor)}, stop_patience));
    }
    for (const auto& x : all)
      self->send_exit(x, caf::exit_reason::user_shutdown);
    static_cast<void>(see_end(self, all, stop_patience));
  }

  caf::actor_system& system_;
  bool is_whole_ = false;
};

/// What a node opens and creates before it has actors.
struct opened_node {
  /// The lock, the claim and the gate: destroyed after everything that writes there.
  io::directory_lock lock;
  std::unique_ptr<io::claim_keeper> claim{};
  std::shared_ptr<const write_gate> gate = write_gate::always_open();
  shared_budget memory{};
  std::shared_ptr<node_condition> condition = std::make_shared<node_condition>();
  std::shared_ptr<page_residence> residence = std::make_shared<page_residence>();
  std::shared_ptr<io::arena_pool> extents{};
  std::shared_ptr<io::remote_mover> mover{};
  /// One for all slabs, of the config and of clients; null for none.
  std::shared_ptr<scrub_pace> pace{};
  std::vector<opened_rank> ranks{};
  opened_parts description{};
  /// Null where the index is in memory only.
  std::shared_ptr<store::metadata_store> store{};
  /// Null where lookups are not recorded.
  std::shared_ptr<request_recorder> recorder{};
  /// One for each shard; empty where lookups are not kept.
  std::vector<std::shared_ptr<lookup_history>> lookups{};
  /// Null where no events are published.
  std::shared_ptr<events::feed> events{};
};

result<opened_node> open_node(const config::node_config& options) {
  auto lock = io::lock_data_directory(options.data_dir);
  if (!lock)
    return fail(lock.error().code, "data_dir: " + lock.error().text);
  auto claim = claim_data_directory(options);
  if (!claim)
    return tl::unexpected<error>(claim.error());
  opened_node out{.lock = std::move(*lock), .claim = std::move(*claim)};
  if (out.claim)
    out.gate = out.claim->gate();
  out.memory = std::make_shared<memory_budget>(options.registry.memory_bytes);
  auto extents = open_arena(options);
  if (!extents)
    return tl::unexpected<error>(extents.error());
  out.extents = std::move(*extents);
  auto mover = open_mover(options.remote);
  if (!mover)
    return tl::unexpected<error>(mover.error());
  out.mover = std::move(*mover);
  if (options.storage.scrub_bytes_per_second > 0)
    out.pace = std::make_shared<scrub_pace>(options.storage.scrub_bytes_per_second);
  auto ranks = open_ranks(options, out.memory, out.extents, out.pace, out.gate);
  if (!ranks)
    return tl::unexpected<error>(ranks.error());
  out.ranks = std::move(*ranks);
  out.description = opened_of(out.extents, options, out.ranks);
  auto store = open_index(options, out.gate);
  if (!store)
    return tl::unexpected<error>(store.error());
  out.store = std::move(*store);
  if (options.registry.record_keys > 0)
    out.recorder = std::make_shared<request_recorder>(options.registry.record_keys);
  out.lookups = histories_of(options, std::chrono::steady_clock::now());
  return out;
}

std::vector<registry_actor> spawn_shards(caf::actor_system& system, const config::node_config& options,
                                         const metrics_actor& meters, const opened_node& from) {
  // The seed is unpredictable, so that keys cannot be chosen to collide in the index.
  std::random_device entropy;
  const auto seed = (std::uint64_t{entropy()} << 32U) | entropy();
  std::vector<registry_actor> out;
  for (std::uint32_t shard = 0; shard < options.registry.shards; ++shard) {
    auto wanted = options_for_shard(options, shard);
    wanted.change_feed = from.store != nullptr;
    wanted.hash_seed = seed;
    wanted.memory = from.memory;
    wanted.condition = from.condition;
    wanted.residence = from.residence;
    wanted.recorder = from.recorder;
    if (!from.lookups.empty())
      wanted.history = from.lookups[shard];
    wanted.events = from.events;
    out.push_back(spawn_actor<registry>(system, wanted, options.namespaces, meters, from.store));
  }
  return out;
}

/// The actors for keys and pages of the config.
struct storage_actors {
  metrics_actor meters;
  memory_broker_actor broker;
  std::vector<known_rank> ranks;
};

/// Spawns an io worker and an allocator for each rank, and adds them to the children.
std::vector<known_rank> spawn_ranks(caf::actor_system& system, const config::node_config& options, opened_node& from,
                                    const storage_actors& storage, node_children& children) {
  std::vector<known_rank> out;
  for (auto& [x, memory] : std::exchange(from.ranks, {})) {
    x.worker->metrics = storage.meters;
    x.worker->condition = from.condition;
    x.worker->broker = storage.broker;
    from.condition->add_slab(x.worker->name);
    x.worker->options.resident = from.residence->add(x.worker->name.ns, x.rank, x.slots + x.memory_slots);
    const auto holder = x.worker->name;
    const auto worker = spawn_actor<io_worker>(system, x.worker);
    caf::anon_send(storage.broker, memory_holder{holder.ns, holder.rank, worker});
    const auto slot_owner = spawn_allocator(system, options, x, worker, std::move(memory));
    children.add_rank({x.ns, x.rank, x.slots, worker, slot_owner, x.worker->options.listens(), x.slab});
    out.push_back(
        {options.namespaces[x.ns].id(), x.rank, static_cast<slot_number>(x.slots), slot_owner, x.incarnation});
  }
  return out;
}

storage_actors spawn_storage(caf::actor_system& system, const config::node_config& options, opened_node& from,
                             const std::shared_ptr<request_latencies>& latencies, begun_node& begun) {
  storage_actors out;
  auto& children = begun.children;
  out.meters = spawn_actor<metrics>(system, options.node_name, latencies);
  begun.others.push_back(caf::actor_cast<caf::actor>(out.meters));
  for (const auto& x : spawn_shards(system, options, out.meters, from))
    children.add_shard(x);
  out.broker = spawn_actor<memory_broker>(system, from.extents);
  begun.others.push_back(caf::actor_cast<caf::actor>(out.broker));
  out.ranks = spawn_ranks(system, options, from, out, children);
  children.add(
      {"the memory broker", caf::actor_cast<caf::actor>(out.broker), "memory could not be reassigned", false, false});
  children.add_metrics(out.meters);
  introduce(children, out.ranks);
  return out;
}

/// Spawns the keeper of namespaces that clients create, and adds it to the children.
result<namespace_manager_actor> spawn_keeper(caf::actor_system& system,
                                             const std::shared_ptr<const config::node_config>& options,
                                             const std::shared_ptr<io::disk_budget>& disk, const opened_node& from,
                                             const storage_actors& storage, node_children& children) {
  auto out = spawn_with_thread<namespace_manager>(
      system, thread_name("troupe-spaces"), "the thread that creates slab files",
      namespace_manager_options{.config = options,
                                .files = open_namespace_files(options, from.extents, from.gate),
                                .disk = disk,
                                .memory = from.memory,
                                .meters = storage.meters,
                                .condition = from.condition,
                                .residence = from.residence,
                                .shards = children.shards(),
                                .broker = storage.broker,
                                .pace = from.pace});
  if (!out)
    return tl::unexpected<error>(out.error());
  children.add({"the keeper of namespaces that clients create", caf::actor_cast<caf::actor>(*out),
                "their slab files could not grow, nor be distinguished from others"});
  return namespace_manager_actor(*out);
}

/// What the index knows; without one, the shards are notified of the slots of the config's ranks. Blocks.
result<known_namespaces> restore(caf::actor_system& system, const config::node_config& options, const opened_node& from,
                                 const namespaces_config& run_time, const storage_actors& storage,
                                 const node_children& children) {
  if (from.store)
    return restore_index(system, *from.store, run_time, options, storage.ranks, *from.gate, from.events.get());
  auto left = leave_index_aside(options, *from.gate);
  if (left)
    left = notify_shards(system, children.shards(), storage.ranks);
  if (!left)
    return tl::unexpected<error>(left.error());
  return known_namespaces{};
}

/// The node whose actors all run.
result<std::unique_ptr<running_node>> run(opened_node& opened, const config::node_config& options, begun_node& begun,
                                          node_services services) {
  auto recorded = trace_file::start(recorded_trace(options.data_dir), opened.recorder, opened.gate);
  if (!recorded)
    return tl::unexpected<error>(std::move(recorded.error()));
  const auto condition = opened.condition;
  auto out = std::make_unique<running_node>(begun.supervisor, handles_of(begun.children), std::move(services),
                                            std::move(opened.store), std::move(opened.lock), std::move(opened.claim));
  watch_claim(out->claim(), options.data_dir, condition);
  out->record(std::move(*recorded));
  begun.is_whole();
  return out;
}

/// As `start_node`; throws where threads, open files or memory run out.
result<std::unique_ptr<running_node>> build_node(caf::actor_system& system, const config::node_config& options,
                                                 node_protocols protocols) {
  auto opened = open_node(options);
  if (!opened)
    return tl::unexpected<error>(opened.error());
  opened->events = protocols.feed;
  // Destroyed before the lock, the claim and the store.
  begun_node begun(system);
  auto& children = begun.children;
  children.served = options.namespaces;
  children.extents = opened->extents;
  children.mover = opened->mover;
  const auto latencies = std::make_shared<request_latencies>();
  const auto storage = spawn_storage(system, options, *opened, latencies, begun);

  const auto shared_options = std::make_shared<const config::node_config>(options);
  const auto disk = std::make_shared<io::disk_budget>(options.storage.disk_bytes);
  const auto keeper = spawn_keeper(system, shared_options, disk, *opened, storage, children);
  if (!keeper)
    return tl::unexpected<error>(keeper.error());
  auto run_time = config_of_namespaces(shared_options, children, storage.ranks, opened->memory, *keeper);
  const auto known = restore(system, options, *opened, run_time, storage, children);
  if (!known)
    return tl::unexpected<error>(known.error());
  if (auto swept = sweep_made_slabs(system, *keeper); !swept)
    return tl::unexpected<error>(swept.error());
  run_time.made = known->made;
  for (const auto& x : known->made)
    children.add_made(x, children.served.size());
  children.namespaces = spawn_actor<namespaces>(system, run_time, known->namespaces, known->ranks);
  children.add({"the namespaces actor", caf::actor_cast<caf::actor>(children.namespaces),
                "ranks that clients register could not be distinguished from those of others"});

  node_services services;
  services.shards = children.shards();
  services.namespaces = children.namespaces;
  services.metrics = storage.meters;
  for (const auto& x : options.namespaces)
    services.own_namespaces.push_back(x.id());
  services.memory = opened->memory;
  services.condition = opened->condition;
  services.key_secret = key_secret(opened->store);
  services.names = run_time.names;
  services.disk = disk;
  services.outgoing =
      std::make_shared<outgoing_budget>(options.actors.max_message_bytes, options.handshake.memory_bytes);
  services.directory = spawn_directory(system, options, opened->store, known->handshakes, services.outgoing, children);
  services.extents = opened->extents;
  static_cast<node_protocols&>(services) = std::move(protocols);
  services.opened = std::move(opened->description);
  services.latencies = latencies;
  services.lookups.assign(opened->lookups.begin(), opened->lookups.end());
  services.clients = children.clients;
  begun.supervisor =
      spawn_actor<node>(system, shared_options, children, watch_process,
                        node_watch(opened->condition, opened->memory, opened->gate, opened->extents), services.peers);
  services.node = begun.supervisor;
  services.reception =
      spawn_actor<reception>(system, begun.supervisor, services.directory, services.roles, services.outgoing);
  return run(*opened, options, begun, std::move(services));
}

} // namespace

result<std::unique_ptr<running_node>> start_node(caf::actor_system& system, const config::node_config& options,
                                                 node_protocols protocols) {
  try {
    return build_node(system, options, std::move(protocols));
  } catch (const std::exception& e) {
    return tl::unexpected<error>(error_of(e, "cannot start the node"));
  }
}

result<void> running_node::stop(caf::actor_system& system, duration drain_timeout) {
  result<void> outcome;
  const auto patience = drain_timeout + stop_patience;
  caf::scoped_actor self{system};
  self->monitor(supervisor_);
  self->request(supervisor_, patience, drain_atom_v)
      .receive([] {}, [&](const caf::error& e) { outcome = tl::unexpected<error>(from_caf(e)); });
  self->send_exit(supervisor_, caf::exit_reason::user_shutdown);
  self->receive([](const caf::down_msg&) {});
  supervisor_ = nullptr;
  services_ = node_services{};
  // The supervisor has requested its children to end, which takes as long as the last transfer. They hold the slabs and
  // the store.
  if (auto ended = see_end(self, children_, patience); !ended && outcome)
    outcome = ended;
  children_.clear();
  recorded_.reset();
  if (store_)
    if (auto closed = store_->close(); !closed && outcome)
      outcome = closed;
  store_.reset();
  // From then on other nodes may write. If an actor has not ended, the claim is kept and expires; other nodes then find
  // out by themselves that this one is dead.
  if (claim_ && !outcome)
    claim_->abandon();
  claim_.reset();
  return outcome;
}

} // namespace troupe
