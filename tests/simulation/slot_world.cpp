#include "tests/simulation/slot_world.hpp"

#include "tests/simulation/entropy.hpp"

#include <algorithm>

namespace troupe::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

slot_world::slot_world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose)
    : seed_(seed_entropy(seed)), steps_(steps), env_(seed, built_in, verbose),
      p_(make_slot_parameters(env_.random.fork())), random_(env_.random.fork()), node_(env_, p_), traffic_(env_, node_),
      turns_(
          env_, [this] { return processes(); }, [this] { check(); }) {
  for (std::uint32_t i = 1; i <= p_.clients + 1; ++i)
    clients_.push_back(std::make_unique<slot_client>(env_, node_, traffic_, p_, i));
}

sim_main::outcome slot_world::run() {
  env_.trace("seed", {seed_}, p_.describe());
  node_.start();
  for (std::uint32_t i = 0; i < p_.clients; ++i)
    clients_[i]->start();
  plan_fault();
  const auto steps = turns_.live(steps_);
  if (!env_.failed())
    quiesce();
  if (!env_.failed())
    use_every_slot();
  return {seed_,           steps,          turns_.steps(), env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(),  p_.describe()};
}

std::vector<process*> slot_world::processes() {
  return node_.running() ? std::vector<process*>{node_.in()} : std::vector<process*>{};
}

void slot_world::check() {
  if (node_.running())
    if (auto wrong = node_.check_counts(); !wrong.empty())
      env_.fail("slots", std::move(wrong));
}

// -- what befalls them ------------------------------------------------------------------------------------------------

void slot_world::plan_fault() {
  env_.schedule.after(random_.skewed_time(milliseconds(10), p_.nemesis_interval), [this] { strike(); });
}

void slot_world::strike() {
  if (env_.winding_down)
    return env_.schedule.idle();
  auto& client = *clients_[random_.below(p_.clients)];
  switch (random_.below(4)) {
  case 0:
    if (p_.cut && client.running()) {
      env_.count("fault: cut line");
      client.cut();
    }
    break;
  case 1:
    if (p_.kill_client && client.running())
      kill_client(client);
    break;
  case 2:
    if (p_.new_sizes && client.running())
      restart_with_other_pages(client);
    break;
  default:
    if (p_.kill_node && node_.running())
      kill_node();
  }
  plan_fault();
}

void slot_world::kill_client(slot_client& which) {
  env_.count("fault: killed client");
  which.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), seconds(1)), [this, &which] {
    if (!env_.winding_down)
      which.start();
  });
}

void slot_world::restart_with_other_pages(slot_client& which) {
  env_.count("fault: restarted engine with other pages");
  which.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), milliseconds(100)), [this, &which] {
    if (!env_.winding_down)
      which.start_anew();
  });
}

void slot_world::kill_node() {
  env_.count("fault: killed node");
  node_.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), milliseconds(500)), [this] {
    node_.start();
    traffic_.node_restarted();
  });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void slot_world::quiesce() {
  // The last requester, which repeats its request, is promised time once more. A rank that was registered again may be
  // quarantined for as long as any promise lasts.
  const auto limit = 4 * p_.request_timeout + 4 * p_.promised() + 2 * p_.rest + seconds(6);
  if (auto wrong = turns_.run_until([this] { return node_.check_quiesced(); }, limit); !wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
  check();
  for (const auto& c : clients_)
    c->kill();
}

void slot_world::use_every_slot() {
  auto& last = *clients_.back();
  last.start();
  if (!turns_.run_for(p_.promised() + seconds(1)))
    return;
  fill();
  // What children hold back is held no longer than this from the moment at which a shard has looked at it. It does so
  // when it has to evict, and shards take turns.
  const auto is_older = [&](const key_digest& key) { return !last.has_filled(key); };
  constexpr int rounds = 4;
  for (int round = 0; round == 0 || (round < rounds && std::ranges::any_of(node_.keys(), is_older)); ++round) {
    if (!turns_.run_for(p_.children_hold + seconds(1)))
      return;
    fill();
    if (env_.failed())
      return;
  }
  for (const auto& key : node_.keys())
    if (is_older(key))
      env_.fail("eviction", "at the end: key " + to_string(key) + " stays, though it is unused and others are evicted");
  check();
}

void slot_world::fill() {
  bool over = false;
  const auto limit = p_.children_hold + p_.promised() + p_.rest + seconds(10);
  clients_.back()->fill(3 * p_.ranks * p_.slots, limit, [&over] { over = true; });
  if (auto wrong = turns_.run_until([&over] { return over ? "" : "a save is not answered"; }, std::chrono::minutes(30));
      !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
}

} // namespace troupe::simulation
