#include "tests/cluster_actors/world.hpp"

#include "tests/cluster_actors/network.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::cluster_actors {

using std::chrono::milliseconds;
using std::chrono::seconds;

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose)
    : seed_(seed), steps_(steps), fabric_(seed, built_in, verbose), env_(fabric_.env), random_(fabric_.random.fork()),
      turns_(
          env_, [this] { return processes(); }, [this] { look(); }) {
  const auto& p = fabric_.p;
  for (std::uint32_t i = 0; i < p.hosts; ++i) {
    const bool is_stranger = p.stranger && i + 1 == p.hosts;
    fabric_.hosts.push_back(std::make_unique<host>(fabric_, i, p.same_names ? "node" : "node " + std::to_string(i),
                                                   is_stranger ? "theirs" : "ours"));
    callers_.push_back(std::make_unique<caller>(*fabric_.hosts.back()));
  }
  stats_.resize(p.hosts);
}

world::~world() {
  for (std::size_t i = 0; i < callers_.size(); ++i)
    kill(i);
}

sim_main::outcome world::run() {
  env_.trace("seed", {seed_}, fabric_.p.describe());
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    env_.schedule.after(random_.skewed_time(milliseconds(1), seconds(1)), [this, i] { start(i); });
    plan_work(i);
  }
  plan_fault();
  const auto steps = turns_.live(steps_);
  if (!env_.failed())
    await_all();
  if (!env_.failed())
    await_quiesced();
  // Whether its client was sent away meanwhile, a node notices with the first fetch.
  for (std::uint32_t round = 0; round < 2 && !env_.failed(); ++round) {
    fetch_everything(fabric_.p.chains + round, round > 0);
    // Namespaces are looked at with this interval.
    if (!env_.failed() && turns_.run_for(2 * fabric_.p.hello_interval + seconds(1)))
      await_quiesced();
  }
  if (!env_.failed())
    dismiss();
  return {seed_,           steps,          turns_.steps(), env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(),  fabric_.p.describe()};
}

std::vector<simulation::process*> world::processes() {
  std::vector<simulation::process*> out;
  for (const auto& x : fabric_.hosts)
    if (x->runs())
      out.push_back(x->in());
  return out;
}

// -- life and faults --------------------------------------------------------------------------------------------------

void world::start(std::size_t which) {
  auto& x = *fabric_.hosts[which];
  if (x.runs())
    return env_.schedule.idle();
  x.start();
  callers_[which]->start();
}

void world::kill(std::size_t which) {
  callers_[which]->forget();
  stats_[which] = {};
  fabric_.hosts[which]->kill();
}

void world::restart(std::size_t which) {
  env_.schedule.after(random_.skewed_time(milliseconds(10), seconds(10)), [this, which] { start(which); });
}

void world::plan_work(std::size_t which) {
  env_.schedule.after(random_.skewed_time(milliseconds(1), fabric_.p.work_interval), [this, which] {
    if (env_.winding_down)
      return env_.schedule.idle();
    callers_[which]->work();
    plan_work(which);
  });
}

void world::plan_fault() {
  env_.schedule.after(random_.skewed_time(milliseconds(1), fabric_.p.nemesis_interval), [this] {
    if (env_.winding_down)
      return env_.schedule.idle();
    strike();
    plan_fault();
  });
}

void world::strike() {
  const auto a = random_.below(callers_.size());
  const auto b = random_.below(callers_.size());
  if (a == b)
    strike_host(*fabric_.hosts[a]);
  else
    strike_line(a, b);
}

void world::strike_line(std::size_t a, std::size_t b) {
  const auto time = random_.skewed_time(milliseconds(1), seconds(8));
  switch (random_.below(4)) {
  case 0:
  case 1:
    env_.count("fault: connection lost");
    return fabric_.cut(a, b);
  case 2:
    env_.count("fault: network partitioned");
    return fabric_.block(a, b, time);
  default:
    env_.count("fault: silent network");
    return fabric_.silence(a, b, time);
  }
}

void world::strike_host(host& x) {
  const auto which = x.number();
  const auto& ns = random_.pick(fabric_.p.namespaces);
  if (!x.runs())
    return;
  switch (random_.below(8)) {
  case 0:
  case 1:
    env_.count("fault: node killed");
    kill(which);
    return restart(which);
  case 2:
    if (!x.is_leaving()) {
      x.leave();
      env_.schedule.after(seconds(15), [this, which, run = x.run()] {
        auto& left = *fabric_.hosts[which];
        if (!left.is_leaving() || left.run() != run)
          return env_.schedule.idle();
        if (left.in()->paused())
          return env_.schedule.postpone(left.in()->goes_on() + seconds(15));
        env_.judge("left", left.left_behind());
        kill(which);
        restart(which);
      });
    }
    return;
  case 3:
  case 4:
    if (x.in()->pause(random_.skewed_time(milliseconds(1), seconds(4))))
      env_.count("fault: node paused");
    return;
  case 5:
    env_.count("fault: namespace removed");
    x.remove_namespace(ns.id());
    env_.schedule.after(random_.skewed_time(milliseconds(10), seconds(4)),
                        [&x, id = ns.id()] { x.make_namespace(id); });
    return;
  default:
    if (const auto all = x.pages().all(); !all.empty()) {
      const auto& [in, key] = random_.pick(all);
      env_.count("fault: page damaged");
      x.pages().damage(in, random_.number(0, fabric_.p.ranks - 1), key);
    }
  }
}

// -- judged while it runs ---------------------------------------------------------------------------------------------

void world::look() {
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    auto& x = *fabric_.hosts[i];
    env_.judge("answers", callers_[i]->late());
    judge_leases(x);
    if (!x.runs() || x.is_leaving() || x.in()->paused())
      continue;
    callers_[i]->ask_for_stats([this, i](const cluster_stats& now) {
      stats_[i] = now;
      judge_stats(*fabric_.hosts[i], now);
    });
  }
}

bool world::is_known_to_be_dead(const host& of, const host& by) const {
  // A connection attempt, a hello, and the pause before it.
  const auto limit = 6 * fabric_.p.hello_interval + fabric_.p.notice_max + fabric_.p.backoff_max + seconds(1);
  return !of.runs() && of.ended() + limit < fabric_.now() && by.undisturbed_since() + limit < fabric_.now();
}

void world::judge_stats(const host& of, const cluster_stats& x) {
  const auto texts = of.condition().troubles();
  for (const auto& peer : x.peers)
    for (const auto& there : fabric_.hosts) {
      if (there->address() != peer.address || !is_known_to_be_dead(*there, of))
        continue;
      env_.count("reported as unreachable");
      if (peer.up || peer.trouble.empty())
        return env_.fail("away", "a node that has ended is reported as one that is there, or without a reason");
      if (std::ranges::none_of(texts, [&](const auto& trouble) {
            return trouble.what == trouble::peer_unreachable && trouble.text.find(peer.address) != std::string::npos;
          }))
        return env_.fail("away", "a node that has ended is not among the troubles of its peer");
    }
}

void world::judge_leases(const host& x) {
  const auto& p = fabric_.p;
  // A client holds a lease for the time of a caller and of a fetch, and may be paused meanwhile.
  const auto limit = p.fetch_time + p.ask_time + 2 * p.task_deadline + seconds(20);
  for (const auto& [which, lease] : x.pages().leases())
    if (lease.granted + limit < env_.now())
      return env_.fail("leases", "a peer does not release what it has leased");
}

// -- judged at the end ------------------------------------------------------------------------------------------------

bool world::are_friends(std::size_t a, std::size_t b) const {
  return a != b && fabric_.hosts[a]->of_cluster() == fabric_.hosts[b]->of_cluster();
}

std::string world::away() {
  for (const auto& x : fabric_.hosts)
    if (!x->runs() || x->is_leaving() || x->in()->paused())
      return "node " + std::to_string(x->number()) + " is not there";
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    const auto about = "node " + std::to_string(i) + " about node ";
    const auto& peers = stats_[i].peers;
    for (std::size_t j = 0; j < callers_.size(); ++j) {
      const auto found = std::ranges::find(peers, fabric_.hosts[j]->address(), &peer_stats::address);
      if (i == j && found != peers.end() && !found->self)
        return about + "itself: does not know its own address";
      if (i == j)
        continue;
      if (!are_friends(i, j)) {
        if (found != peers.end() && found->up)
          return about + std::to_string(j) + ": it is of another cluster, and used as a peer";
        continue;
      }
      if (found == peers.end() || !found->up || found->namespaces != fabric_.p.namespaces.size())
        return about + std::to_string(j) + ": " +
               (found == peers.end() ? "unknown"
                : found->up          ? "sessions are missing"
                                     : "unreachable: " + found->trouble);
    }
  }
  return {};
}

void world::await_all() {
  fabric_.heal();
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    if (fabric_.hosts[i]->is_leaving())
      kill(i);
    start(i);
    for (const auto& ns : fabric_.p.namespaces)
      fabric_.hosts[i]->make_namespace(ns.id());
  }
  // Names are resolved every 30 s, an attempt takes up to three, and so does the pause after it.
  if (const auto wrong = turns_.run_until([this] { return away(); }, seconds(fabric_.p.by_name ? 120 : 60));
      !wrong.empty())
    env_.fail("back", "at the end: " + wrong);
}

std::string world::held() {
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    auto& x = *fabric_.hosts[i];
    const auto who = "node " + std::to_string(i) + ": ";
    if (callers_[i]->waiting() > 2) // statistics, which are asked for all the time
      return who + "requests are not answered";
    if (auto wrong = x.reach().under_way(); !wrong.empty())
      return who + wrong;
    if (const auto leases = x.pages().leases().size(); leases > 0)
      return who + std::to_string(leases) + " leases of peers";
    for (std::size_t j = 0; j < callers_.size(); ++j)
      for (const auto& ns : fabric_.p.namespaces)
        if (const auto there = x.attachments(j, ns.id()); there != (are_friends(i, j) ? 1 : 0))
          return who + std::to_string(there) + " attachments of node " + std::to_string(j) + " to one namespace";
  }
  return {};
}

void world::await_quiesced() {
  const auto& p = fabric_.p;
  const auto limit = 2 * p.task_deadline + p.fetch_time + seconds(30);
  const auto both = [this] {
    auto wrong = held();
    return wrong.empty() ? away() : wrong;
  };
  if (const auto wrong = turns_.run_until(both, limit); !wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
}

void world::fetch_everything(std::uint32_t chain, bool must_find) {
  const auto& p = fabric_.p;
  std::size_t open = 0;
  std::vector<key_digest> keys;
  for (std::uint32_t i = 0; i < p.chain_length; ++i)
    keys.push_back(caller::key(chain, i));
  // Where pages arrive too slowly for a caller, they are only on their way when it is answered.
  must_find &= keys.size() <= p.batch_keys && p.ask_time > 3 * p.network_delay + milliseconds(10) &&
               p.fetch_time > 4 * p.chain_length * p.page_time + 40 * p.network_delay;
  for (const auto& ns : p.namespaces) {
    callers_[0]->save(ns.id(), keys);
    for (std::size_t i = 1; i < callers_.size(); ++i) {
      if (!are_friends(0, i))
        continue;
      ++open;
      callers_[i]->fetch_chain(ns.id(), chain, [&, i, id = ns.id()](std::uint32_t found) {
        --open;
        env_.count(found == keys.size() ? "found all at the end" : "found some at the end");
        if (found != keys.size() && must_find)
          env_.fail("found", "at the end: node " + std::to_string(i) + " finds " + std::to_string(found) + " of " +
                                 std::to_string(keys.size()) + " keys that node 0 has");
      });
    }
  }
  const auto limit = p.fetch_time + seconds(5);
  if (const auto wrong = turns_.run_until([&] { return open > 0 ? "requests are not answered" : ""; }, limit);
      !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
}

void world::dismiss() {
  // The last one leaves, and all others notice it.
  const auto last = callers_.size() - 1;
  auto& x = *fabric_.hosts[last];
  x.leave();
  if (const auto wrong = turns_.run_until([&] { return x.left_behind(); }, seconds(15)); !wrong.empty())
    return env_.fail("left", "at the end: " + wrong);
  for (std::size_t i = 0; i < last; ++i)
    if (fabric_.hosts[i]->attachments(last, fabric_.p.namespaces[0].id()) > 0)
      turns_.run_for(seconds(1));
  for (std::size_t i = 0; i < last; ++i)
    for (const auto& ns : fabric_.p.namespaces)
      if (fabric_.hosts[i]->attachments(last, ns.id()) > 0)
        return env_.fail("left", "at the end: a node that has left is still attached");
  if (const auto buffers = x.reach().staging_buffers(); buffers > 0)
    return env_.fail("memory", "at the end: " + std::to_string(buffers) + " staging buffers are not freed");
  kill(last);
  turns_.run_for(10 * fabric_.p.hello_interval + 2 * fabric_.p.backoff_max + seconds(3));
}

} // namespace troupe::cluster_actors
