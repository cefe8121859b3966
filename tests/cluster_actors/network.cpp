#include "tests/cluster_actors/network.hpp"

#include "actors/cluster/pages/session_rules.hpp"
#include "actors/support/actor_support.hpp"

#include <caf/io/all.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace troupe::cluster_actors {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// The chance that a queue is full, or that a new thread cannot be started.
constexpr simulation::ppm refused = 10'000;

template <class T>
result<T> over() {
  return fail(errc::shutting_down, "the network is ending");
}

} // namespace

// -- one after the other ----------------------------------------------------------------------------------------------

void network::enqueue(std::function<void(std::function<void()>)> task) {
  tasks_.push_back(std::move(task));
  if (!std::exchange(at_work_, true))
    home_.later(microseconds(10), [this] { run_next(); });
}

void network::run_next() {
  if (tasks_.empty()) {
    at_work_ = false;
    return;
  }
  const auto task = std::move(tasks_.front());
  tasks_.pop_front();
  task([this] { home_.later(microseconds(10), [this] { run_next(); }); });
}

result<void> network::accept() {
  if (ended_)
    return over<void>();
  auto& world = home_.world();
  if (!world.env.winding_down && world.random.chance(refused)) {
    world.env.count("fault: the queue is full");
    return fail(errc::limit_exceeded, "the queue is full");
  }
  return {};
}

// -- connections ------------------------------------------------------------------------------------------------------

result<void> network::connect(cluster::line_order order, std::function<void(result<cluster::connected_peer>)> then) {
  if (auto accepted = accept(); !accepted)
    return accepted;
  enqueue([this, order = std::move(order), then = std::move(then)](const std::function<void()>& done) {
    auto dialer = order.spare;
    if (dialer) {
      home_.world().env.count("dialer used again");
    } else if (!home_.world().env.winding_down && home_.world().random.chance(refused)) {
      home_.world().env.count("fault: no dialer");
      then(fail(errc::io_error, "no more threads can be started"));
      return done();
    } else {
      const auto number = ++last_dialer_;
      dialer = stub_as<caf::io::middleman_actor>(system(), [this, number](const auto& x) { dial(number, x); });
      stubs_.push_back(caf::actor_cast<caf::strong_actor_ptr>(dialer));
      dialers_[number] = stubs_.back();
    }
    const auto actor = spawn_actor<cluster::peer_connection>(system(), order.where, dialer, order.limit, order.on_lost);
    home_.in()->keep(actor);
    then(cluster::connected_peer{actor, dialer});
    done();
  });
  return {};
}

void network::end_dialer(caf::io::middleman_actor which) {
  if (ended_)
    return;
  home_.world().env.count("dialer ended");
  std::erase_if(dialers_, [&](const auto& x) { return x.second == which; });
}

std::optional<std::size_t> network::host_at(const std::string& name) const {
  const auto& hosts = home_.world().hosts;
  const bool is_any = home_.world().p.by_name && name == "nodes.test";
  for (const auto& x : hosts)
    if (is_any ? x->runs() : x->ip() == name)
      return x->number();
  return std::nullopt;
}

void network::dial(std::uint64_t dialer, const simulation::passing& request) {
  if (!request.content.match_elements<caf::connect_atom, std::string, std::uint16_t>())
    return;
  auto& world = home_.world();
  world.env.judge("dialers", dialers_.contains(dialer) ? "" : "connects by a dialer that has ended");
  const auto to = host_at(request.content.get_as<std::string>(1));
  const auto refuse = [this, request] { answer(request, caf::make_error(caf::sec::cannot_connect_to_node)); };
  if (!to || (*to != home_.number() && !home_.is_reachable(*to))) {
    // A host that has lost its power does not refuse.
    if (world.random.one_in(2))
      home_.later(world.delay(), refuse);
    return;
  }
  home_.later(2 * world.delay(), [this, to = *to, request, refuse] {
    if (to != home_.number() && !home_.is_reachable(to))
      return refuse();
    auto found = reception_of(to, home_.world().connection(home_.number(), to));
    answer(request, home_.world().hosts[to]->in()->node(), std::move(found), system().message_types<reception_actor>());
  });
}

caf::strong_actor_ptr network::reception_of(std::size_t to, std::uint64_t connection) {
  const auto node = to == home_.number() ? system().node() : home_.world().hosts[to]->in()->node();
  auto out = make_stub(system(), node, [this, to, connection](const auto& x) { on_hello(to, connection, x); });
  receptions_[{to, connection}].push_back(out);
  return out;
}

void network::on_hello(std::size_t to, std::uint64_t connection, const simulation::passing& x) {
  if (!x.content.match_elements<cluster_hello>())
    return;
  auto& world = home_.world();
  const auto hello = x.content.get_as<cluster_hello>(0);
  if (to == home_.number())
    return home_.later(world.delay(), [this, x, hello] { answer(x, *home_.meet(hello)); });
  const bool is_there = world.hosts[to]->runs();
  if (!is_there && world.has(defect::answer_for_the_dead))
    return home_.later(world.delay(), [this, x, hello, to] {
      if (const auto forged = home_.world().hosts[to]->meet(hello))
        answer(x, *forged);
    });
  if (world.connection(home_.number(), to) != connection)
    return; // lost, which is not noticed yet
  home_.ask<cluster_welcome>(
      to, "hello", [hello](host& there) { return there.meet(hello); },
      [x](const result<cluster_welcome>& welcome) {
        if (welcome)
          answer(x, *welcome);
        else if (welcome.error().code != errc::unreachable)
          answer(x, to_caf(welcome.error()));
      });
}

void network::connection_lost(std::size_t to, std::uint64_t connection) {
  const auto lost = home_.world().has(defect::answer_for_the_dead) && !home_.world().hosts[to]->runs()
                        ? receptions_.end()
                        : receptions_.find({to, connection});
  if (lost != receptions_.end()) {
    for (const auto& x : std::exchange(lost->second, {}))
      static_cast<stub*>(x->get())->lose();
    receptions_.erase(lost);
  }
  for (const auto& x : sessions_)
    x->connection_lost(to, connection);
}

result<void> network::resolve(std::vector<config::cluster_seed> names,
                              std::function<void(cluster::seeds_resolved)> then) {
  if (ended_)
    return over<void>();
  auto& world = home_.world();
  home_.later(world.random.skewed_time(milliseconds(1), seconds(2)), [this, names = std::move(names), then] {
    cluster::seeds_resolved out;
    auto& in = home_.world();
    const bool fails = !in.env.winding_down && in.random.one_in(8);
    in.env.count(fails ? "fault: name not resolved" : "name resolved");
    for (const auto& x : names) {
      out.found.emplace_back(to_string(node_address{x.host, x.port}), std::vector<std::string>{});
      for (const auto& each : in.hosts)
        if (!fails && each->runs())
          out.found.back().second.push_back(each->address());
    }
    then(std::move(out));
  });
  return {};
}

// -- clients ----------------------------------------------------------------------------------------------------------

cluster::opened_client network::describe(const namespace_spec& ns, const std::string& node, owner_id owner) const {
  const auto& p = home_.world().p;
  cluster::opened_client out;
  out.node.owner = owner;
  out.node.node_name = node;
  out.node.ns_id = ns.id();
  out.node.ns = ns;
  out.node.limits = {.pinned_bytes = 1U << 20U,
                     .batch_keys = p.batch_keys,
                     .batch_pages = p.batch_keys,
                     .lease = std::chrono::minutes(10),
                     .reservation = std::chrono::minutes(10)};
  for (rank_number rank = 0; rank < p.ranks; ++rank)
    out.node.ranks.emplace_back().rank = rank;
  out.copies_at_once = 1 + home_.number() % 2;
  return out;
}

result<void> network::open(cluster::client_order order, opened then) {
  if (auto accepted = accept(); !accepted)
    return accepted;
  enqueue([this, order = std::move(order), then = std::move(then)](const std::function<void()>& done) {
    if (order.like)
      return open_session(order, then, done);
    home_.later(home_.world().delay(), [this, order, then, done] {
      open_own(order, then);
      done();
    });
  });
  return {};
}

void network::open_own(const cluster::client_order& order, const opened& then) {
  auto& world = home_.world();
  if (!home_.has(order.ns) || (!world.env.winding_down && world.random.one_in(20))) {
    world.env.count("namespace not opened");
    return then(fail(errc::not_found, "there is no such namespace"));
  }
  world.env.count("namespace opened");
  const auto& ns = home_.spec_of(order.ns);
  auto out = describe(ns, "here", 1);
  const auto blocks = cluster::staging_blocks(order.memory_bytes, ns.geometry.page_bytes());
  for (rank_number rank = 0; rank < world.p.ranks; ++rank) {
    out.memory.push_back(std::make_shared<cluster::staging_buffer>(ns.geometry, blocks));
    memory_.emplace_back(out.memory.back());
  }
  own_.push_back(std::make_shared<own_client>(home_, order.ns, out.memory));
  own_.back()->spawn();
  out.save = own_.back()->save();
  out.coming = own_.back()->coming();
  then(std::move(out));
}

void network::open_session(const cluster::client_order& order, const opened& then, const std::function<void()>& done) {
  auto& world = home_.world();
  auto ns = order.ns;
  if (world.has(defect::open_other_namespace))
    ns = world.p.namespaces.front().id();
  const auto to = host_at(order.where.where.host);
  if (!to || *to == home_.number()) {
    then(fail(errc::unreachable, "cannot connect"));
    return done();
  }
  if (!world.env.winding_down && world.random.one_in(20)) {
    world.env.count("fault: session refused");
    then(fail(errc::limit_exceeded, "the peer admits no more clients"));
    return done();
  }
  const auto connection = world.connection(home_.number(), *to);
  home_.ask<attached>(
      *to, "attach",
      [from = home_.number(), run = home_.run(), connection, ns, in = order.where.cluster](host& there) {
        return there.attach(from, run, connection, ns, in);
      },
      [this, to = *to, order, then, done, connection](const result<attached>& reply) {
        auto& in = home_.world();
        if (!reply) {
          in.env.count("session not opened");
          then(tl::unexpected<error>(reply.error()));
          return done();
        }
        in.env.count("session opened");
        auto out = describe(home_.spec_of(order.ns), reply->node, reply->owner);
        out.memory = order.like->memory;
        const auto made = std::make_shared<session_client>(home_, to, order.ns, out.memory);
        sessions_.push_back(made);
        made->spawn();
        made->attached_as(reply->owner, connection);
        out.lookup = made->lookup();
        out.load = made->load();
        out.node.shards = made->shards();
        if (!in.has(defect::lose_sessions) || in.random.one_in(2))
          then(std::move(out));
        done();
      });
  if (world.has(defect::open_twice) && !world.env.winding_down && world.random.one_in(4))
    enqueue([this, order, then](const std::function<void()>& next) { open_session(order, then, next); });
}

void network::close(cluster::opened_client client) {
  if (ended_ || home_.world().has(defect::keep_clients))
    return;
  // Nothing of it is accessed from here on but by its own actors.
  enqueue([this, client = std::move(client)](const std::function<void()>& done) {
    home_.later(home_.world().delay(), [this, client, done] {
      home_.world().env.count("client closed");
      for (auto i = sessions_.begin(); i != sessions_.end(); ++i)
        if (client.lookup && (*i)->lookup() == client.lookup) {
          (*i)->close();
          sessions_.erase(i);
          break;
        }
      for (auto i = own_.begin(); i != own_.end(); ++i)
        if (!client.save.empty() && (*i)->save() == client.save) {
          (*i)->close();
          own_.erase(i);
          break;
        }
      done();
    });
  });
}

// -- what the world says ----------------------------------------------------------------------------------------------

void network::end() {
  ended_ = true;
  for (const auto& x : sessions_)
    x->forget();
  for (const auto& x : own_)
    x->forget();
  for (const auto& x : std::exchange(stubs_, {}))
    static_cast<stub*>(x->get())->forget();
  for (const auto& [which, all] : std::exchange(receptions_, {}))
    for (const auto& x : all)
      static_cast<stub*>(x->get())->forget();
  sessions_.clear();
  own_.clear();
  tasks_.clear();
  dialers_.clear();
}

void network::namespace_removed(const namespace_id& ns) {
  for (const auto& x : own_)
    x->namespace_removed(ns);
}

void network::attachment_ended(owner_id owner) {
  for (const auto& x : sessions_)
    x->attachment_ended(owner);
}

std::string network::under_way() const {
  for (const auto& x : own_) {
    if (x->saves_under_way() > 0)
      return std::to_string(x->saves_under_way()) + " saves are not answered";
    for (const auto& coming : x->coming())
      if (coming->size() > 0)
        return std::to_string(coming->size()) + " transfers have not ended";
  }
  for (const auto& x : sessions_)
    if (x->loads_under_way() > 0)
      return std::to_string(x->loads_under_way()) + " loads are not answered";
  return {};
}

std::size_t network::staging_buffers() const {
  return static_cast<std::size_t>(std::ranges::count_if(memory_, [](const auto& x) { return !x.expired(); }));
}

} // namespace troupe::cluster_actors
