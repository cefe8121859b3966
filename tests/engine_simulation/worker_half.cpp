#include "tests/engine_simulation/halves.hpp"

#include <algorithm>

namespace troupe::engine_simulation {
namespace {

connector::worker_options options_of(const world& w, std::uint32_t worker) {
  auto out = w.p.worker;
  out.writer = worker % w.p.workers_per_rank == 0;
  return out;
}

} // namespace

sim_worker_half::sim_worker_half(world& w, cache& c, std::uint32_t worker)
    : world_(w), cache_(c), worker_(worker), state_(options_of(w, worker)) {}

void sim_worker_half::pass_time() {
  cache_.advance(tick * static_cast<duration::rep>(world_.draw(dice::hook, worker_, hooks_++) %
                                                   (world_.p.cache.hook_max + std::uint64_t{1})));
}

void sim_worker_half::flush() {
  for (auto& effect : state_.take_outbox()) {
    if (shut_down_ && !std::holds_alternative<connector::cancel_saves>(effect))
      world_.fail("P0", "worker " + std::to_string(worker_) + " begins a transfer after it was shut down");
    if (auto* l = std::get_if<connector::submit_load>(&effect)) {
      loading_[l->tag] = l->work.blocks.items;
      cache_.submit_load(worker_, l->tag, std::move(l->work));
    } else if (auto* s = std::get_if<connector::submit_save>(&effect))
      cache_.submit_save(worker_, s->tag, std::move(s->work));
    else
      cache_.cancel(worker_, std::get<connector::cancel_saves>(effect).tags);
  }
}

void sim_worker_half::bind_connector_metadata(connector::connector_metadata metadata) {
  pass_time();
  bound_ = metadata;
  reported_step_ = false;
  for (const auto& x : metadata.loads) {
    auto& kept = loads_.emplace_back(load{x.id, x.request, x.blocks, x.blocks, {}});
    std::erase(kept.blocks, null_block);
  }
  for (const auto& x : metadata.stores)
    store_keys_[x.id] = x.keys;
  if (world_.has(defect::forget_preemption_wait))
    metadata.preempted.clear();
  state_.bind(std::move(metadata));
}

void sim_worker_half::clear_connector_metadata() {
  state_.clear();
  bound_ = {};
}

void sim_worker_half::handle_preemptions(const connector::connector_metadata& metadata) {
  pass_time();
  if (!world_.has(defect::forget_preemption_wait) && !world_.has(defect::late_preemption))
    state_.handle_preemptions(metadata.preempted, world_.now());
  flush();
  if (!state_.preempting())
    return;
  world_.count(seen::waited_for_cancel);
  while (state_.preempting())
    if (!cache_.next()) {
      world_.fail("P0", "worker " + std::to_string(worker_) + " waits for ever in handle_preemptions");
      return;
    }
}

void sim_worker_half::start_load_kv(void* ready) {
  pass_time();
  state_.start_load_kv(world_.now(), world_.has(defect::forget_load_event) ? 0 : memory::number_of(ready));
  flush();
  if (!world_.has(defect::forget_synchronous_wait))
    wait_for_loads();
}

void sim_worker_half::wait_for_loads() {
  if (state_.synchronous_loads() > 0)
    world_.count(seen::waited_for_load);
  while (state_.synchronous_loads() > 0)
    if (!cache_.next()) {
      world_.fail("P0", "worker " + std::to_string(worker_) + " waits for ever in start_load_kv");
      return;
    }
}

void sim_worker_half::wait_for_save(void* ready) {
  pass_time();
  if (world_.has(defect::lose_late_saves) && reported_step_)
    return;
  state_.wait_for_save(world_.now(), world_.has(defect::forget_save_event) ? 0 : memory::number_of(ready));
  flush();
}

connector::finished_requests sim_worker_half::get_finished(std::span<const std::string_view>) {
  pass_time();
  auto out = state_.get_finished();
  reported_step_ = true;
  if (world_.has(defect::forget_failed_requests))
    out.failed.clear();
  if (world_.has(defect::both_lists))
    for (const auto& x : bound_.finished)
      if (x.received)
        out.sent.push_back(x.request);
  if (world_.has(defect::never_sent))
    out.sent.clear();
  if (world_.has(defect::sent_early)) {
    out.sent.clear();
    for (const auto& x : bound_.finished)
      if (!x.received)
        out.sent.push_back(x.request);
  }
  named_ = out.received;
  failed_ = out.failed;
  for (const auto& x : out.sent)
    world_.trace("sent", x, worker_);
  for (const auto& x : out.received)
    world_.trace("received", x, worker_);
  return out;
}

std::vector<connector::block_id> sim_worker_half::get_block_ids_with_load_errors() {
  auto out = state_.take_load_errors();
  if (world_.has(defect::swallow_load_errors))
    out.clear();
  if (world_.has(defect::late_load_errors))
    out = std::exchange(late_errors_, std::move(out));
  for (const auto x : out)
    if (std::none_of(loads_.begin(), loads_.end(),
                     [&](const load& l) { return std::find(l.blocks.begin(), l.blocks.end(), x) != l.blocks.end(); }))
      world_.fail("reports", "worker " + std::to_string(worker_) + " reports an error of block " + std::to_string(x) +
                                 ", which no load was to fill");
  reported_.insert(reported_.end(), out.begin(), out.end());
  check_reports();
  return out;
}

/// A request that is reported as received has reported all of its unfilled blocks, now or before, and no others.
void sim_worker_half::check_reports() {
  for (const auto& name : std::exchange(named_, {})) {
    const auto i =
        std::find_if(loads_.begin(), loads_.end(), [&](const load& x) { return x.id == 0 && x.request == name; });
    if (i == loads_.end()) {
      world_.fail("reports", "worker " + std::to_string(worker_) + " names " + name + " as received without a load");
      continue;
    }
    check_load(*i, std::find(failed_.begin(), failed_.end(), name) != failed_.end());
    loads_.erase(i);
  }
}

void sim_worker_half::check_load(const load& x, bool said_to_have_failed) {
  for (const auto block : x.blocks) {
    const auto failed = std::find(x.filled.begin(), x.filled.end(), block) == x.filled.end();
    const auto said = std::find(reported_.begin(), reported_.end(), block) != reported_.end();
    if (failed != said)
      world_.fail("reports", "worker " + std::to_string(worker_) + " says that the load of " + x.request +
                                 " has ended, and block " + std::to_string(block) +
                                 (failed ? ", which was not filled, is not among the errors"
                                         : ", which was filled, is among the errors"));
    std::erase(reported_, block);
  }
  if ((x.filled.size() < x.blocks.size()) != said_to_have_failed)
    world_.fail("failed", "worker " + std::to_string(worker_) + " says that the load of " + x.request + " has " +
                              (said_to_have_failed ? "failed, and every block is filled"
                                                   : "not failed, and a block is not filled"));
  if (x.filled.size() < x.blocks.size())
    world_.count(x.filled.empty() ? seen::load_failed_as_a_whole : seen::load_failed_in_part);
}

/// Page by page.
bool sim_worker_half::check_synchronous(const connector::store_outcome& x) {
  const auto i = std::find_if(loads_.begin(), loads_.end(), [&](const load& l) { return l.id == x.id; });
  if (i == loads_.end())
    return false;
  const auto per_page = static_cast<std::ptrdiff_t>(world_.p.worker.blocks_per_page);
  bool whole = true;
  for (std::size_t k = 0; k < x.stored.size(); ++k) {
    const auto first = i->listed.begin() + static_cast<std::ptrdiff_t>(k) * per_page;
    const auto filled = std::all_of(first, first + per_page, [&](auto block) {
      return block == null_block || std::find(i->filled.begin(), i->filled.end(), block) != i->filled.end();
    });
    whole = whole && x.stored[k] == 1;
    if (x.stored[k] == 1 && !filled)
      world_.fail("reports", "worker " + std::to_string(worker_) + " reports a page as loaded that is not");
  }
  check_load(*i, !whole);
  loads_.erase(i);
  return true;
}

std::vector<connector::store_outcome> sim_worker_half::build_connector_worker_meta() {
  pass_time();
  auto out = state_.take_store_outcomes();
  for (const auto& x : out) {
    if (check_synchronous(x))
      continue;
    const auto keys = store_keys_.find(x.id);
    for (std::size_t i = 0; keys != store_keys_.end() && i < x.stored.size(); ++i)
      if (x.stored[i] != 0 && !cache_.was_stored(keys->second[i], worker_))
        world_.fail("reports", "worker " + std::to_string(worker_) + " reports a page as stored that never was");
    store_keys_.erase(x.id);
  }
  return out;
}

void sim_worker_half::shutdown() {
  state_.close(world_.now());
  flush();
  shut_down_ = true;
}

void sim_worker_half::task_ended(connector::task_tag tag, const result<transfer_result>& outcome) {
  const auto found = loading_.find(tag);
  if (found != loading_.end()) {
    const auto& blocks = found->second;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const auto i = b / world_.p.worker.blocks_per_page;
      if (blocks[b] == null_block || !outcome || outcome->results[i] != static_cast<std::uint8_t>(errc::ok))
        continue;
      for (auto& x : loads_)
        if (std::find(x.blocks.begin(), x.blocks.end(), blocks[b]) != x.blocks.end())
          x.filled.push_back(blocks[b]);
    }
    loading_.erase(found);
  }
  state_.on_task(tag, outcome, world_.now());
  flush();
}

void sim_worker_half::cancel_answered() {
  state_.on_cancelled(world_.now());
  flush();
}

} // namespace troupe::engine_simulation
