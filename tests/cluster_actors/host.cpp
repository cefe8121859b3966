#include "tests/cluster_actors/host.hpp"

#include "actors/support/actor_support.hpp"
#include "tests/cluster_actors/network.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::cluster_actors {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr std::uint16_t port = 7000;
/// The name that stands for all nodes.
constexpr const char* common_name = "nodes.test";

error no_longer_attached() {
  return {errc::unreachable, "the attachment has ended"};
}

} // namespace

host::host(fabric& in, std::size_t number, std::string name, std::string of_cluster)
    : world_(in), number_(number), name_(std::move(name)), of_cluster_(std::move(of_cluster)), pages_(in.p.ranks) {
  for (const auto& ns : in.p.namespaces)
    open_.insert(ns.id());
}

host::~host() {
  kill();
}

std::string host::ip() const {
  return "10.0.0." + std::to_string(number_ + 1);
}

std::string host::address() const {
  return ip() + ":" + std::to_string(port);
}

// -- life -------------------------------------------------------------------------------------------------------------

config::node_config host::options() const {
  const auto& p = world_.p;
  config::node_config out;
  out.node_name = name_;
  out.cluster.name = of_cluster_;
  if (p.by_name) {
    out.cluster.seeds.push_back({common_name, port});
  } else {
    for (const auto& x : world_.hosts)
      out.cluster.seeds.push_back({x->ip(), port});
    // Nothing was ever there.
    if (number_ % 2 == 0)
      out.cluster.seeds.push_back({"10.0.1.1", port});
  }
  out.cluster.ask_time = p.ask_time;
  out.cluster.fetch_time = p.fetch_time;
  out.cluster.hello_interval = p.hello_interval;
  out.cluster.keep_copies = p.keep_copies;
  out.cluster.memory_bytes = p.blocks * p.page_bytes();
  out.transfer.task_deadline = p.task_deadline;
  out.attach.reconnect_backoff_min = milliseconds(10);
  out.attach.reconnect_backoff_max = p.backoff_max;
  out.registry.max_batch_keys = p.chunk_keys;
  return out;
}

void host::start() {
  ++run_;
  incarnation_ = world_.random.next() | 1U;
  begun_ = world_.now();
  leaving_ = false;
  world_.env.trace("starts", {number_, run_});
  world_.env.count("node started");
  in_ = std::make_unique<simulation::process>(world_.env, "node " + std::to_string(number_));
  condition_ = std::make_shared<node_condition>();
  network_ = std::make_shared<network>(*this);
  spawn_cluster();
}

void host::spawn_cluster() {
  auto& system = in_->system();
  cluster::cluster_parts parts;
  parts.options = std::make_shared<const config::node_config>(options());
  parts.self = {of_cluster_, name_, incarnation_};
  parts.reception = stub_as<reception_actor>(system, [this](const simulation::passing& x) {
    later(world_.delay() / 4, [this, x] {
      if (x.content.match_elements<cluster_hello>())
        answer(x, *meet(x.content.get_as<cluster_hello>(0)));
    });
  });
  stubs_.push_back(caf::actor_cast<caf::strong_actor_ptr>(parts.reception));
  parts.shards = spawn_shards();
  parts.network = network_;
  parts.condition = condition_;
  actor_ = in_->keep(cluster_actor(spawn_actor<cluster::cluster>(system, std::move(parts))));
}

std::vector<registry_actor> host::spawn_shards() {
  std::vector<registry_actor> out;
  for (std::uint32_t i = 0; i < world_.p.shards; ++i) {
    out.push_back(stub_as<registry_actor>(in_->system(), [this](const simulation::passing& x) {
      later(world_.delay() / 4, [this, x] {
        if (x.content.match_elements<learn_request>()) {
          const auto& numbers = x.content.get_as<learn_request>(0).counts;
          const auto counts = reuse_counts::of_numbers(numbers.items);
          world_.env.judge("learned", counts ? "" : "a shard gets counts that are none");
          world_.env.count(counts && counts->seen() > 0 ? "learned from peers" : "learned that there is nothing");
          answer(x);
        } else if (x.content.match_elements<reuse_request>()) {
          answer(x, *learned(0));
        }
      });
    }));
    stubs_.push_back(caf::actor_cast<caf::strong_actor_ptr>(out.back()));
  }
  return out;
}

void host::kill() {
  if (!in_)
    return;
  world_.env.trace("ends", {number_, run_});
  ended_ = world_.now();
  // Nothing of this world refers to actors of the process any more when it ends.
  network_->end();
  for (auto& x : stubs_)
    static_cast<stub*>(x->get())->forget();
  stubs_.clear();
  planned_.clear();
  calls_.clear();
  world_.requests.abandon_if([this](const auto& x) { return x.first == number_; });
  actor_ = nullptr;
  in_.reset();
  network_.reset();
  leaving_ = false;
  attachments_.clear();
  pages_.forget_leases();
  if (!world_.hosts.empty())
    world_.cut_all(number_);
}

void host::leave() {
  if (!in_ || leaving_)
    return;
  world_.env.trace("leaves", {number_, run_});
  world_.env.count("node left");
  leaving_ = true;
  caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
}

std::string host::left_behind() const {
  if (!network_)
    return {};
  if (const auto clients = network_->clients(); clients > 0)
    return std::to_string(clients) + " clients are not closed";
  return in_->over() ? "" : "actors have not ended";
}

timestamp host::undisturbed_since() const {
  return std::max(begun_, in_ ? in_->goes_on() : begun_);
}

// -- namespaces -------------------------------------------------------------------------------------------------------

const namespace_spec& host::spec_of(const namespace_id& ns) const {
  return *std::ranges::find_if(world_.p.namespaces, [&](const auto& x) { return x.id() == ns; });
}

void host::remove_namespace(const namespace_id& ns) {
  if (open_.erase(ns) == 0)
    return;
  world_.env.trace("namespace removed", {number_});
  pages_.remove(ns, world_.now());
  if (network_)
    network_->namespace_removed(ns);
  std::vector<owner_id> ended;
  for (const auto& [owner, x] : attachments_)
    if (x.ns == ns)
      ended.push_back(owner);
  for (const auto owner : ended) {
    const auto x = attachments_.at(owner);
    attachments_.erase(owner);
    if (runs() && is_reachable(x.from))
      tell(x.from, [owner](host& client) { client.reach().attachment_ended(owner); });
  }
}

// -- what others ask of it --------------------------------------------------------------------------------------------

result<cluster_welcome> host::meet(const cluster_hello& other) const {
  if (other.from.cluster != of_cluster_ && !world_.has(defect::ignore_cluster_names))
    return fail(errc::identity_mismatch, "node '" + name_ + "' is part of cluster '" + of_cluster_ + "'");
  cluster_welcome out{{other.from.cluster, name_, incarnation_}, {}};
  for (const auto& ns : world_.p.namespaces)
    if (has(ns.id()))
      out.namespaces.push_back({ns.id(), ns.name});
  return out;
}

result<attached> host::attach(std::size_t from, std::uint64_t run, std::uint64_t connection, const namespace_id& ns,
                              const std::string& cluster) {
  if (leaving_)
    return fail(errc::shutting_down, "node '" + name_ + "' is shutting down");
  if (cluster != of_cluster_ && !world_.has(defect::ignore_cluster_names))
    return fail(errc::identity_mismatch, "node '" + name_ + "' is part of cluster '" + of_cluster_ + "'");
  if (!has(ns))
    return fail(errc::not_found, "node '" + name_ + "' has no such namespace");
  const auto owner = world_.random.next() | 1U;
  attachments_[owner] = {from, run, connection, ns};
  world_.env.count("attached");
  return attached{owner, name_};
}

void host::detach(owner_id owner) {
  attachments_.erase(owner);
  pages_.release_all_of(owner);
}

std::size_t host::attachments(std::size_t from, const namespace_id& ns) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(attachments_, [&](const auto& x) { return x.second.from == from && x.second.ns == ns; }));
}

result<lookup_result> host::look_up(owner_id owner, const lookup_task& wanted) {
  const auto found = attachments_.find(owner);
  if (found == attachments_.end())
    return tl::unexpected<error>(no_longer_attached());
  const auto& ns = found->second.ns;
  if (wanted.keys.size() > world_.p.batch_keys)
    world_.env.fail("limits", "a peer is asked for more keys than it takes at once");
  lookup_result out;
  known_lease lease{owner, ns, {}, world_.now(), world_.now() + wanted.lease_for};
  bool ended = false;
  for (const auto& key : wanted.keys) {
    const bool has_it = !ended && pages_.is_complete(ns, key);
    ended |= !has_it && !wanted.each;
    if (wanted.each)
      out.found.items.push_back(has_it ? 1 : 0);
    if (!has_it)
      continue;
    ++out.matched;
    lease.keys.insert(key);
  }
  if (out.matched > 0) {
    out.lease = {owner, ++last_number_};
    pages_.grant(out.lease, std::move(lease));
    world_.env.count("found at a peer");
  }
  return out;
}

result<std::vector<page_bytes>> host::read(owner_id owner, rank_number rank,
                                           const std::vector<key_digest>& keys) const {
  const auto found = attachments_.find(owner);
  if (found == attachments_.end())
    return tl::unexpected<error>(no_longer_attached());
  std::vector<page_bytes> out;
  for (const auto& key : keys) {
    const auto* const page = pages_.find(found->second.ns, rank, key);
    out.push_back(page == nullptr ? page_bytes{} : *page);
  }
  return out;
}

result<reuse_reply> host::learned(owner_id owner) const {
  if (owner != 0 && !attachments_.contains(owner))
    return tl::unexpected<error>(no_longer_attached());
  reuse_counts counts;
  counts.ended[0][number_] = 3;
  counts.used[0][number_] = 2;
  return reuse_reply{1000 + static_cast<std::uint64_t>((world_.now() - timestamp{}) / milliseconds(10)),
                     {counts.numbers()}};
}

// -- time and messages ------------------------------------------------------------------------------------------------

void host::later(duration time, std::function<void()> what) {
  if (!in_)
    return;
  const auto number = ++last_number_;
  planned_.emplace(number, std::move(what));
  world_.env.schedule.after(time, [this, number, of = run_] {
    if (run_ != of || !planned_.contains(number))
      return world_.env.schedule.idle();
    if (in_->paused())
      return world_.env.schedule.postpone(in_->goes_on());
    const auto planned = planned_.extract(number);
    planned.mapped()();
  });
}

bool host::is_reachable(std::size_t to) const {
  return world_.hosts[to]->runs() && !world_.is_blocked(number_, to);
}

std::optional<std::pair<std::uint64_t, std::uint64_t>>
host::open_call(std::size_t to, std::function<void(const void*)> answered, std::function<void(const error&)> failed) {
  if (!is_reachable(to)) {
    // Refused at once, or not answered at all.
    later(world_.random.skewed_time(microseconds(100), seconds(1)), [failed = std::move(failed)] {
      failed({errc::unreachable, "cannot connect"});
    });
    return std::nullopt;
  }
  const auto connection = world_.connection(number_, to);
  calls_[++last_number_] = {to, connection, std::move(answered), std::move(failed)};
  return std::pair(last_number_, connection);
}

void host::end_call(std::uint64_t number, const void* answer) {
  world_.requests.answered({number_, number});
  if (const auto call = calls_.extract(number); !call.empty())
    call.mapped().answered(answer);
}

void host::tell(std::size_t to, std::function<void(host&)> what) {
  if (is_reachable(to))
    world_.send(number_, to, world_.connection(number_, to), std::move(what));
}

void host::notice_loss(std::size_t of, std::uint64_t connection) {
  world_.env.count("loss noticed");
  for (auto i = attachments_.begin(); i != attachments_.end();) {
    if (i->second.from != of || i->second.connection > connection) {
      ++i;
      continue;
    }
    pages_.release_all_of(i->first);
    i = attachments_.erase(i);
  }
  std::vector<std::uint64_t> lost;
  for (const auto& [number, x] : calls_)
    if (x.to == of && x.connection <= connection)
      lost.push_back(number);
  for (const auto number : lost) {
    world_.requests.abandoned({number_, number});
    if (const auto call = calls_.extract(number); !call.empty())
      call.mapped().failed({errc::unreachable, "the connection has ended"});
  }
  network_->connection_lost(of, connection);
}

} // namespace troupe::cluster_actors
