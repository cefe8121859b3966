#include "actors/cluster/cluster_service.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/io_engine_options.hpp"
#include "base/log.hpp"
#include "base/tcp_connect.hpp"
#include "io/slab/slab_store.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace troupe::cluster {

namespace {

/// One file for each rank of each namespace of each other node.
constexpr std::uint32_t peer_files_max = 1024;
/// The calls that may wait for the opener: a few for each session with a peer.
constexpr std::size_t calls_max = std::size_t{1} << 16U;

config::caf_config caf_options(config::caf_config x) {
  // These actors only coordinate transfers; copies have threads of their own.
  constexpr std::uint32_t enough = 2;
  x.scheduler_threads = enough;
  return x;
}

listener_options options_of(const config::node_config& options) {
  auto out = listener_options_of(options.actors);
  // A hello waits for twice as long.
  out.connect_time = std::min(out.connect_time, options.cluster.hello_interval);
  // The node connects to peers that serve pages to its engines, so an engine's certificate is not enough.
  if (out.tls)
    out.required_unit = node_roles::unit;
  return out;
}

bool has_names(const config::cluster_config& x) {
  return std::ranges::any_of(x.seeds, [](const auto& seed) { return !is_numeric_host(seed.host); });
}

/// Opens the reader of other nodes' slab files. The result has no reader where the storage is not shared or no reader
/// can be opened; that costs only time, since pages then come over the network.
io::foreign_storage open_storage(const config::node_config& options) {
  io::foreign_storage out;
  if (!options.storage.shared)
    return out;
  out.directory = config::shared_directory(options);
  auto how = engine_options_of(options);
  how.name = thread_name("troupe-io-peers");
  how.max_files = how.max_buffers = peer_files_max;
  how.usrbio.directory = out.directory;
  out.direct = options.storage.direct && !io::goes_past_the_kernel(how.kind, out.directory / "any");
  auto reader = io::foreign_reader::make(how);
  if (!reader) {
    log::get("cluster")->warn("cannot read slab files of other nodes ({}); their pages are fetched over the network",
                              reader.error().text);
    return out;
  }
  log::get("cluster")->info("reading slab files of other nodes in '{}' with {}", out.directory.string(),
                            (*reader)->describe());
  out.reader = std::move(*reader);
  return out;
}

} // namespace

result<std::unique_ptr<cluster_service>>
cluster_service::make(caf::actor_system& system, const config::node_config& options, cluster_service_parts node) {
  // Counts the threads besides those of the actor system, because actors that start threads could not report a failure:
  // the opener, the connection to a first node, two for etcd, and those that read slab files and take over directories.
  const std::size_t more_threads = 2 + (has_names(options.cluster) ? 1 : 0) +
                                   (options.cluster.etcd.endpoints.empty() ? 0 : 2) + (options.storage.shared ? 7 : 0);
  const system_config outside(caf_options(options.caf));
  if (auto room = outside.check_room(more_threads); !room)
    return fail(room.error().code, room.error().text + " (cluster)");
  auto opener = serial_executor::start(thread_name("troupe-peers"), "the thread that connects to peers", calls_max);
  if (!opener)
    return tl::unexpected<error>(std::move(opener.error()));
  std::shared_ptr<serial_executor> resolver;
  if (has_names(options.cluster)) {
    auto started = serial_executor::start(thread_name("troupe-names"), "the thread that resolves names of peers");
    if (!started)
      return tl::unexpected<error>(std::move(started.error()));
    resolver = std::move(*started);
  }
  return std::unique_ptr<cluster_service>(
      new cluster_service(system, options, std::move(node), {std::move(*opener), std::move(resolver)}));
}

cluster_service::cluster_service(caf::actor_system& system, const config::node_config& options,
                                 cluster_service_parts node, executors threads)
    : system_(system), config_(caf_options(options.caf)), outside_(std::make_unique<caf::actor_system>(config_)),
      opener_(std::move(threads.opener)), resolver_(std::move(threads.resolver)) {
  std::random_device entropy;
  cluster_parts parts;
  parts.options = std::make_shared<const config::node_config>(options);
  parts.self = {options.cluster.name, options.node_name, (std::uint64_t{entropy()} << 32U | entropy()) | 1U};
  parts.reception = std::move(node.reception);
  parts.shards = std::move(node.shards);
  parts.outside = outside_.get();
  parts.opener = opener_;
  parts.resolver = resolver_;
  parts.condition = std::move(node.condition);
  parts.storage = open_storage(options);
  parts.memory = std::move(node.memory);
  // Both run in the opener's thread, which ends before the objects that they use.
  parts.make_dialer = [this, how = options_of(options)]() -> result<caf::io::middleman_actor> {
    auto made = listeners::make(*outside_, how);
    if (!made)
      return tl::unexpected<error>(made.error());
    listeners_.push_back(std::move(*made));
    return listeners_.back()->dialer();
  };
  parts.end_dialer = [this](const caf::io::middleman_actor& which) {
    std::erase_if(listeners_, [&](const auto& x) { return x->dialer() == which; });
  };
  const auto self = parts.self;
  actor_ = spawn_actor<cluster>(system, std::move(parts));
  caf::scoped_actor asker{system};
  asker->request(node.node, caf::infinite, bind_atom_v, self, actor_).receive([] {}, [](const caf::error&) {});
}

cluster_service::~cluster_service() {
  {
    caf::scoped_actor self{system_};
    self->monitor(actor_);
    self->send_exit(actor_, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {});
  }
  actor_ = nullptr;
  // The opener leaves all nodes before the actor system ends.
  opener_.reset();
  resolver_.reset();
  listeners_.clear();
  outside_.reset();
}

} // namespace troupe::cluster
