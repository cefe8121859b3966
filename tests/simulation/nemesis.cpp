#include "tests/simulation/nemesis.hpp"

#include <utility>

namespace troupe::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

nemesis::nemesis(environment& world, victims on)
    : world_(world), victims_(std::move(on)), random_(world.random.fork()) {
  const auto& n = world_.p.nemesis;
  const auto add = [&](bool enabled, std::function<void()> fault) {
    if (enabled)
      faults_.push_back(std::move(fault));
  };
  add(n.cut, [this] { cut(); });
  add(n.slow, [this] { slow(); });
  add(n.pause_client, [this] { pause(any_client().process()); });
  add(n.pause_node, [this] { pause(node_process); });
  add(n.kill_client, [this] { kill_client(); });
  add(n.leave, [this] { any_client().leave(); });
  add(n.kill_node, [this] { kill_node(); });
  add(n.drain_node, [this] { drain_node(); });
  add(n.flip, [this] { victims_.serving.disk_of(random_.number(0, world_.p.ranks - 1)).flip(); });
  add(n.erase, [this] { erase(); });
  add(n.truncate, [this] {
    if (random_.one_in(4))
      victims_.serving.disk_of(random_.number(0, world_.p.ranks - 1)).truncate();
  });
}

void nemesis::start() {
  if (!faults_.empty())
    plan_next();
}

void nemesis::plan_next() {
  world_.schedule.after(random_.skewed_time(milliseconds(1), world_.p.nemesis_interval), [this] { strike(); });
}

void nemesis::strike() {
  if (world_.winding_down) {
    world_.schedule.idle();
    return;
  }
  random_.pick(faults_)();
  plan_next();
}

void nemesis::cut() {
  auto& c = any_client();
  if (!victims_.net.open(c.connection()))
    return;
  world_.trace("link is cut", {c.process()});
  world_.count("fault: cut link");
  victims_.net.cut(c.connection());
}

void nemesis::erase() {
  const auto owner = victims_.serving.erase_something();
  if (owner == 0 || !random_.one_in(2))
    return;
  // Without its leases, the slot is fenced while it is read.
  for (auto* c : victims_.clients)
    if (c->owner() == owner)
      c->leave();
}

void nemesis::slow() {
  const auto which = random_.one_in(2) ? node_process : any_client().process();
  world_.trace("process is slow", {which});
  world_.count("fault: slow process");
  victims_.net.slow_down(which, random_.number(2, 8), random_.skewed_time(milliseconds(10), seconds(1)));
}

void nemesis::pause(process_number which) {
  // As much time to work as it was paused for, or nothing else would happen in this world.
  if (world_.now() < rested_at_[which])
    return;
  world_.trace("process is paused", {which});
  world_.count(which == node_process ? "fault: paused node" : "fault: paused client");
  const auto how_long = random_.skewed_time(milliseconds(1), seconds(4));
  rested_at_[which] = world_.now() + 2 * how_long;
  victims_.net.pause(which, how_long);
}

void nemesis::kill_client() {
  auto& c = any_client();
  if (!c.running())
    return;
  world_.count("fault: killed client");
  c.kill();
  restart_client(c, random_.skewed_time(milliseconds(1), seconds(1)));
}

void nemesis::restart_client(client& which, duration after) {
  world_.schedule.after(after, [this, &which] {
    if (!world_.winding_down)
      victims_.start_client(which);
  });
}

void nemesis::kill_node() {
  if (!victims_.serving.running())
    return;
  world_.count("fault: killed node");
  victims_.serving.kill();
  restart_node(random_.skewed_time(milliseconds(1), seconds(2)));
}

void nemesis::drain_node() {
  if (!victims_.serving.running())
    return;
  world_.count("fault: drained node");
  victims_.serving.drain(random_.skewed_time(milliseconds(1), seconds(1)));
  restart_node(random_.skewed_time(milliseconds(10), seconds(3)));
}

void nemesis::restart_node(duration after) {
  world_.schedule.after(after, [this, number = ++restarts_] {
    if (number != restarts_)
      return; // killed while it drained, and planned anew
    // A drain that takes longer than that is cut short.
    victims_.serving.kill();
    victims_.serving.start();
  });
}

} // namespace troupe::simulation
