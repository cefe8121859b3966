#include "tests/simulation/world.hpp"

#include <algorithm>

namespace troupe::simulation {

using std::chrono::seconds;

namespace {

/// Full scans are made after every so many events.
constexpr std::uint64_t scan_interval = 16;

} // namespace

world::world(const run_options& options)
    : options_(options), env_(options.seed, options.built_in, options.verbose), net_(env_), node_(env_, net_) {
  for (std::uint32_t i = 0; i < env_.p.clients; ++i) {
    add_client();
    victims_.push_back(clients_.back().get());
  }
  nemesis_ = std::make_unique<nemesis>(env_, victims{net_, node_, victims_, [this](client& which) {
                                                       which.start();
                                                       workloads_[which.process() - 1]->start();
                                                     }});
}

void world::add_client() {
  clients_.push_back(std::make_unique<client>(env_, net_, node_, static_cast<process_number>(clients_.size() + 1)));
  workloads_.push_back(std::make_unique<workload>(env_, *clients_.back()));
}

outcome world::run() {
  env_.trace("seed", {options_.seed}, env_.p.describe());
  run_steps();
  const auto steps = events_;
  env_.winding_down = true;
  env_.trace("winding down");
  await_answers();
  await_rest();
  dismiss_clients();
  use_every_slot();
  return {options_.seed,   steps,          events_,       env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(), env_.p.describe()};
}

// -- steps and checks -------------------------------------------------------------------------------------------------

void world::step() {
  if (!env_.schedule.run_next())
    return;
  ++events_;
  check_often();
  if (events_ % scan_interval == 0)
    check_rarely();
}

void world::check_often() {
  if (auto wrong = node_.check_counts(); !wrong.empty())
    env_.fail("counts", std::move(wrong));
  for (const auto& c : clients_)
    if (auto wrong = c->check_counts(); !wrong.empty())
      env_.fail("counts", std::move(wrong));
}

void world::check_rarely() {
  node_.check_all();
}

bool world::run_for(duration time) {
  const auto until = env_.now() + time;
  while (!env_.failed() && !env_.schedule.empty() && env_.schedule.next_time() <= until)
    step();
  env_.schedule.wait_until(until);
  return !env_.failed();
}

std::string world::run_until(const std::function<std::string()>& wrong, duration limit) {
  const auto until = env_.now() + limit;
  for (;;) {
    auto text = wrong();
    if (text.empty() || env_.now() >= until || !run_for(std::chrono::milliseconds(200)))
      return text;
  }
}

void world::run_steps() {
  node_.start();
  for (std::size_t i = 0; i < victims_.size(); ++i) {
    clients_[i]->start();
    workloads_[i]->start();
  }
  nemesis_->start();
  while (!env_.failed() && events_ < options_.steps)
    step();
}

// -- the end ----------------------------------------------------------------------------------------------------------

duration world::longest_hold() const {
  const auto& p = env_.p;
  // Coordinators ask for holds of up to five seconds beyond a task's deadline. Whatever began last has waited for
  // slots, then waited for its time to run out, and was then given back in portions.
  return p.task_deadline_max + p.take_time + std::max(p.lease_max, p.reservation_max) + 3 * p.request_timeout +
         p.io_deadline + p.hang_time + seconds(8);
}

std::string world::still_waiting() const {
  for (std::size_t i = 0; i < victims_.size(); ++i)
    if (clients_[i]->running() && workloads_[i]->waiting() > 0)
      return "client " + std::to_string(i + 1) + ": " + std::to_string(workloads_[i]->waiting()) +
             " requests are not answered";
  return {};
}

std::string world::still_held() const {
  for (process_number which = 0; which < processes_max; ++which)
    if (net_.is_paused(which))
      return "a process is paused";
  if (auto wrong = node_.check_at_rest(); !wrong.empty())
    return wrong;
  for (const auto& c : clients_)
    if (auto wrong = c->check_at_rest(); !wrong.empty())
      return wrong;
  return {};
}

void world::await_answers() {
  const auto& p = env_.p;
  // A node that was killed or is draining comes back by itself, and whoever is paused goes on.
  const auto limit = std::max<duration>(p.task_deadline_max, 3 * p.request_timeout) + p.notice_max + seconds(8);
  if (auto wrong = run_until([this] { return still_waiting(); }, limit); !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
}

void world::await_rest() {
  if (env_.failed())
    return;
  if (auto wrong = run_until([this] { return still_held(); }, longest_hold()); !wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
  check_rarely();
}

void world::dismiss_clients() {
  // One half says goodbye, the other dies.
  for (std::size_t i = 0; i < victims_.size(); i += 2)
    clients_[i]->retire();
  if (!run_for(seconds(1)))
    return;
  for (auto* c : victims_)
    c->kill();
  const auto wrong = run_until(
      [this] { return node_.clients() > 0 ? "the node believes in clients that are gone" : node_.check_at_rest(); },
      env_.p.notice_max + seconds(2));
  if (!wrong.empty())
    env_.fail("rest", "at the end: " + wrong);
  if (auto owed = net_.unanswered(); !owed.empty())
    env_.fail("answers", "at the end: " + owed);
}

void world::use_every_slot() {
  if (env_.failed())
    return;
  // Told, gathered, written, answered, committed: where reservations end sooner than that may take, no key is ever
  // stored, and rightly so.
  if (env_.p.reservation_max < 4 * env_.p.network_delay + env_.p.disk_time)
    return;
  // A damaged slab is replaced when the node starts, and not before.
  bool damaged = false;
  for (rank_number rank = 0; rank < env_.p.ranks; ++rank)
    damaged = damaged || node_.disk_of(rank).damaged();
  if (damaged) {
    node_.kill();
    node_.start();
  }
  add_client();
  auto& last = *clients_.back();
  last.start();
  if (auto wrong = run_until([&] { return last.attached() ? "" : "a new client cannot attach"; }, seconds(5));
      !wrong.empty())
    env_.fail("answers", "at the end: " + wrong);
  bool over = false;
  workloads_.back()->fill([&](bool stored) {
    over = true;
    if (!stored)
      env_.fail("room", "at the end: there is no room for new keys, though nobody holds any");
  });
  const auto limit = env_.now() + std::chrono::minutes(30);
  while (!over && !env_.failed() && !env_.schedule.empty() && env_.schedule.next_time() <= limit)
    step();
  if (!over)
    env_.fail("answers", "at the end: a save is not answered");
  check_rarely();
}

} // namespace troupe::simulation
