#include "tests/simulation/world.hpp"

#include "tests/simulation/entropy.hpp"

#include <algorithm>

namespace troupe::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose)
    : seed_(seed_entropy(seed)), steps_(steps), env_(seed, built_in, verbose), random_(env_.random.fork()), node_(env_),
      turns_(
          env_, [this] { return processes(); },
          [this] {
            if (node_.running())
              node_.ask_what_is_held();
          }) {
  for (std::uint32_t i = 0; i < env_.p.clients; ++i)
    add_client();
  const auto& n = env_.p.nemesis;
  const auto add = [this](bool wanted, std::function<void()> fault) {
    if (wanted)
      faults_.push_back(std::move(fault));
  };
  add(n.cut, [this] { any_client().cut(); });
  add(n.pause_client, [this] {
    if (auto& c = any_client(); c.running() && c.in()->pause(random_.skewed_time(milliseconds(1), seconds(4))))
      env_.count("fault: paused client");
  });
  add(n.pause_node, [this] {
    if (node_.running() && node_.in()->pause(random_.skewed_time(milliseconds(1), seconds(4))))
      env_.count("fault: paused node");
  });
  add(n.kill_client, [this] {
    if (auto& c = any_client(); c.running()) {
      env_.count("fault: killed client");
      c.kill();
      restart_client(c);
    }
  });
  add(n.leave, [this] {
    if (auto& c = any_client(); c.running()) {
      c.leave();
      restart_client(c);
    }
  });
  add(n.kill_node, [this] {
    if (node_.running()) {
      env_.count("fault: killed node");
      node_.kill();
      restart_node();
    }
  });
  add(n.drain_node, [this] {
    if (node_.running()) {
      env_.count("fault: drained node");
      node_.drain(random_.skewed_time(milliseconds(1), seconds(1)));
      restart_node();
    }
  });
  add(n.flip, [this] { node_.disk_of(random_.number(0, env_.p.ranks - 1)).flip(); });
  add(n.truncate, [this] {
    if (random_.one_in(4))
      node_.disk_of(random_.number(0, env_.p.ranks - 1)).truncate();
  });
  add(n.corrupt_memory, [this] { node_.memory().corrupt_memory(); });
  add(n.stray_words, [this] { node_.say_something_stray(); });
  add(n.erase, [this] {
    const auto owner = node_.erase_something();
    if (owner == 0 || !random_.one_in(2))
      return;
    // Without its leases, the slot is fenced while it is read.
    for (const auto& c : clients_)
      if (c->owner() == owner) {
        c->leave();
        restart_client(*c);
      }
  });
}

void world::add_client() {
  clients_.push_back(std::make_unique<client>(env_, node_, static_cast<std::uint32_t>(clients_.size() + 1)));
  workloads_.push_back(std::make_unique<workload>(env_, *clients_.back()));
}

sim_main::outcome world::run() {
  env_.trace("seed", {seed_}, env_.p.describe());
  node_.start();
  for (std::size_t i = 0; i < env_.p.clients; ++i) {
    clients_[i]->start();
    workloads_[i]->start();
  }
  plan_fault();
  const auto steps = turns_.live(steps_);
  if (!env_.failed())
    await_answers();
  if (!env_.failed())
    await_quiesced();
  if (!env_.failed())
    dismiss_clients();
  if (!env_.failed())
    use_every_slot();
  return {seed_,           steps,          turns_.steps(), env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(),  env_.p.describe()};
}

// -- steps ------------------------------------------------------------------------------------------------------------

std::vector<process*> world::processes() {
  std::vector<process*> out;
  if (node_.running())
    out.push_back(node_.in());
  for (const auto& c : clients_)
    if (c->running())
      out.push_back(c->in());
  return out;
}

// -- faults -----------------------------------------------------------------------------------------------------------

void world::plan_fault() {
  if (!faults_.empty())
    env_.schedule.after(random_.skewed_time(milliseconds(1), env_.p.nemesis_interval), [this] { strike(); });
}

void world::strike() {
  if (env_.winding_down)
    return env_.schedule.idle();
  restart_those_that_failed();
  random_.pick(faults_)();
  plan_fault();
}

void world::restart_client(client& which) {
  env_.schedule.after(random_.skewed_time(milliseconds(1), seconds(1)), [this, &which] {
    which.kill(); // if it was to leave by itself, it has had its time
    which.start();
    workloads_[which.number() - 1]->start();
  });
}

void world::restart_node() {
  env_.schedule.after(random_.skewed_time(milliseconds(10), seconds(3)), [this, number = ++restarts_] {
    if (number != restarts_)
      return; // killed while it drained, and planned anew
    node_.kill();
    node_.start();
  });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void world::await_answers() {
  const auto& p = env_.p;
  const auto limit = std::max<duration>(p.task_deadline_max, 3 * p.request_timeout) + p.notice_max + seconds(12);
  const auto waiting = [this]() -> std::string {
    for (std::size_t i = 0; i < clients_.size(); ++i)
      if (!clients_[i]->running())
        return "client " + std::to_string(i + 1) + " is not there";
      else if (workloads_[i]->waiting() > 0)
        return "client " + std::to_string(i + 1) + ": " + std::to_string(workloads_[i]->waiting()) +
               " requests are not answered";
    return {};
  };
  if (auto wrong = turns_.run_until(waiting, limit); !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
}

std::string world::held() {
  for (auto* x : processes())
    if (x->paused())
      return x->name() + " is paused";
  if (!node_.running())
    return "the node is not there";
  restart_those_that_failed();
  node_.ask_what_is_held();
  for (int i = 0; i < 50 && node_.running() && !node_.has_said_what_is_held() && turns_.run_for(milliseconds(1)); ++i) {
  }
  for (const auto& c : clients_)
    if (auto wrong = c->requests(); !wrong.empty())
      return wrong;
  return node_.check_quiesced();
}

void world::restart_those_that_failed() {
  const auto& n = env_.p.nemesis;
  // A link fails when it cannot find the memory that it was named, also when that is lost with its node or
  // connection. The world then starts its process again.
  const bool may_be_gone = n.cut || n.pause_client || n.pause_node || n.kill_node || n.drain_node;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    auto& c = *clients_[i];
    if (!c.running() || c.refused().empty())
      continue;
    if (!may_be_gone)
      env_.fail("answers", "client " + std::to_string(c.number()) + " has failed: " + c.refused());
    env_.count("link has failed");
    c.kill();
    c.start();
    workloads_[i]->start();
  }
}

void world::await_quiesced() {
  const auto& p = env_.p;
  // Coordinators ask for holds of up to five seconds beyond a task's deadline. Whatever began last has waited for
  // slots, then waited for its time to run out, and was then given back in portions. What is in memory only is written.
  const auto frames = p.memory.extents * p.memory.frames_per_extent;
  const auto limit = p.task_deadline_max + std::max(p.lease_max, p.reservation_max) + 3 * p.request_timeout +
                     p.io_deadline + p.hang_time + p.process_hang + frames * p.disk_time + p.memory.give_patience +
                     seconds(14);
  if (auto wrong = turns_.run_until([this] { return held(); }, limit); !wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
  if (auto wrong = turns_.run_until(
          [this]() -> std::string {
            restart_those_that_failed();
            for (const auto& c : clients_)
              if (!c->attached())
                return "client " + std::to_string(c->number()) + " does not come back" +
                       (c->refused().empty() ? "" : ": " + c->refused());
            return {};
          },
          seconds(10));
      !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
  for (const auto& c : clients_)
    for (rank_number rank = 0; rank < p.ranks && c->running(); ++rank)
      if (!c->device_of(rank).free_blocks_are_sound())
        env_.fail("blocks", "at the end: client " + std::to_string(c->number()) + ", rank " + std::to_string(rank) +
                                ": a block that belongs to no task has changed");
}

void world::dismiss_clients() {
  // One half detaches, the other dies.
  for (std::size_t i = 0; i < clients_.size(); i += 2)
    clients_[i]->leave();
  if (!turns_.run_for(seconds(1)))
    return;
  for (const auto& c : clients_)
    c->kill();
  if (auto wrong = turns_.run_until([this] { return held(); }, env_.p.notice_max + seconds(6)); !wrong.empty())
    env_.fail("rest", "at the end, without clients: " + wrong);
}

void world::use_every_slot() {
  // The time from the location to gather, write, answer and commit: where reservations end sooner than that may take,
  // no key is ever stored, and rightly so.
  if (env_.p.reservation_max < 4 * env_.p.network_delay + env_.p.disk_time)
    return;
  // A damaged slab is replaced when the node starts, and not before.
  if (std::any_of(node_.disks().begin(), node_.disks().end(), [](const auto& d) { return d->damaged(); })) {
    node_.kill();
    node_.start();
  }
  add_client();
  auto& last = *clients_.back();
  last.start();
  if (auto wrong = turns_.run_until([&] { return last.attached() ? "" : "a new client cannot attach"; }, seconds(5));
      !wrong.empty())
    return env_.fail("answers", "at the end: " + wrong);
  bool over = false;
  workloads_.back()->fill([&](bool stored) {
    over = true;
    if (!stored)
      env_.fail("room", "at the end: there is no room for new keys, though none is held");
  });
  const auto limit = env_.now() + std::chrono::minutes(30);
  while (!over && !env_.failed() && env_.now() < limit && turns_.step()) {
  }
  if (!over)
    env_.fail("answers", "at the end: a save is not answered");
}

} // namespace troupe::simulation
