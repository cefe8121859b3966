#include "actors/node/supervisor/node.hpp"

#include "actors/node/namespaces/rank_parts.hpp"
#include "actors/node/remote/remote_worker.hpp"
#include "actors/node/supervisor/peer_terms.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// The interval of checks whether the process of a disconnected client has ended; until then its pinned memory is
/// unavailable.
constexpr auto look_interval = std::chrono::milliseconds(50);

/// The interval of the watch: as short as that of an io worker's check of its slab, so that /ready reports problems
/// within a second. Shorter only where statistics are logged more often.
duration statistics_tick(duration statistics_interval) {
  constexpr duration longest = std::chrono::seconds(1);
  return statistics_interval > duration::zero() ? std::min(statistics_interval, longest) : longest;
}

} // namespace

node::node(caf::actor_config& config, std::shared_ptr<const config::node_config> options, node_children children,
           process_watcher processes, std::optional<node_watch> watch, std::shared_ptr<const connected_peers> peers)
    : node_actor::base(config), options_(std::move(options)), children_(std::move(children)), state_(state_options()),
      processes_(std::move(processes)), local_peers_(std::move(peers)), watch_(std::move(watch)) {
  for (auto i = options_->namespaces.size(); i < children_.served.size(); ++i)
    state_.add_namespace(children_.served[i]);
  set_down_handler([this](caf::down_msg& down) { on_down(down); });
}

node_state::options node::state_options() {
  node_state::options out;
  out.namespaces = options_->namespaces;
  out.protocol = protocol_version;
  out.max_clients = options_->io.max_clients;
  out.draw = [this] { return std::uint64_t{entropy_()} << 32U | entropy_(); };
  out.end_asking = [this](owner_id owner) { return clients_.at(owner).proxies.rights->end(); };
  return out;
}

node::behavior_type node::make_behavior() {
  for (const auto& x : children_.all())
    monitor(x.handle);
  if (children_.namespaces)
    request(children_.namespaces, caf::infinite, bind_atom_v, node_actor(this)).then([] {}, [](const caf::error&) {});
  const auto now = clock().now();
  next_statistics_ = now + options_->statistics_interval;
  next_turn_ = timestamp::max();
  if (watch_ || options_->statistics_interval > duration::zero()) {
    next_turn_ = now + statistics_tick(options_->statistics_interval);
    delayed_send(this, statistics_tick(options_->statistics_interval), caf::tick_atom_v);
  }
  return {
      [this](const attach_request& wanted, const caf::actor& link) { return attach(wanted, link); },
      [this](caf::leave_atom, owner_id owner, const caf::actor& link) { return leave(owner, link); },
      [this](owner_quiesced_atom, owner_id owner) { return owner_quiesced(owner); },
      [this](const leave_namespace_request& x) { return leave_namespace(x); },
      [this](unbind_atom, const namespace_id& ns) { return unbind_namespace(ns); },
      [this](unbind_atom, owner_id owner) -> caf::result<void> {
        lose(owner);
        return caf::unit;
      },
      [this](bind_atom, const namespace_id& ns) -> caf::result<void> {
        state_.reopen_namespace(ns);
        return caf::unit;
      },
      [this](const cluster_hello& other) { return meet(other); },
      [this](bind_atom, const cluster_card& self, const cluster_actor& peers) -> caf::result<void> {
        card_ = self;
        peers_ = peers;
        return caf::unit;
      },
      [this](stats_atom) { return collect(); },
      [this](drain_atom) { return drain(); },
      [this](caf::tick_atom) { tick(); },
  };
}

// Two schedules use ticks, each with ticks of its own. Any tick does whatever is due and schedules the next one of that
// kind; the tick that then comes too late does nothing, so there are never more than two.
void node::tick() {
  const auto now = clock().now();
  if (next_look_ && now >= *next_look_) {
    next_look_.reset();
    look_at_disconnected(now);
  }
  if (now < next_turn_)
    return;
  next_turn_ = now + statistics_tick(options_->statistics_interval);
  delayed_send(this, statistics_tick(options_->statistics_interval), caf::tick_atom_v);
  look_at_attached(now);
  if (watch_) {
    for (const auto& change : watch_->look(log::dropped_lines(), now))
      log::get("node")->warn("{}", change);
    for (const auto& change : watch_->look(places_of_clients()))
      log::get("node")->warn("{}", change);
  }
  if (options_->statistics_interval == duration::zero() || now < next_statistics_)
    return;
  // The interval counts from when the last statistics were due: ticks are a little late, and one that came slightly too
  // early for the next statistics would delay them by a whole tick.
  next_statistics_ = std::max(next_statistics_ + options_->statistics_interval, now);
  collect_stats([this](const result<node_stats>& stats) {
    if (stats)
      log_statistics(*stats);
  });
}

void node::look_at_attached(timestamp now) {
  bool any = false;
  for (const auto& [owner, x] : clients_)
    // Lanes of this process may be using the frames of a client that ends itself.
    if (!x.elsewhere && !x.ends_itself && x.process && x.process->gone()) {
      state_.link_disconnected(x.number, now);
      any = true;
    }
  if (any)
    release_disconnected();
}

void node::plan_look_at_disconnected(timestamp now) {
  if (next_look_ || disconnected_.empty())
    return;
  next_look_ = now + look_interval;
  delayed_send(this, look_interval, caf::tick_atom_v);
}

void node::look_at_disconnected(timestamp now) {
  for (const auto& [owner, x] : disconnected_)
    if (x.process && x.process->gone())
      static_cast<void>(state_.owner_quiesced(owner)); // cannot fail: it is not attached
  for (const auto& x : state_.take_overdue(now)) {
    std::int32_t process = 0;
    if (const auto found = disconnected_.find(x.owner); found != disconnected_.end()) {
      found->second.overdue = true;
      process = found->second.process_id;
    }
    log::get("node")->warn(
        "client disconnected but may still write to node memory: '{}' ({:016x}, process {}); its memory stays set "
        "aside until its process ends or reports the end of its transfers",
        x.name, x.owner, process);
  }
  release_disconnected();
}

node::link_number node::number_of(const caf::actor_addr& link) {
  for (const auto& [owner, x] : clients_)
    if (x.handle.address() == link)
      return x.number;
  return ++last_link_;
}

namespace {

node_state::caller caller_of(const attach_request& wanted) {
  node_state::caller out{
      wanted.protocol, wanted.client_name, wanted.namespace_name, {}, wanted.wish == namespace_wish::made};
  if (wanted.wish != namespace_wish::named)
    out.ns = wanted.ns;
  return out;
}

} // namespace

caf::result<attach_reply> node::attach(const attach_request& wanted, const caf::actor& link) {
  if (!link)
    return to_caf(error{errc::invalid_argument, "the attach request has no handle to monitor"});
  // The end of such a handle would count as that of a client, and its detaching would end the supervisor's own monitor.
  if (children_.find(link.address()) != nullptr)
    return to_caf(error{errc::invalid_argument,
                        "the handle in the attach request belongs to the node; use one of the client's own"});
  if (!wanted.cluster.empty())
    if (auto taken = judge_peer(card_, wanted.cluster); !taken)
      return to_caf(taken.error());
  auto from = origin_of(wanted, link);
  if (!from) {
    note_failed(wanted, from.error());
    return to_caf(from.error());
  }
  if (children_.namespaces && state_.is_to_make(caller_of(wanted)))
    return make_and_admit(wanted, link, std::move(*from));
  return to_caf(admit(wanted, link, std::move(*from)));
}

caf::result<attach_reply> node::make_and_admit(const attach_request& wanted, const caf::actor& link, origin from) {
  auto promise = make_response_promise();
  const auto number = making_.add(promise);
  const auto kept = std::make_shared<origin>(std::move(from));
  request(children_.namespaces, caf::infinite, make_namespace_request{wanted.ns})
      .then(
          [this, number, wanted, link, kept](const served_namespace& made) {
            adopt(made);
            if (auto reply = admit(wanted, link, std::move(*kept)))
              making_.deliver(number, std::move(*reply));
            else
              making_.deliver(number, to_caf(reply.error()));
          },
          [this, number, wanted](const caf::error& e) {
            note_failed(wanted, from_caf(e));
            making_.deliver(number, e);
          });
  return promise;
}

void node::adopt(const served_namespace& made) {
  if (state_.index_of(made.spec.id()))
    return; // two clients requested it
  children_.add_made(made, state_.add_namespace(made.spec));
  for (const auto& x : made.ranks) {
    monitor(x.worker);
    monitor(x.allocator);
  }
}

caf::result<void> node::leave_namespace(const leave_namespace_request& x) {
  const auto closed = state_.close_namespace(x.ns, x.force, clock().now());
  release_disconnected();
  return to_caf(closed);
}

caf::result<void> node::unbind_namespace(const namespace_id& ns) {
  const auto index = state_.index_of(ns);
  if (!index)
    return to_caf(error{errc::unknown_namespace, "no such namespace"});
  auto promise = make_response_promise();
  closing_namespaces_.push_back({*index, ns, promise});
  let_go();
  return promise;
}

void node::let_go() {
  std::erase_if(closing_namespaces_, [this](closing_namespace& x) {
    if (std::ranges::any_of(disconnected_,
                            [&](const auto& gone) { return gone.second.ns == x.ns && !gone.second.overdue; }))
      return false;
    for (const auto& rank : children_.ranks())
      if (rank.ns == x.ns) {
        demonitor(rank.worker.address());
        demonitor(rank.allocator.address());
      }
    children_.remove_ranks(x.ns);
    state_.remove_namespace(x.id);
    x.promise.deliver(caf::unit);
    return true;
  });
}

result<attach_reply> node::admit(const attach_request& wanted, const caf::actor& link, origin from) {
  const auto number = number_of(link.address());
  const auto arrived = state_.attach(caller_of(wanted), number, clock().now());
  // Needed also when the client is rejected; and before the link is monitored, because this ends the monitor of the
  // link's previous client.
  release_disconnected();
  if (!arrived)
    return tl::unexpected<error>(arrived.error());
  monitor(link);
  auto& attached = clients_[arrived->owner];
  attached = {.handle = link,
              .number = number,
              .process = std::move(from.process),
              .ns = arrived->ns,
              .elsewhere = from.elsewhere,
              .ends_itself = from.ends_itself,
              .is_node = !wanted.cluster.empty(),
              .name = wanted.client_name,
              .process_id = from.number,
              .since = clock().now()};
  children_.clients->attached(arrived->owner, wanted.client_name);
  const auto& ns = children_.served[arrived->ns];
  attach_reply reply{.owner = arrived->owner, .node_name = options_->node_name};
  reply.wants_descriptions = options_->events.publishes();
  reply.ns_id = ns.id();
  reply.ns = ns;
  reply.ns.salt.clear();
  reply.limits = {options_->memory.client_bytes, options_->registry.max_batch_keys, options_->io.max_batch_pages,
                  options_->registry.lease_max, options_->registry.reservation_deadline};
  if (children_.extents) {
    const auto& facts = children_.extents->info();
    reply.arena = {facts.bytes, facts.extent_bytes, facts.name};
    reply.limits.pinned_bytes = pinned_bytes_max(*options_, facts, ns.geometry.page_bytes());
  }
  attached.proxies = client_proxies::spawn(system(), {node_actor(this), *options_, children_, peers_, remote_totals_},
                                           {link.node(), arrived->ns, attached.elsewhere, attached.is_node}, reply);
  if (attached.elsewhere)
    attached.process = std::make_unique<remote_watch>(attached.proxies.presence);
  // The descriptors are stored before the reply is sent, so they arrive with it, or before.
  if (from.handover)
    from.handover->put(std::move(from.arena));
  log::get("node")->info("client attached: '{}' (process {}{}) as {:016x} to namespace '{}'", wanted.client_name,
                         from.number, from.elsewhere ? ", without shared memory" : "", reply.owner, reply.ns.name);
  return reply;
}

caf::result<cluster_welcome> node::meet(const cluster_hello& other) {
  if (!peers_ && !options_->cluster.name.empty())
    return to_caf(error{errc::busy, "node '" + options_->node_name + "' is starting"});
  auto self = card_;
  self.node = options_->node_name;
  if (auto taken = judge_peer(self, protocol_version, other); !taken) {
    constexpr std::size_t notified_max = 64;
    if (strange_clusters_.size() < notified_max && strange_clusters_.insert(other.from.cluster).second)
      log::get("cluster")->warn("peer rejected: '{}' ({})", other.from.node, taken.error().text);
    return to_caf(taken.error());
  }
  cluster_welcome out{self, {}};
  for (const auto& ns : state_.open_namespaces())
    out.namespaces.push_back({ns.id(), ns.name});
  return out;
}

void node::lose(owner_id owner) {
  if (const auto found = clients_.find(owner); found != clients_.end())
    state_.link_disconnected(found->second.number, clock().now());
  release_disconnected();
}

caf::result<void> node::leave(owner_id owner, const caf::actor& link) {
  const auto left = state_.leave(owner, number_of(caf::actor_cast<caf::actor_addr>(link)), clock().now());
  release_disconnected();
  return to_caf(left);
}

caf::result<void> node::owner_quiesced(owner_id owner) {
  if (const auto found = disconnected_.find(owner); found != disconnected_.end() && found->second.elsewhere)
    return caf::unit;
  const auto said = state_.owner_quiesced(owner);
  release_disconnected();
  return to_caf(said);
}

void node::release_disconnected() {
  for (const auto& gone : state_.take_disconnected()) {
    log::get("node")->info("client disconnected: '{}' ({:016x}, {}); its leases and reservations are released",
                           gone.name, gone.owner, gone.why);
    children_.clients->disconnected(gone.owner);
    // The proxies end first, so that later messages of the client are not delivered. A message that a proxy has already
    // forwarded may still arrive after the notice of disconnection: an io worker remembers disconnected clients, and at
    // a shard such a hold expires.
    const auto left = clients_.extract(gone.owner);
    auto& was = left.mapped();
    demonitor(was.handle.address());
    was.proxies.end(*this);
    auto& disconnected = disconnected_[gone.owner];
    disconnected = {.process = std::move(was.process),
                    .ns = was.ns,
                    .elsewhere = was.elsewhere,
                    .remotes = std::move(was.proxies.remotes),
                    .name = std::move(was.name),
                    .process_id = was.process_id};
    for (const auto& remote : disconnected.remotes)
      send(remote, unbind_atom_v, gone.owner);
    for (const auto& x : children_.all())
      if (x.serves_clients)
        // No timeout is needed: a child that never answers has died, which ends the node.
        request(x.handle, caf::infinite, owner_died_atom_v, gone.owner).then([] {}, [](const caf::error&) {});
  }
  // Sent after the notice of disconnection; messages between two actors are delivered in order.
  for (const auto owner : state_.take_quiesced()) {
    disconnected_.erase(owner);
    for (const auto& x : children_.ranks())
      request(x.worker, caf::infinite, owner_quiesced_atom_v, owner).then([] {}, [](const caf::error&) {});
  }
  let_go();
  plan_look_at_disconnected(clock().now());
}

void node::on_down(const caf::down_msg& down) {
  if (const auto* child = children_.find(down.source)) {
    log::get("node")->critical("{} has died ({}): {}; the node ends", child->name, system().render(down.reason),
                               child->loss);
    return quit(caf::exit_reason::unhandled_exception);
  }
  for (const auto& [owner, x] : clients_)
    if (tells_of(down, x.handle)) {
      state_.link_disconnected(x.number, clock().now());
      break;
    }
  release_disconnected();
}

caf::result<void> node::drain() {
  auto promise = make_response_promise();
  drains_.push_back(promise);
  std::vector<node_child> all;
  for (const auto& x : children_.all())
    if (x.drains)
      all.push_back(x);
  if (state_.drain(all.size())) {
    log::get("node")->info("draining: {} clients attached", state_.clients());
    for (const auto& x : all)
      request(x.handle, options_->drain_timeout, drain_atom_v)
          .then([this] { part_quiesced(); },
                [this, name = x.name](const caf::error& e) {
                  log::get("node")->warn("not drained: {} ({})", name, to_string(from_caf(e)));
                  part_quiesced();
                });
  }
  answer_drains();
  return promise;
}

void node::part_quiesced() {
  state_.part_quiesced();
  answer_drains();
}

void node::answer_drains() {
  if (!state_.quiesced())
    return;
  for (auto& x : std::exchange(drains_, {}))
    x.deliver(caf::unit);
}

void node::log_statistics(const node_stats& stats) const {
  const auto logger = log::get("node");
  logger->info("statistics: {} clients, {} keys ({} complete), {} leases, {} reservations, {} evicted", stats.clients,
               stats.registry.keys, stats.registry.complete_keys, stats.registry.leases, stats.registry.reservations,
               stats.registry.evicted_keys);
  for (const auto& x : stats.ranks)
    logger->info(
        "statistics: namespace '{}' rank {}, {} slots free, {} reserved, {} live, {} quarantined, of {}; read {} and "
        "wrote {} pages, {} failed",
        x.namespace_name, x.rank, x.slots.free, x.slots.reserved, x.slots.live, x.slots.quarantined, x.slots.total,
        x.io.read_pages, x.io.written_pages, x.io.failed);
}

void node::on_exit() {
  const error ended{errc::shutting_down, "the node has ended"};
  for (auto& x : std::exchange(drains_, {}))
    x.deliver(to_caf(ended));
  counting_.fail_all(ended);
  making_.fail_all(ended);
  for (auto& x : std::exchange(closing_namespaces_, {}))
    x.promise.deliver(to_caf(ended));
  for (const auto& x : children_.all()) {
    demonitor(x.handle.address());
    send_exit(x.handle, caf::exit_reason::user_shutdown);
  }
  children_ = node_children{};
  peers_ = nullptr;
  for (const auto& [owner, x] : clients_) {
    x.proxies.end(*this);
    for (const auto& remote : x.proxies.remotes)
      send_exit(remote, caf::exit_reason::user_shutdown);
  }
  for (const auto& [owner, x] : disconnected_)
    for (const auto& remote : x.remotes)
      send_exit(remote, caf::exit_reason::user_shutdown);
  clients_.clear();
  disconnected_.clear();
}

} // namespace troupe
