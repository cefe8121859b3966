#include "tests/simulation/foreign_world.hpp"

#include <algorithm>

namespace troupe::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// Full scans are made after every so many events.
constexpr std::uint64_t scan_interval = 16;

} // namespace

foreign_world::foreign_world(const run_options& options)
    : options_(options), env_(options.seed, options.built_in, options.verbose),
      p_(make_foreign_parameters(env_.random.fork())), net_(env_), node_(env_, net_, p_), traffic_(env_, node_),
      random_(env_.random.fork()) {
  for (process_number i = 1; i <= p_.clients + 1; ++i)
    clients_.push_back(std::make_unique<foreign_client>(env_, net_, node_, traffic_, p_, i));
}

outcome foreign_world::run() {
  env_.trace("seed", {options_.seed}, p_.describe());
  node_.start();
  for (std::uint32_t i = 0; i < p_.clients; ++i)
    clients_[i]->start();
  plan_nemesis();
  while (!env_.failed() && events_ < options_.steps)
    step();
  const auto steps = events_;
  env_.winding_down = true;
  env_.trace("winding down");
  come_to_rest();
  use_every_slot();
  return {options_.seed,   steps,          events_,       env_.trace_hash(),
          env_.property(), env_.failure(), env_.counts(), p_.describe()};
}

void foreign_world::step() {
  if (!env_.schedule.run_next())
    return;
  ++events_;
  if (auto wrong = node_.check_counts(); !wrong.empty())
    env_.fail(std::move(wrong));
  if (events_ % scan_interval == 0)
    check_rarely();
}

void foreign_world::check_rarely() {
  if (auto wrong = node_.check_all(); !wrong.empty())
    env_.fail(std::move(wrong));
}

std::string foreign_world::run_until(const std::function<std::string()>& wrong, duration limit) {
  const auto until = env_.now() + limit;
  for (;;) {
    auto text = wrong();
    if (text.empty() || env_.failed() || env_.now() >= until)
      return text;
    const auto pause = env_.now() + milliseconds(100);
    while (!env_.failed() && !env_.schedule.empty() && env_.schedule.next_time() <= pause)
      step();
    env_.schedule.wait_until(pause);
  }
}

// -- what befalls them ------------------------------------------------------------------------------------------------

void foreign_world::plan_nemesis() {
  env_.schedule.after(random_.skewed_time(milliseconds(10), p_.nemesis_interval), [this] { strike(); });
}

void foreign_world::strike() {
  if (env_.winding_down)
    return env_.schedule.idle();
  auto& client = *clients_[random_.below(p_.clients)];
  switch (random_.below(3)) {
  case 0:
    if (p_.cut && net_.open(client.connection())) {
      env_.count("fault: cut link");
      net_.cut(client.connection());
    }
    break;
  case 1:
    if (p_.kill_client && client.running())
      kill_client(client);
    break;
  default:
    if (p_.kill_node && node_.running())
      kill_node();
  }
  plan_nemesis();
}

void foreign_world::kill_client(foreign_client& which) {
  env_.count("fault: killed client");
  which.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), seconds(1)), [this, &which] {
    if (!env_.winding_down)
      which.start();
  });
}

void foreign_world::kill_node() {
  env_.count("fault: killed node");
  node_.kill();
  env_.schedule.after(random_.skewed_time(milliseconds(1), milliseconds(500)), [this] {
    node_.start();
    traffic_.node_restarted();
  });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void foreign_world::come_to_rest() {
  if (env_.failed())
    return;
  // Whoever has asked last, and repeats it, is promised time once more.
  const auto limit = 4 * p_.request_timeout + 3 * p_.promised() + p_.rest + seconds(4);
  if (auto wrong = run_until([this] { return node_.check_at_rest(); }, limit); !wrong.empty())
    env_.fail("at the end: " + wrong);
  check_rarely();
  for (const auto& c : clients_)
    c->kill();
  if (auto owed = net_.unanswered(); !owed.empty())
    env_.fail("at the end: " + owed);
}

void foreign_world::use_every_slot() {
  if (env_.failed())
    return;
  auto& last = *clients_.back();
  last.start();
  pass_time(p_.promised() + seconds(1));
  fill();
  // Now all that children hold back has been looked at, and is held no longer than this.
  pass_time(p_.children_hold + seconds(1));
  fill();
  if (env_.failed())
    return;
  for (const auto& key : node_.keys())
    if (!last.has_filled(key))
      env_.fail("eviction", "at the end: key " + to_string(key) + " stays, though nobody uses it and others go");
  check_rarely();
}

void foreign_world::pass_time(duration time) {
  (void)run_until([] { return "not yet"; }, time);
}

void foreign_world::fill() {
  bool over = false;
  const auto limit = p_.children_hold + p_.promised() + p_.rest + seconds(10);
  clients_.back()->fill(3 * p_.ranks * p_.slots, limit, [&] { over = true; });
  if (auto wrong = run_until([&] { return over ? "" : "a save is not answered"; }, std::chrono::minutes(30));
      !wrong.empty())
    env_.fail("at the end: " + wrong);
}

} // namespace troupe::simulation
