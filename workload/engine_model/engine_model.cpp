#include "workload/engine_model/engine_model.hpp"

#include "base/identifiers.hpp"

#include <algorithm>

namespace troupe::engine {

engine_model::engine_model(const engine_options& options, connector::scheduler_half& scheduler,
                           std::span<connector::worker_half* const> workers, device& memory)
    : scheduler_(options, scheduler, violations_, statistics_), workers_(workers.begin(), workers.end()),
      memory_(memory), aggregator_(scheduler.get_finished_count()) {}

std::uint32_t engine_model::step() {
  ++statistics_.steps;
  auto& now = under_way_.emplace_back(outcome{scheduler_.schedule(), {}, {}});
  const auto tokens = now.step.total_tokens;
  if (tokens == 0)
    ++statistics_.steps_without_tokens;
  for (auto& x : now.step.parts)
    sample(x);
  std::vector<connector::worker_output> outputs;
  for (std::uint32_t i = 0; i < workers_.size(); ++i)
    outputs.push_back(execute(i, now));
  now.output = aggregator_.aggregate(outputs);
  while (under_way_.size() > (options().async_scheduling ? 1 : 0)) {
    const auto done = std::move(under_way_.front());
    under_way_.pop_front();
    take_output(done);
  }
  return tokens;
}

/// A forward pass that needs a load runs however the load ends. This decides whether its output counts.
void engine_model::take_output(const outcome& done) {
  scheduler_.update_from_output(done.step, done.output);
  bool counts = done.wrong.empty();
  for (const auto& x : done.wrong)
    if (!scheduler_.was_spoilt(x.who)) {
      counts = true;
      violations_.add("P4", x.text);
    }
  memory_.judge(counts);
}

/// Sampling gives the same result on all workers, so it is done once.
void engine_model::sample(step_part& part) {
  auto& r = *part.who;
  part.start = r.worker_computed;
  const auto certain = part.tokens - part.drafts;
  if (part.start + certain < r.worker_tokens) {
    r.worker_computed += certain;
    return;
  }
  part.accepted = accepted_drafts(r.truth.contents[r.worker_tokens - 1], part.drafts);
  part.sampled = part.accepted + 1;
  r.worker_computed = r.worker_tokens + part.accepted;
  r.worker_tokens += part.sampled;
}

connector::worker_output engine_model::execute(std::uint32_t worker, outcome& now) {
  const auto& step = now.step;
  auto& half = *workers_[worker];
  half.handle_preemptions(step.metadata);
  half.bind_connector_metadata(step.metadata);
  if (step.has_sync_kv_loads)
    half.start_load_kv(memory_.written(worker));
  if (step.total_tokens > 0) {
    // One layer represents all: only the order of the hooks matters.
    half.wait_for_layer_load("0");
    for (const auto& x : step.parts)
      forward(worker, x, now.wrong);
    half.save_kv_layer("0");
  }
  if (!step.has_sync_kv_loads)
    half.start_load_kv(memory_.written(worker));
  if (!options().late_saves)
    half.wait_for_save(memory_.written(worker));
  const std::vector<std::string_view> finished(step.finished.begin(), step.finished.end());
  auto named = half.get_finished(finished);
  connector::worker_output out;
  out.sent = std::move(named.sent);
  out.received = std::move(named.received);
  out.failed = std::move(named.failed);
  out.load_errors = half.get_block_ids_with_load_errors();
  out.stores = half.build_connector_worker_meta();
  if (options().late_saves)
    half.wait_for_save(memory_.written(worker));
  half.clear_connector_metadata();
  return out;
}

std::string engine_model::find_wrong(std::uint32_t worker, const step_part& part) {
  const auto& r = *part.who;
  const auto block_tokens = options().block_tokens;
  for (std::uint32_t first = 0; first < part.start; first += block_tokens) {
    const auto block = r.blocks[first / block_tokens];
    if (block == null_block)
      continue; // outside the window
    const auto count = std::min(block_tokens, part.start - first);
    if (!memory_.holds(worker, block, 0, std::span(r.truth.contents).subspan(first, count)))
      return "worker " + std::to_string(worker) + " computes " + r.spec.id + " from position " +
             std::to_string(part.start) + ", and block " + std::to_string(block) +
             " does not hold the KV of positions " + std::to_string(first) + " to " + std::to_string(first + count - 1);
  }
  return {};
}

void engine_model::forward(std::uint32_t worker, const step_part& part, std::vector<wrong_read>& wrong) {
  const auto& r = *part.who;
  const auto block_tokens = options().block_tokens;
  std::string why;
  if (part.first || options().check_every_step)
    why = find_wrong(worker, part);
  // The tokens that are known after the step, without wrong drafts.
  const auto right = part.start + part.tokens - (part.drafts - part.accepted);
  row_.assign(r.truth.contents.begin() + part.start, r.truth.contents.begin() + part.start + part.tokens);
  for (auto i = right - part.start; i < part.tokens; ++i)
    row_[i] = wrong_draft(row_[i]);
  if (!why.empty()) {
    // KV that is computed from wrong KV is wrong.
    for (auto& x : row_)
      x = wrong_draft(x);
    wrong.push_back({part.who.get(), std::move(why)});
  }
  for (std::uint32_t done = 0; done < part.tokens;) {
    const auto position = part.start + done;
    const auto count = std::min(block_tokens - position % block_tokens, part.tokens - done);
    memory_.write_tokens(worker, r.blocks[position / block_tokens], position % block_tokens,
                         std::span(row_).subspan(done, count));
    done += count;
  }
}

std::string engine_model::check_pool() const {
  std::vector<std::uint32_t> held(pool().size());
  for (const auto& [id, r] : scheduler_.requests())
    for (const auto x : r->blocks)
      if (x != null_block)
        ++held[x];
  return pool().check(held);
}

} // namespace troupe::engine
