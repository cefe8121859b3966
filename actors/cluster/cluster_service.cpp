#include "actors/cluster/cluster_service.hpp"

#include "actors/cluster/live_network.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/io_engine_options.hpp"
#include "base/log.hpp"
#include "io/slab/slab_store.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace troupe::cluster {

namespace {

/// One file for each rank of each namespace of each other node.
constexpr std::uint32_t peer_files_max = 1024;

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
  auto network = live_network::make(system, options);
  if (!network)
    return tl::unexpected<error>(network.error());
  return std::unique_ptr<cluster_service>(new cluster_service(system, options, std::move(node), std::move(*network)));
}

cluster_service::cluster_service(caf::actor_system& system, const config::node_config& options,
                                 cluster_service_parts node, std::shared_ptr<peer_network> network)
    : system_(system), network_(std::move(network)) {
  std::random_device entropy;
  cluster_parts parts;
  parts.options = std::make_shared<const config::node_config>(options);
  parts.self = {options.cluster.name, options.node_name, (std::uint64_t{entropy()} << 32U | entropy()) | 1U};
  parts.reception = std::move(node.reception);
  parts.shards = std::move(node.shards);
  parts.network = network_;
  parts.condition = std::move(node.condition);
  parts.storage = open_storage(options);
  parts.memory = std::move(node.memory);
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
  // Leaves all nodes.
  network_.reset();
}

} // namespace troupe::cluster
