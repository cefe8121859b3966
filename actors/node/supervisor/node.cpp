#include "actors/node/supervisor/node.hpp"

#include "actors/node/reception/client_shard.hpp"
#include "actors/node/reception/client_worker.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/stats_sum.hpp"
#include "base/log.hpp"

namespace troupe {

namespace {

constexpr auto stats_timeout = std::chrono::seconds(5);

} // namespace

node::node(caf::actor_config& config, std::shared_ptr<const config::node_config> options, node_children children)
    : node_actor::base(config), options_(std::move(options)), children_(std::move(children)) {
  set_down_handler([this](caf::down_msg& down) { on_down(down); });
}

node::behavior_type node::make_behavior() {
  for (const auto& x : children_.shards)
    monitor(x);
  for (const auto& x : children_.ranks) {
    monitor(x.worker);
    monitor(x.allocator);
  }
  monitor(children_.metrics);
  monitor(children_.namespaces);
  if (options_->statistics_interval > duration::zero())
    delayed_send(this, options_->statistics_interval, caf::tick_atom_v);
  return {
      [this](const attach_request& wanted, const caf::actor& link) { return attach(wanted, link); },
      [this](caf::leave_atom, owner_id owner, const caf::actor& link) { return leave(owner, link); },
      [this](stats_atom) { return collect(); },
      [this](drain_atom) { return drain(); },
      [this](caf::tick_atom) {
        collect_stats([this](const result<node_stats>& stats) {
          if (stats)
            log_statistics(*stats);
        });
        delayed_send(this, options_->statistics_interval, caf::tick_atom_v);
      },
  };
}

owner_id node::new_owner() {
  for (;;)
    if (const owner_id owner = std::uint64_t{entropy_()} << 32U | entropy_(); owner != 0 && !clients_.contains(owner))
      return owner;
}

caf::result<attach_reply> node::attach(const attach_request& wanted, const caf::actor& link) {
  if (draining_)
    return to_caf(error{errc::shutting_down, "the node is draining"});
  if (wanted.protocol != protocol_version)
    return to_caf(error{errc::unsupported, "the client speaks protocol " + std::to_string(wanted.protocol) +
                                               ", this node " + std::to_string(protocol_version)});
  if (!link)
    return to_caf(error{errc::invalid_argument, "a client attaches with a handle to be watched"});
  // Its death would count as that of a client, and its leaving would end the watch.
  if (is_child(link.address()))
    return to_caf(error{errc::invalid_argument, "a client attaches with a handle of its own, not one of the node's"});
  std::size_t space = 0;
  while (space < children_.spaces.size() && !wanted.space_name.empty() &&
         children_.spaces[space].name != wanted.space_name)
    ++space;
  if (space == children_.spaces.size()) {
    std::string known;
    for (const auto& x : children_.spaces)
      known.append(known.empty() ? "" : ", ").append(x.name);
    return to_caf(
        error{errc::unknown_namespace, "no namespace '" + wanted.space_name + "' on this node; it has: " + known});
  }
  // The answer to an earlier request of this link was lost, or took too long.
  std::vector<owner_id> before;
  for (const auto& [owner, x] : clients_)
    if (x.handle == link)
      before.push_back(owner);
  for (const auto owner : before) {
    demonitor(link.address());
    client_gone(owner, "attaches again");
  }
  if (clients_.size() >= options_->io.max_clients)
    return to_caf(error{errc::limit_exceeded, std::to_string(clients_.size()) +
                                                  " clients are attached, which is the limit (io.max_clients)"});
  const auto owner = new_owner();
  monitor(link);
  auto& attached = clients_.emplace(owner, client{link, wanted.client_name, {}, {}}).first->second;
  attach_reply reply;
  reply.owner = owner;
  reply.node_name = options_->node_name;
  reply.space_id = children_.spaces[space].id();
  reply.space = children_.spaces[space];
  reply.space.salt.clear();
  reply.limits = {options_->io.client_buffer_bytes, options_->registry.max_batch_keys, options_->io.max_batch_pages,
                  options_->registry.lease_max, options_->registry.reservation_deadline};
  welcome(attached, space, reply);
  log::get("node")->info("client '{}' (process {}) attached as {:016x} to namespace '{}'", wanted.client_name,
                         wanted.process, owner, reply.space.name);
  return reply;
}

void node::welcome(client& x, std::size_t space, attach_reply& reply) {
  const auto rights = std::make_shared<client_rights>(client_scope{
      reply.owner, reply.space_id, reply.limits.batch_keys, reply.limits.batch_pages, options_->actors.max_requests});
  for (const auto& shard : children_.shards)
    x.shards.push_back(spawn_actor<client_shard>(system(), rights, shard, address(), x.handle.node()));
  reply.shards = x.shards;
  for (std::size_t i = 0; i < children_.ranks.size(); ++i) {
    const auto& rank = children_.ranks[i];
    if (children_.space_of_rank[i] != space)
      continue;
    x.workers.push_back(
        spawn_actor<client_worker>(system(), rights, rank.rank, rank.worker, address(), x.handle.node()));
    reply.ranks.push_back({rank.rank, rank.slots, x.workers.back()});
  }
}

caf::result<void> node::leave(owner_id owner, const caf::actor& link) {
  const auto i = clients_.find(owner);
  if (i == clients_.end() || i->second.handle != link)
    return to_caf(error{errc::not_found, "no client with this owner id is attached by this link"});
  demonitor(link.address());
  client_gone(owner, "left");
  return caf::unit;
}

void node::end_fronts(const client& x) {
  for (const auto& shard : x.shards)
    send_exit(shard, caf::exit_reason::user_shutdown);
  for (const auto& worker : x.workers)
    send_exit(worker, caf::exit_reason::user_shutdown);
}

void node::client_gone(owner_id owner, const std::string& why) {
  log::get("node")->info("client '{}' ({:016x}) {}: its leases and reservations are released", clients_.at(owner).name,
                         owner, why);
  end_fronts(clients_.at(owner));
  clients_.erase(owner);
  for (const auto& x : children_.shards)
    request(x, caf::infinite, owner_died_atom_v, owner).then([] {}, [](const caf::error&) {});
  for (const auto& x : children_.ranks)
    request(x.worker, caf::infinite, owner_died_atom_v, owner).then([] {}, [](const caf::error&) {});
}

bool node::is_child(const caf::actor_addr& who) const {
  for (const auto& x : children_.shards)
    if (x.address() == who)
      return true;
  for (const auto& x : children_.ranks)
    if (x.worker.address() == who || x.allocator.address() == who)
      return true;
  return children_.metrics.address() == who || children_.namespaces.address() == who;
}

void node::on_down(const caf::down_msg& down) {
  std::vector<owner_id> gone;
  for (const auto& [owner, x] : clients_)
    if (x.handle.address() == down.source)
      gone.push_back(owner);
  for (const auto owner : gone)
    client_gone(owner, "is gone");
  if (!gone.empty())
    return;
  if (!is_child(down.source))
    return;
  log::get("node")->critical("an actor of this node has died ({}): stopping, since its state cannot be replaced",
                             system().render(down.reason));
  quit(caf::exit_reason::unhandled_exception);
}

caf::result<void> node::drain() {
  if (draining_ && draining_workers_ == 0)
    return caf::unit;
  auto promise = make_response_promise();
  drains_.push_back(promise);
  if (draining_)
    return promise;
  draining_ = true;
  log::get("node")->info("draining: {} clients attached", clients_.size());
  draining_workers_ = children_.ranks.size();
  const auto one_done = [this] {
    if (--draining_workers_ > 0)
      return;
    for (auto& x : std::exchange(drains_, {}))
      x.deliver(caf::unit);
  };
  for (const auto& x : children_.ranks)
    request(x.worker, options_->drain_timeout, drain_atom_v)
        .then(one_done, [one_done, rank = x.rank](const caf::error& e) {
          log::get("node")->warn("rank {} did not come to rest: {}", rank, to_string(from_caf(e)));
          one_done();
        });
  if (children_.ranks.empty())
    for (auto& x : std::exchange(drains_, {}))
      x.deliver(caf::unit);
  return promise;
}

void node::collect_stats(std::function<void(const result<node_stats>&)> on_done) {
  struct gathering {
    node_stats stats;
    /// Two answers per rank and one sum over the shards.
    std::size_t waiting = 1;
    bool failed = false;
    std::function<void(const result<node_stats>&)> on_done;
  };
  auto shared = std::make_shared<gathering>();
  shared->on_done = std::move(on_done);
  shared->waiting += 2 * children_.ranks.size();
  shared->stats.clients = clients_.size();
  for (std::size_t i = 0; i < children_.ranks.size(); ++i) {
    const auto& space = children_.spaces[children_.space_of_rank[i]];
    shared->stats.ranks.push_back({space.id(), space.name, children_.ranks[i].rank, {}, {}});
  }
  const auto arrived = [this, shared] {
    if (--shared->waiting > 0 || shared->failed)
      return;
    request(children_.metrics, stats_timeout, shared->stats).then([] {}, [](const caf::error&) {});
    shared->on_done(shared->stats);
  };
  const auto failed_once = [shared](const caf::error& e) {
    if (!std::exchange(shared->failed, true))
      shared->on_done(failed<node_stats>(e));
  };
  for (std::size_t i = 0; i < children_.ranks.size(); ++i) {
    request(children_.ranks[i].allocator, stats_timeout, stats_atom_v)
        .then(
            [shared, i, arrived](const allocator_stats& x) {
              shared->stats.ranks[i].slots = x;
              arrived();
            },
            failed_once);
    request(children_.ranks[i].worker, stats_timeout, stats_atom_v)
        .then(
            [shared, i, arrived](const io_stats& x) {
              shared->stats.ranks[i].io = x;
              arrived();
            },
            failed_once);
  }
  const auto summed = [shared, arrived](const result<registry_stats>& sum) {
    if (!sum) {
      if (!std::exchange(shared->failed, true))
        shared->on_done(tl::unexpected<error>(sum.error()));
      return;
    }
    shared->stats.registry = *sum;
    arrived();
  };
  sum_registry_stats(this, children_.shards, stats_timeout, summed);
}

caf::result<node_stats> node::collect() {
  auto promise = make_response_promise();
  const auto number = counting_.add(promise);
  collect_stats([this, number](const result<node_stats>& stats) {
    if (stats)
      counting_.deliver(number, *stats);
    else
      counting_.deliver(number, to_caf(stats.error()));
  });
  return promise;
}

void node::log_statistics(const node_stats& stats) const {
  const auto logger = log::get("node");
  logger->info("{} clients, {} keys ({} complete), {} leases, {} reservations, {} evicted", stats.clients,
               stats.registry.keys, stats.registry.complete_keys, stats.registry.leases, stats.registry.reservations,
               stats.registry.evicted_keys);
  for (const auto& x : stats.ranks)
    logger->info("namespace '{}' rank {}: {} slots free, {} reserved, {} live, {} quarantined; read {} and wrote {} "
                 "pages, {} failed",
                 x.space_name, x.rank, x.slots.free, x.slots.reserved, x.slots.live, x.slots.quarantined,
                 x.io.read_pages, x.io.written_pages, x.io.failed);
}

void node::on_exit() {
  const error ended{errc::shutting_down, "the node has ended"};
  for (auto& x : std::exchange(drains_, {}))
    x.deliver(to_caf(ended));
  counting_.fail_all(ended);
  const auto end = [this](const auto& child) {
    demonitor(child.address());
    send_exit(child, caf::exit_reason::user_shutdown);
  };
  for (const auto& x : children_.shards)
    end(x);
  for (const auto& x : children_.ranks) {
    end(x.allocator);
    end(x.worker);
  }
  end(children_.metrics);
  end(children_.namespaces);
  children_ = node_children{};
  for (const auto& [owner, x] : clients_)
    end_fronts(x);
  clients_.clear();
}

} // namespace troupe
