#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

namespace troupe::cluster_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto hello_interval = milliseconds(300);
/// After which a connection that is silent counts as lost.
constexpr auto silence = milliseconds(1500);
constexpr auto session_pause = seconds(3);

const cluster::fetching_options fetching_limits{milliseconds(500), seconds(2), seconds(6), 4, 16, 24, {}};

} // namespace

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), steps_(steps), defect_(built_in) {
  ranks_ = random_.number(1, 3);
  blocks_ = random_.number(1, 10);
  const auto ours = random_.between(2, 4);
  const auto others = random_.below(2);
  const auto namespaces = random_.between(1, 2);
  // All nodes keep what they fetch, or none does, or each does what its config says.
  const auto copies = random_.below(4);
  shares_disk_ = random_.one_in(2);
  streams_ = random_.number(1, 4);
  for (number i = 0; i < namespaces; ++i)
    namespaces_.push_back({7, i + 1});
  for (number i = 0; i < ours + others; ++i) {
    node x;
    x.name = "node-" + std::to_string(i);
    x.called = x.name;
    x.says = i;
    x.of_cluster = i < ours ? "ours" : "others";
    x.has = stored_pages(random_.between(12, 80), ranks_);
    x.keeps_copies = copies < 2 || (copies == 3 && random_.one_in(2));
    x.rate = 0.95 + 0.1 * static_cast<double>(random_.below(1000)) / 1000;
    x.ahead = random_.time(seconds(0), std::chrono::hours(400));
    nodes_.push_back(std::move(x));
  }
  for (auto& x : nodes_)
    for (std::size_t other = 0; other < nodes_.size(); ++other)
      x.seeds.push_back(other);
  if (random_.one_in(3))
    make_catalogue();
}

void world::broken(std::string_view property, std::string what) {
  if (!out_.property.empty())
    return;
  out_.property = property;
  out_.failure = std::move(what);
}

// -- time -------------------------------------------------------------------------------------------------------------

timestamp world::local(std::size_t i) const {
  const auto& n = nodes_[i];
  const auto passed = static_cast<double>((now_ - begin_).count()) * n.rate;
  return timestamp(std::chrono::hours(1)) + n.ahead + duration(static_cast<duration::rep>(passed));
}

duration world::by_world(std::size_t i, duration x) const {
  return duration(static_cast<duration::rep>(static_cast<double>(x.count()) / nodes_[i].rate) + 1);
}

void world::run_on(std::size_t i, number life, const action& what) {
  auto& n = nodes_[i];
  if (!n.lives || n.life != life)
    return;
  if (n.paused_until > now_)
    return at(n.paused_until, [this, i, life, what] { run_on(i, life, what); });
  what();
  settle(i);
}

void world::later_on(std::size_t i, duration time, action what) {
  after(time, [this, i, life = nodes_[i].life, what = std::move(what)] { run_on(i, life, what); });
}

// -- the network ------------------------------------------------------------------------------------------------------

void world::carry(std::size_t from, std::size_t to, number life, action deliver) {
  if (from != to && (is_cut(from, to) || (!is_calm_ && random_.chance(20'000)))) {
    count("lost");
    return;
  }
  auto time = random_.skewed_time(std::chrono::microseconds(200), is_calm_ ? milliseconds(5) : milliseconds(300));
  if (nodes_[from].slow || nodes_[to].slow)
    time *= 8;
  after(time, [this, from, to, life, deliver = std::move(deliver)] {
    if (from != to && is_cut(from, to))
      return count("lost");
    run_on(to, life == 0 ? nodes_[to].life : life, deliver);
  });
}

void world::cut(std::size_t a, std::size_t b) {
  if (a == b || !cuts_.insert(std::minmax(a, b)).second)
    return;
  count("cut");
  after(random_.time(silence, 2 * silence), [this, a, b] {
    if (is_cut(a, b))
      break_connection(a, b);
  });
}

void world::break_connection(std::size_t a, std::size_t b) {
  // A later attachment uses another connection.
  const auto up_to = last_attachment_;
  for (const auto& [at, of] : {std::pair(a, b), std::pair(b, a)})
    for (const auto& [owner, who] : nodes_[at].clients)
      if (who == of)
        ended_.insert(owner);
  for (const auto& [who, whom] : {std::pair(a, b), std::pair(b, a)})
    if (nodes_[who].lives)
      later_on(who, random_.time(milliseconds(0), silence),
               [this, who = who, whom = whom, up_to] { on_connection_lost(who, whom, up_to); });
}

void world::on_connection_lost(std::size_t who, std::size_t whom, number up_to) {
  auto& n = nodes_[who];
  for (const auto& [peer, at] : n.lines)
    if (at == whom)
      n.members->on_lost(peer, local(who));
  if (!has(defect::keep_leases_of_the_dead))
    for (auto i = n.clients.begin(); i != n.clients.end();) {
      if (i->second != whom || i->first > up_to) {
        ++i;
        continue;
      }
      n.has.owner_is_gone(i->first);
      i = n.clients.erase(i);
    }
  std::vector<session_name> lost;
  for (const auto& [name, x] : n.sessions)
    if (n.lines.at(name.first) == whom && x.attachment != 0 && x.attachment <= up_to)
      lost.push_back(name);
  for (const auto& name : lost)
    lose_session(who, name);
}

// -- nodes ------------------------------------------------------------------------------------------------------------

void world::start(std::size_t i) {
  auto& n = nodes_[i];
  if (n.lives || n.retired)
    return;
  count(n.life > 0 ? "node started again" : "node started");
  n.lives = true;
  ++n.life;
  n.incarnation = ++last_incarnation_;
  n.paused_until = {};
  if (n.here.empty() || random_.one_in(3))
    for (const auto& ns : namespaces_)
      if (is_calm_ || !random_.one_in(5))
        make_namespace(i, ns);
  std::vector<std::string> addresses;
  for (const auto seed : n.seeds)
    addresses.push_back(address(seed));
  n.members.emplace(
      cluster::membership_options{
          {n.of_cluster, n.called, n.incarnation}, hello_interval, milliseconds(100), seconds(2), random_.next()},
      std::move(addresses));
  n.rules.emplace(session_pause);
  auto limits = fetching_limits;
  limits.peers = [this, i](const namespace_id& ns) {
    std::vector<peer_number> out;
    if (has(defect::wait_for_etcd) && nodes_[i].listing && !nodes_[i].listing->trouble().empty())
      return out;
    for (const auto p : nodes_[i].members->numbers())
      if (nodes_[i].members->is_usable(p) || (has(defect::keep_asking_the_late) && nodes_[i].members->is_up(p)))
        if (nodes_[i].rules->is_open(session_name(p, ns)))
          out.push_back(p);
    return out;
  };
  limits.keep_copies = n.keeps_copies;
  const cluster::searching_options how{limits.ask_limit, limits.wait_limit, 24, 2, limits.peers, limits.keep_copies};
  n.pages.emplace(std::move(limits));
  n.searches.emplace(how, *n.pages);
  if (list_)
    begin_listing(i);
  n.next_look = local(i);
  n.next_tick = timestamp::max();
  run_on(i, n.life, [this, i] { tick(i); });
}

void world::end(std::size_t i, bool in_good_order) {
  auto& n = nodes_[i];
  if (!n.lives)
    return;
  count(in_good_order ? "node left" : "node killed");
  if (n.listing && in_good_order)
    take_out(i);
  if (list_)
    list_->ended[n.incarnation] = now_;
  n.ended = now_;
  n.lives = false;
  n.listing.reset();
  n.lines.clear();
  n.left_out.clear();
  n.notified.clear();
  n.members.reset();
  n.searches.reset();
  n.pages.reset();
  n.rules.reset();
  n.sessions.clear();
  n.staging.clear();
  n.calls.clear();
  n.waiting.clear();
  n.searching.clear();
  n.last_hello.clear();
  n.clients.clear();
  n.given_back.clear();
  n.late.clear();
  n.heard_of.clear();
  n.busy.clear();
  const bool keeps_pages = in_good_order || random_.one_in(2);
  n.has.restart(keeps_pages);
  forget_files(i, keeps_pages);
  for (std::size_t other = 0; other < nodes_.size(); ++other)
    if (other != i)
      break_connection(other, i);
}

void world::pause(std::size_t i, duration time) {
  auto& n = nodes_[i];
  if (!n.lives || n.paused_until > now_)
    return;
  count("paused");
  n.paused_until = later(now_, time);
  ++n.pauses;
  if (time < silence)
    return;
  count("silent");
  for (std::size_t other = 0; other < nodes_.size(); ++other)
    if (other != i)
      after(silence, [this, i, other] { break_connection(i, other); });
}

void world::make_namespace(std::size_t i, const namespace_id& ns) {
  // Each node has names of its own.
  if (nodes_[i].here.emplace(ns, nodes_[i].name + "'s " + std::to_string(ns.lo)).second)
    count("namespace made");
}

void world::remove_namespace(std::size_t i, const namespace_id& ns) {
  auto& n = nodes_[i];
  if (!n.lives || n.here.erase(ns) == 0)
    return;
  count("namespace removed");
  n.has.erase(ns);
  n.slabs.erase(ns);
  if (has(defect::free_memory_early))
    if (const auto found = n.staging.find(ns); found != n.staging.end())
      found->second->gone = true;
  // Attached clients are disconnected and find nothing when they attach again.
  for (std::size_t other = 0; other < nodes_.size(); ++other) {
    if (other == i || !nodes_[other].lives)
      continue;
    for (const auto& [name, x] : nodes_[other].sessions) {
      if (node_of(other, name.first) != i || name.second != ns)
        continue;
      // Replies to its earlier requests come too late, also if the namespace is created again.
      n.has.owner_is_gone(x.attachment);
      n.clients.erase(x.attachment);
      later_on(other, random_.time(milliseconds(1), milliseconds(300)), [this, other, name = name] {
        if (nodes_[other].sessions.contains(name))
          lose_session(other, name);
      });
    }
  }
}

void world::settle(std::size_t i) {
  auto& n = nodes_[i];
  while (n.lives) {
    const auto about_list = n.listing ? n.listing->take_outbox() : std::vector<cluster::etcd_effect>{};
    for (const auto& effect : about_list)
      std::visit([this, i](const auto& x) { perform(i, x); }, effect);
    leave_out(i);
    auto about_members = n.members->take_outbox();
    auto about_sessions = n.rules->take_outbox();
    auto about_pages = n.pages->take_outbox();
    auto about_searches = n.searches->take_outbox();
    if (about_members.empty() && about_sessions.empty() && about_pages.empty() && about_searches.empty())
      break;
    for (const auto& effect : about_members)
      std::visit([this, i](const auto& x) { perform(i, x); }, effect);
    for (const auto& effect : about_sessions)
      std::visit([this, i](const auto& x) { perform(i, x); }, effect);
    for (const auto& effect : about_pages)
      std::visit([this, i](const auto& x) { perform(i, x); }, effect);
    for (const auto& effect : about_searches)
      std::visit([this, i](const auto& x) { perform(i, x); }, effect);
  }
  if (n.lives)
    plan_tick(i);
}

void world::plan_tick(std::size_t i) {
  constexpr auto least_pause = milliseconds(20);
  auto& n = nodes_[i];
  auto next = std::min(n.members->next_event(), n.next_look);
  if (n.listing)
    next = std::min(next, n.listing->next_event());
  next =
      std::min(next, std::max(std::min(n.pages->next_event(), n.searches->next_event()), later(local(i), least_pause)));
  if (next >= n.next_tick)
    return;
  n.next_tick = next;
  later_on(i, by_world(i, std::max<duration>(next - local(i), duration::zero())), [this, i] { tick(i); });
}

void world::tick(std::size_t i) {
  auto& n = nodes_[i];
  if (local(i) >= n.next_tick)
    n.next_tick = timestamp::max();
  n.members->on_time(local(i));
  if (n.listing)
    n.listing->on_time(local(i));
  if (!has(defect::forget_time))
    n.pages->on_tick(local(i));
  settle(i);
  if (!has(defect::forget_search_time))
    n.searches->on_tick(local(i));
  n.has.look_at_clock(now_);
  if (n.next_look > local(i))
    return;
  n.next_look = later(local(i), hello_interval);
  look(i);
}

void world::look(std::size_t i) {
  auto& n = nodes_[i];
  n.rules->follow(n.here, *n.members, *n.pages, local(i));
}

// -- a life -----------------------------------------------------------------------------------------------------------

void world::step() {
  if (is_calm_)
    return;
  if (list_ && random_.one_in(12))
    return etcd_step();
  const auto dice = random_.below(1000);
  const auto i = random_.below(nodes_.size());
  const auto& ns = random_.pick(namespaces_);
  if (dice < 600) {
    if (nodes_[i].lives && nodes_[i].paused_until <= now_ && nodes_[i].here.contains(ns))
      random_.one_in(3) ? look_up_pages(i, ns, some_keys(), false) : look_up(i, ns, some_keys(), false);
  } else if (dice < 680) {
    if (const auto keys = some_keys(); nodes_[i].has.erase(ns, random_.pick(keys)))
      count("evicted");
  } else if (dice < 730) {
    end(i, random_.one_in(3));
  } else if (dice < 840) {
    start(i);
  } else if (dice < 875) {
    cut(i, random_.below(nodes_.size()));
  } else if (dice < 895) {
    // A whole side.
    for (std::size_t other = 0; other < nodes_.size(); ++other)
      if (random_.one_in(2))
        cut(i, other);
  } else if (dice < 920) {
    cuts_.clear();
  } else if (dice < 945) {
    pause(i, random_.skewed_time(milliseconds(20), seconds(6)));
  } else if (dice < 960) {
    nodes_[i].slow = !nodes_[i].slow;
    count(nodes_[i].slow ? "slow" : "fast again");
  } else if (dice < 975) {
    remove_namespace(i, ns);
    if (random_.one_in(2))
      after(random_.time(milliseconds(1), milliseconds(400)), [this, i, ns] {
        if (nodes_[i].lives)
          make_namespace(i, ns);
      });
  } else if (nodes_[i].lives) {
    make_namespace(i, ns);
  }
}

void world::finish() {
  is_calm_ = true;
  cuts_.clear();
  if (list_)
    etcd_calms();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].slow = false;
    nodes_[i].has.set_room(100'000);
    start(i);
    for (const auto& ns : namespaces_)
      make_namespace(i, ns);
  }
  // A peer session without answers is replaced after it has had a request for a while.
  for (const auto when : {seconds(20), seconds(25)})
    after(when, [this, first = static_cast<number>(when.count())] {
      for (std::size_t i = 0; i < nodes_.size(); ++i)
        for (const auto& ns : namespaces_)
          run_on(i, nodes_[i].life, [this, i, ns, first] { look_up(i, ns, {{5000 + first, i + 1}}, false); });
    });
  // Until all messages in flight have arrived and every node has found every other.
  after(seconds(40), [this] { check_found(); });
  after(seconds(60), [this] { check_rest(); });
}

void world::check_found() {
  auto when = now_;
  for (std::size_t from = 0; from < nodes_.size(); ++from)
    for (const auto& ns : namespaces_)
      for (std::size_t to = 0; to < nodes_.size(); ++to) {
        if (!is_to_find(to, from))
          continue;
        const auto keys = calm_keys(from, to);
        when = later(when, milliseconds(50));
        at(when, [this, from, to, ns, keys] {
          compute(from, ns, keys, true);
          run_on(to, nodes_[to].life, [this, to, ns, keys] { look_up(to, ns, keys, true); });
          const auto others = calm_keys(from, to, 30'000);
          compute(from, ns, others, true);
          run_on(to, nodes_[to].life, [this, to, ns, others] { look_up_pages(to, ns, others, true); });
        });
      }
}

std::vector<key_digest> world::calm_keys(std::size_t from, std::size_t to, number first) {
  std::vector<key_digest> out;
  for (number depth = 1; depth <= 9; ++depth)
    out.push_back({first + 100 * from + to, depth});
  return out;
}

void world::check_copies() {
  for (std::size_t from = 0; from < nodes_.size(); ++from)
    for (const auto& ns : namespaces_)
      for (std::size_t to = 0; to < nodes_.size(); ++to) {
        if (!is_to_find(to, from))
          continue;
        for (const auto& key : calm_keys(from, to)) {
          const auto home = nodes_[from].has.find(ns, key);
          const auto fetched = nodes_[to].has.find(ns, key);
          if (!home || !fetched || home->evict_first != nodes_[to].keeps_copies ||
              fetched->evict_first == home->evict_first)
            return broken("copies", "of a page that " + nodes_[to].name + " has fetched from " + nodes_[from].name +
                                        ", not one copy goes first, or it is the other one");
        }
      }
}

void world::check_rest() {
  check_copies();
  for (const auto& n : nodes_) {
    if (!n.lives)
      continue;
    if (!n.waiting.empty() || !n.searching.empty())
      broken("ends", "an engine of " + n.name + " was never answered");
    if (n.searches->searches() > 0 || n.searches->calls_under_way() > 0)
      broken("rest", n.name + " holds pages at other nodes for a search that no request waits for");
    if (n.pages->rounds() > 0 || n.pages->calls_under_way() > 0 || !n.calls.empty())
      broken("rest", n.name + " has a transfer in progress that no request waits for");
    if (n.pages->blocks_in_use() > 0 || !n.busy.empty())
      broken("rest", "passing memory of " + n.name + " is in use, and nothing is under way");
    if (!n.has.leases().empty())
      broken("leases", "a lease is left at " + n.name);
  }
}

outcome world::run() {
  auto when = now_;
  at(when, [this] {
    // Others join later.
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (i < 2 || random_.one_in(2))
        start(i);
    if (list_)
      look_at_lists();
  });
  for (std::uint64_t i = 0; i < steps_; ++i) {
    when = later(when, random_.skewed_time(milliseconds(1), milliseconds(600)));
    at(when, [this] { step(); });
  }
  at(later(when, seconds(1)), [this] { finish(); });
  const auto end = later(when, seconds(62));
  while (!agenda_.empty() && agenda_.begin()->first.first <= end && out_.property.empty()) {
    auto next = agenda_.extract(agenda_.begin());
    now_ = next.key().first;
    ++out_.events;
    trace(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    next.mapped()();
  }
  return out_;
}

} // namespace troupe::cluster_simulation
