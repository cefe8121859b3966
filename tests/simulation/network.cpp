#include "tests/simulation/network.hpp"

#include <algorithm>

namespace troupe::simulation {

std::string address::name() const {
  static constexpr std::array<const char*, 10> roles{"supervisor", "shard", "allocator", "worker", "link",
                                                     "lookup",     "load",  "save",      "copier", "engine"};
  auto text = process == node_process ? std::string("node") : "client" + std::to_string(process);
  return text.append(".").append(roles[static_cast<std::size_t>(what)]).append(std::to_string(index));
}

network::network(environment& world) : world_(world), random_(world.random.fork()) {}

// -- processes --------------------------------------------------------------------------------------------------------

void network::start(process_number which) {
  processes_[which].up = true;
}

void network::kill(process_number which) {
  auto& p = processes_[which];
  p.up = false;
  ++p.incarnation;
  p.paused_until = timestamp::min();
  std::erase_if(debts_, [&](const auto& x) { return x.second.by.process == which; });
  std::vector<connection_id> lost;
  for (const auto& [id, c] : connections_)
    if (which == node_process || c.client == which)
      lost.push_back(id);
  std::sort(lost.begin(), lost.end());
  for (const auto id : lost)
    cut(id);
}

void network::pause(process_number which, duration how_long) {
  auto& p = processes_[which];
  if (p.paused_until > world_.now())
    return;
  p.paused += how_long;
  p.paused_until = world_.now() + how_long;
}

void network::slow_down(process_number which, std::uint32_t factor, duration how_long) {
  processes_[which].slow_until = world_.now() + how_long;
  processes_[which].slow_factor = factor;
}

// -- connections ------------------------------------------------------------------------------------------------------

connection_id network::connect(process_number client, std::function<void()> client_down,
                               std::function<void()> node_down) {
  if (!up(node_process))
    return local;
  connections_.emplace(++last_connection_, connection{client, std::move(client_down), std::move(node_down)});
  return last_connection_;
}

void network::cut(connection_id which) {
  const auto i = connections_.find(which);
  if (i == connections_.end())
    return;
  const auto gone = std::move(i->second);
  connections_.erase(i);
  const auto notice = [this] { return random_.skewed_time(world_.p.notice_min, world_.p.notice_max); };
  if (up(gone.client))
    after(gone.client, notice(), gone.client_down);
  if (up(node_process))
    after(node_process, notice(), gone.node_down);
}

// -- messages ---------------------------------------------------------------------------------------------------------

void network::plan(process_number where, timestamp when, connection_id via, std::function<void()> run) {
  world_.schedule.at(when, [this, where, via, run = std::move(run), incarnation = processes_[where].incarnation,
                            arrived = false]() mutable {
    const auto& p = processes_[where];
    // What has arrived is handled, even if the connection is cut while the process is paused.
    if (p.incarnation != incarnation || (!arrived && via != local && !open(via))) {
      world_.schedule.idle();
      return;
    }
    arrived = true;
    if (p.paused_until > world_.now())
      world_.schedule.postpone(p.paused_until);
    else
      run();
  });
}

duration network::delay(const address& from, const address& to) {
  const auto most = from.process == to.process ? world_.p.local_delay : world_.p.network_delay;
  auto out = random_.skewed_time(std::chrono::microseconds(1), most);
  for (const auto which : {from.process, to.process})
    if (processes_[which].slow_until > world_.now())
      out *= processes_[which].slow_factor;
  return out;
}

bool network::overtakes(const address& from, const address& to) const noexcept {
  return world_.has(defect::unordered) && from.what == role::shard && to.what == role::allocator;
}

void network::send(const address& from, const address& to, connection_id via, std::string_view what,
                   std::function<void()> handle) {
  if (via != local && !open(via))
    return;
  auto when = world_.now() + delay(from, to);
  if (!overtakes(from, to)) {
    auto& last = last_arrival_[(from.packed() << 32U) | to.packed()];
    when = last = std::max(last, when);
  }
  plan(to.process, when, via, [this, from, to, what, handle = std::move(handle)] {
    world_.trace(what, {from.packed(), to.packed()}, world_.verbose() ? from.name() + " -> " + to.name() : "");
    handle();
  });
}

void network::after(process_number where, duration delay, std::function<void()> ring, std::function<bool()> wanted) {
  if (!wanted) {
    plan(where, world_.now() + delay, local, std::move(ring));
    return;
  }
  plan(where, world_.now() + delay, local, [this, ring = std::move(ring), wanted = std::move(wanted)] {
    if (wanted())
      ring();
    else
      world_.schedule.idle();
  });
}

std::uint64_t network::owe(const address& from, std::string_view what) {
  debts_.emplace(++last_debt_, debt{from, what});
  return last_debt_;
}

bool network::pay(std::uint64_t number, const address& from, std::string_view what) {
  if (debts_.erase(number) > 0)
    return true;
  world_.fail("answers", std::string(what).append(" at ").append(from.name()).append(" is answered twice"));
  return false;
}

std::string network::unanswered() const {
  if (debts_.empty())
    return {};
  const auto first =
      std::min_element(debts_.begin(), debts_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return std::string(first->second.what) + " at " + first->second.by.name() + " was never answered";
}

} // namespace troupe::simulation
