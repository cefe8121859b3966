#include "tests/simulation/process.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>

namespace troupe::simulation {

struct process::config : caf::actor_system_config {
  config() {
    register_messages(*this);
    set("scheduler.policy", caf::atom("testing"));
  }
};

process::process(environment& world, std::string name)
    : world_(world), name_(std::move(name)), config_(std::make_unique<config>()),
      system_(std::make_unique<caf::actor_system>(*config_)),
      scheduler_(dynamic_cast<caf::scheduler::test_coordinator*>(&system_->scheduler())) {
  scheduler_->clock().current_time = world_.now();
  caf::node_id::default_data::host_id_type host{};
  host.fill(1);
  node_ = caf::make_node_id(++world_.processes, host);
}

process::~process() {
  for (const auto& x : roots_)
    caf::anon_send_exit(x, caf::exit_reason::kill);
  roots_.clear();
  while (scheduler_->try_run_once()) {
  }
  if (over())
    return;
  // The actor system would wait for them for ever.
  std::fprintf(stderr, "%zu actors of %s do not end\n", system_->registry().running(), name_.c_str());
  std::abort();
}

bool process::pause(duration how_long) {
  if (world_.now() < paused_until_ + last_pause_)
    return false;
  last_pause_ = how_long;
  paused_until_ = world_.now() + how_long;
  paused_in_all_ += how_long;
  return true;
}

std::uint64_t process::turn(random_source& random) {
  auto& jobs = scheduler_->jobs;
  const auto next = jobs.begin() + static_cast<std::ptrdiff_t>(random.below(jobs.size()));
  std::rotate(jobs.begin(), next, next + 1);
  const auto* actor = dynamic_cast<caf::abstract_actor*>(jobs.front());
  const auto number = actor == nullptr ? 0 : actor->id();
  scheduler_->try_run_once();
  return number;
}

std::optional<timestamp> process::next_timer() const {
  const auto& timers = scheduler_->clock().schedule();
  if (timers.empty())
    return std::nullopt;
  return std::max(timers.begin()->first, paused_until_);
}

void process::wind() {
  if (paused())
    return;
  auto& clock = scheduler_->clock();
  // Also where no time has passed: a timer may be set for the present.
  if (const auto passed = world_.now() - clock.current_time; passed >= duration::zero())
    clock.advance_time(passed);
}

process::hurry::hurry(process& in, random_source& random, std::function<void()> quiesced)
    : in_(in), random_(random), quiesced_(std::move(quiesced)) {
  expect_more();
  work();
}

process::hurry::~hurry() {
  in_.scheduler_->after_next_enqueue(std::function<void()>());
}

void process::hurry::expect_more() {
  in_.scheduler_->after_next_enqueue([this] {
    expect_more();
    work();
  });
}

void process::hurry::work() {
  if (std::exchange(working_, true))
    return; // sent by an actor that is at work
  while (!in_.scheduler_->jobs.empty())
    in_.turn(random_);
  if (quiesced_)
    quiesced_();
  working_ = false;
}

void process::leave() {
  for (const auto& x : roots_)
    caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
}

} // namespace troupe::simulation
