#include "tests/simulation/namespace_world.hpp"

#include "actors/node/supervisor/node_state.hpp"
#include "tests/simulation/entropy.hpp"

#include <utility>

namespace troupe::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace_world::namespace_world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose)
    : seed_(seed_entropy(seed)), steps_(steps), env_(seed, built_in, verbose),
      p_(make_namespace_parameters(env_.random.fork(), env_.p.ns)), random_(env_.random.fork()), node_(env_, p_),
      turns_(
          env_, [this] { return processes(); },
          [this] {
            if (node_.running())
              node_.check_counts();
          }) {
  for (std::uint32_t i = 1; i <= p_.clients; ++i)
    clients_.push_back(std::make_unique<namespace_client>(env_, node_, p_, i));
}

sim_main::outcome namespace_world::run() {
  env_.trace("seed", {seed_}, p_.describe());
  node_.start();
  for (const auto& x : clients_)
    x->start();
  plan_removal();
  plan_fault();
  const auto steps = turns_.live(steps_);
  if (!env_.failed())
    quiesce();
  if (!env_.failed())
    remove_all();
  if (!env_.failed())
    use_each();
  if (!env_.failed())
    remove_all();
  return {seed_,           steps,          turns_.steps(), env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(),  p_.describe()};
}

std::vector<process*> namespace_world::processes() {
  return node_.running() ? std::vector<process*>{node_.in()} : std::vector<process*>{};
}

// -- what befalls them ------------------------------------------------------------------------------------------------

void namespace_world::plan_removal() {
  env_.schedule.after(random_.skewed_time(milliseconds(5), p_.removal_interval), [this] {
    if (env_.winding_down)
      return env_.schedule.idle();
    if (node_.running())
      node_.remove(random_.pick(p_.namespaces), p_.forced && random_.one_in(2));
    plan_removal();
  });
}

void namespace_world::plan_fault() {
  env_.schedule.after(random_.skewed_time(milliseconds(10), p_.nemesis_interval), [this] { strike(); });
}

void namespace_world::strike() {
  if (env_.winding_down)
    return env_.schedule.idle();
  auto& client = *clients_[random_.below(clients_.size())];
  switch (random_.below(4)) {
  case 0:
    if (p_.kill_node && node_.running())
      kill_node();
    break;
  case 1:
    if (p_.kill_client && client.running()) {
      env_.count("fault: killed client");
      client.kill();
      env_.schedule.after(random_.skewed_time(milliseconds(1), seconds(1)), [this, &client] {
        if (!env_.winding_down && !client.running())
          client.start();
        else
          env_.schedule.idle();
      });
    }
    break;
  default:
    if (p_.leave && client.running()) {
      env_.count("fault: client leaves");
      client.leave();
    }
  }
  plan_fault();
}

void namespace_world::kill_node() {
  env_.count("fault: killed node");
  node_.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), milliseconds(500)), [this] {
    node_.start();
    for (const auto& x : clients_)
      x->node_restarted();
  });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void namespace_world::quiesce() {
  const auto limit = 2 * (p_.lease + p_.reservation) + p_.patience + p_.process_hang + node_state::quiesce_expected +
                     std::chrono::minutes(2);
  const auto waiting = [this]() -> std::string {
    if (!node_.running())
      return "the node is not there";
    for (std::size_t i = 0; i < clients_.size(); ++i)
      if (clients_[i]->under_way() > 0)
        return "client " + std::to_string(i + 1) + " has requests or copies under way";
    return node_.open_asks() > 0 ? std::to_string(node_.open_asks()) + " requests are not answered" : "";
  };
  if (auto wrong = turns_.run_until(waiting, limit); !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
  for (std::size_t i = 0; i < clients_.size(); ++i)
    i % 2 == 0 ? clients_[i]->leave() : clients_[i]->kill();
}

void namespace_world::remove_all() {
  const auto limit = node_state::quiesce_expected + std::chrono::minutes(2);
  for (const auto& x : p_.namespaces) {
    errc code = errc::busy;
    bool asked = false;
    const auto removed = [&]() -> std::string {
      if (!asked && (code == errc::busy)) {
        asked = true;
        node_.remove(x, true, [&](errc outcome) {
          code = outcome;
          asked = false;
        });
      }
      return code == errc::ok || code == errc::unknown_namespace ? "" : "namespace '" + x.name + "' stays";
    };
    if (auto wrong = turns_.run_until(removed, limit); !wrong.empty())
      return env_.fail("answers", "at the end: " + wrong);
    if (env_.failed())
      return;
  }
  if (auto wrong = turns_.run_until([this] { return node_.check_empty(); }, seconds(20)); !wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
}

void namespace_world::use_each() {
  // There may be no memory left, or no time for a save.
  if (p_.unknown_processes || p_.reservation < 4 * (p_.copy_time + p_.io_time) + milliseconds(50))
    return;
  clients_.push_back(
      std::make_unique<namespace_client>(env_, node_, p_, static_cast<std::uint32_t>(clients_.size() + 1)));
  auto& last = *clients_.back();
  last.start();
  for (std::size_t i = 0; i < p_.namespaces.size() && !env_.failed(); ++i) {
    std::optional<std::string> wrong;
    last.try_out(i, [&](std::string x) { wrong = std::move(x); });
    const auto over = turns_.run_until([&] { return wrong ? "" : "a client is not answered"; }, seconds(60));
    if (!over.empty())
      return env_.fail("answers", "at the end: " + over);
    if (!wrong->empty())
      return env_.fail("room", "at the end: " + *wrong);
    bool gone = false;
    node_.remove(p_.namespaces[i], true, [&](errc) { gone = true; });
    if (auto x = turns_.run_until([&] { return gone ? "" : "a removal is not answered"; }, seconds(60)); !x.empty())
      return env_.fail("answers", "at the end: " + x);
  }
}

} // namespace troupe::simulation
