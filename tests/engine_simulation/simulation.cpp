#include "tests/engine_simulation/simulation.hpp"

#include <algorithm>

namespace troupe::engine_simulation {

simulation::simulation(const plan& p, defect built_in, bool verbose)
    : plan_(p), world_(p, built_in, verbose), memory_(world_), cache_(world_, memory_), scheduler_(world_, cache_) {
  std::vector<connector::worker_half*> halves;
  for (std::uint32_t i = 0; i < p.workers(); ++i)
    halves.push_back(workers_.emplace_back(std::make_unique<sim_worker_half>(world_, cache_, i)).get());
  cache_.connect(*this);
  engine_ = std::make_unique<engine::engine_model>(p.engine, scheduler_, halves, memory_);
  checks_ = std::make_unique<checks>(world_, cache_, memory_, *engine_, scheduler_);
  scheduler_.observe(*checks_);
}

simulation::~simulation() = default;

void simulation::lookup_answered(std::uint64_t lookup, const result<lookup_result>& answer) {
  scheduler_.lookup_answered(lookup, answer);
}

void simulation::task_ended(std::uint32_t worker, connector::task_tag tag, const result<transfer_result>& ended) {
  workers_[worker]->task_ended(tag, ended);
}

void simulation::cancel_answered(std::uint32_t worker) {
  workers_[worker]->cancel_answered();
}

outcome simulation::run() {
  auto next = plan_.actions.begin();
  for (; world_.step < plan_.steps && !world_.failed(); ++world_.step) {
    start_windows();
    for (; next != plan_.actions.end() && next->step <= world_.step; ++next)
      act(*next);
    take_step();
  }
  world_.rates = {};
  cache_.start_node();
  if (!world_.failed() && plan_.shut_down)
    shut_down();
  if (!world_.failed())
    drain();
  count_statistics();
  return {plan_.seed,     engine_->statistics().steps, world_.trace_hash(), world_.property(), world_.failure(),
          world_.counts()};
}

void simulation::start_windows() {
  world_.rates = {};
  for (const auto& x : plan_.actions)
    if (x.what == action::kind::disturb && x.step <= world_.step && world_.step < x.until) {
      auto& rate = world_.rates[static_cast<std::size_t>(x.which)];
      rate = std::max(rate, x.rate_ppm);
    }
  if (node_back_ <= world_.step)
    cache_.start_node();
}

void simulation::act(const action& x) {
  switch (x.what) {
  case action::kind::add: {
    if (!engine_->add(x.request))
      return;
    world_.trace("arrives", x.request.id, x.request.prompt.size());
    if (std::find(names_.begin(), names_.end(), x.request.id) != names_.end())
      world_.count(seen::name_used_again);
    else
      names_.push_back(x.request.id);
    return;
  }
  case action::kind::abort:
    return abort(x.id);
  case action::kind::disturb:
    return;
  case action::kind::kill_node:
    world_.trace("node killed", "");
    cache_.kill_node(x.loses_index);
    node_back_ = std::max(node_back_, x.until);
    return;
  case action::kind::evict_all:
    return cache_.evict_all();
  case action::kind::reset_cache:
    world_.trace("reset", "");
    world_.count(seen::cache_reset);
    engine_->reset_prefix_cache(x.reset_running);
    scheduler_.reset_cache();
    return;
  case action::kind::reset_prefix_cache:
    world_.trace("prefixes reset", "", x.reset_running ? 1 : 0);
    world_.count(engine_->reset_prefix_cache(x.reset_running) ? seen::prefix_cache_reset : seen::prefix_cache_kept);
    return;
  }
}

void simulation::abort(const std::string& id) {
  const auto* r = engine_->find(id);
  if (r == nullptr || r->finished())
    return;
  world_.trace("abort", id);
  const auto loading = r->status == engine::request_status::waiting_for_remote_kvs && !r->received;
  world_.count(loading                                        ? seen::abort_during_load
               : r->status == engine::request_status::running ? seen::abort_running
                                                              : seen::abort_waiting);
  engine_->abort(id);
}

void simulation::take_step() {
  const auto tokens = engine_->step();
  world_.trace("step", "", tokens, engine_->schedule().running().size());
  checks_->check_events(scheduler_.take_events());
  checks_->quiet_moment();
}

void simulation::drain() {
  // Each request needs a step per token at most, several times over if it is preempted, and some for its transfers.
  const auto last = world_.step + 4000;
  for (; !engine_->idle() && world_.step < last && !world_.failed(); ++world_.step) {
    take_step();
    if (engine_->schedule().running().empty())
      cache_.advance(tick * plan_.cache.delay_max);
  }
  if (!world_.failed() && !engine_->idle())
    return world_.fail("P0", "requests do not end: " + engine_->schedule().requests().begin()->first + " and " +
                                 std::to_string(engine_->schedule().requests().size() - 1) + " others");
  // Reports come with a step. No request waits for this one any more.
  for (std::uint32_t i = 0; i < 1000 && !world_.failed() && (!cache_.quiet() || i < 3); ++i, ++world_.step) {
    while (cache_.next())
      ;
    take_step();
  }
  if (!world_.failed())
    check_end();
}

void simulation::check_end() {
  const auto none = [&](std::size_t n, const std::string& what) {
    if (n > 0)
      world_.fail("P0", std::to_string(n) + " " + what + " are left in the end");
  };
  none(engine_->pool().capacity() - engine_->pool().free_blocks(), "blocks that are not free");
  none(scheduler_.tracked_requests(), "requests of the scheduler half");
  none(scheduler_.state().leases_held(), "leases");
  none(checks_->pages_being_saved(), "pages that events say to be saved");
  for (const auto& x : workers_)
    none(x->state().tasks_outstanding() + x->state().sessions(), "tasks or sessions of a worker half");
  none(cache_.tasks_under_way(), "tasks of the cache");
  const auto& s = engine_->statistics();
  if (plan_.calm && !plan_.shut_down && s.loads_failed > 0)
    world_.fail("calm", std::to_string(s.loads_failed) + " loads have failed, although nothing was wrong");
}

void simulation::shut_down() {
  for (const auto& x : workers_) {
    if (x->state().tasks_outstanding() > 0)
      world_.count(seen::shut_down_while_busy);
    x->shutdown();
  }
  // Everything ends, although the engine takes no step meanwhile.
  while (cache_.next())
    ;
  for (const auto& x : workers_)
    if (x->state().tasks_outstanding() > 0)
      world_.fail("P0", "a worker half that is shut down has tasks left");
}

void simulation::count_statistics() {
  const auto& s = engine_->statistics();
  world_.count(seen::load_after_preemption, s.loads_after_preemption);
  world_.count(seen::late_output_of_preempted, s.outputs_of_preempted);
  world_.count(seen::hit_without_blocks, s.hits_without_blocks);
  world_.count(seen::hit_declined, s.hits_declined);
  world_.count(seen::drafts_rejected, s.rejected_drafts);
  world_.count(seen::step_without_tokens, s.steps_without_tokens);
  world_.count(seen::synchronous_load, s.loads_synchronous);
  world_.count(seen::synchronous_load_failed, s.loads_synchronous_failed);
  world_.count(seen::shared_load_failed, s.shared_loads_failed);
  world_.count(seen::request_failed, s.requests_failed);
  world_.count(seen::back_in_the_same_step, s.resumed_in_the_same_step);
}

outcome run(const plan& p, defect built_in, bool verbose) {
  return simulation(p, built_in, verbose).run();
}

plan shrink(const plan& failing, defect built_in, const std::string& property) {
  auto best = failing;
  const auto still_fails = [&](const plan& x) { return run(x, built_in, false).property == property; };
  for (auto width = std::max<std::size_t>(best.actions.size() / 2, 1);;) {
    bool smaller = false;
    for (std::size_t first = 0; first < best.actions.size();) {
      auto tried = best;
      const auto last = std::min(first + width, best.actions.size());
      tried.actions.erase(tried.actions.begin() + static_cast<std::ptrdiff_t>(first),
                          tried.actions.begin() + static_cast<std::ptrdiff_t>(last));
      if (still_fails(tried)) {
        best = std::move(tried);
        smaller = true;
      } else
        first = last;
    }
    if (width == 1 && !smaller)
      return best;
    width = std::max<std::size_t>(width / 2, 1);
  }
}

} // namespace troupe::engine_simulation
