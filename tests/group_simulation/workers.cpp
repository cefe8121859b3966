#include "tests/group_simulation/workers.hpp"

#include <algorithm>
#include <utility>

namespace troupe::group_simulation {

namespace {

connector::worker_options options_of(world& w, std::uint32_t worker, std::uint32_t group) {
  connector::worker_options out;
  out.blocks_per_page = w.made.blocks_per_page(group);
  out.writer = !w.made.replicated || worker % w.made.workers_of_group() == 0;
  out.task_keys_max = w.random.number(1, 4);
  out.tasks_max = w.random.number(1, 4);
  return out;
}

} // namespace

group_half::group_half(world& w, cache& c, std::uint32_t worker, std::uint32_t group)
    : world_(w), cache_(c), worker_(worker), group_(group), options_(options_of(w, worker, group)), state_(options_) {}

void group_half::handle_preemptions(const connector::connector_metadata& metadata) {
  state_.handle_preemptions(metadata.preempted, world_.now());
  flush();
}

void group_half::start_load_kv(void*) {
  state_.start_load_kv(world_.now());
  flush();
}

void group_half::wait_for_save(void*) {
  state_.wait_for_save(world_.now());
  flush();
}

void group_half::flush() {
  for (auto& effect : state_.take_outbox()) {
    if (const auto* x = std::get_if<connector::submit_load>(&effect)) {
      cache_.load(worker_, group_, x->work,
                  [this, tag = x->tag](const result<transfer_result>& outcome) { ended(tag, outcome); });
    } else if (const auto* y = std::get_if<connector::submit_save>(&effect)) {
      cache_.save(worker_, group_, y->work,
                  [this, tag = y->tag](const result<transfer_result>& outcome) { ended(tag, outcome); });
    } else
      world_.broken("engine", "a save is cancelled, although its blocks are held");
  }
}

void group_half::ended(connector::task_tag tag, const result<transfer_result>& outcome) {
  state_.on_task(tag, outcome, world_.now());
  flush();
}

connector::finished_requests group_half::get_finished(std::span<const std::string_view>) {
  auto out = state_.get_finished();
  if (world_.has(defect::forget_failure) && group_ + 1 == world_.made.groups.size())
    out.failed.clear();
  return out;
}

std::vector<connector::store_outcome> group_half::build_connector_worker_meta() {
  return state_.take_store_outcomes();
}

void group_half::detach() {
  state_.detach(world_.now());
  flush();
}

void group_half::attach() {
  state_.attach(options_);
  flush();
}

group_worker make_worker(world& w, cache& c, std::uint32_t worker) {
  group_worker out;
  std::vector<std::unique_ptr<connector::worker_half>> halves;
  for (std::uint32_t g = 0; g < w.made.groups.size(); ++g) {
    if (!w.made.has_group(worker, g)) {
      halves.push_back(nullptr);
      continue;
    }
    auto half = std::make_unique<group_half>(w, c, worker, g);
    out.groups.push_back(half.get());
    halves.push_back(std::move(half));
  }
  out.half = std::make_unique<connector::grouped_worker_half>(std::move(halves),
                                                              connector::grouped_worker_half::token_count{});
  return out;
}

} // namespace troupe::group_simulation
