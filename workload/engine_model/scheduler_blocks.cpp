#include "base/identifiers.hpp"
#include "workload/engine_model/scheduler.hpp"

#include <algorithm>
#include <utility>

// The scheduler's handling of blocks, and of the outcome of requests.

namespace troupe::engine {

std::vector<block_id> scheduler::get_computed_blocks(const request& r) const {
  std::vector<block_id> out;
  if (!options_.enable_prefix_caching)
    return out;
  // The last token is always computed, for its output.
  for (auto end = options_.block_tokens; end <= r.num_tokens - 1; end += options_.block_tokens) {
    const auto block = pool_.find(r.truth.contents[end - 1]);
    if (!block)
      break;
    out.push_back(*block);
  }
  if (options_.sliding_window > 0) {
    const auto reach = blocks_for(options_.sliding_window - 1);
    for (std::size_t i = 0; i + reach < out.size(); ++i)
      out[i] = null_block;
  }
  return out;
}

bool scheduler::allocate(request& r, const std::vector<block_id>& hits, std::uint32_t tokens) {
  const auto needed = blocks_for(tokens);
  const auto held = r.blocks.size() + hits.size();
  const auto more = needed > held ? needed - held : 0;
  const auto unheld =
      std::count_if(hits.begin(), hits.end(), [&](auto x) { return x != null_block && pool_.references(x) == 0; });
  if (more + static_cast<std::size_t>(unheld) > pool_.free_blocks())
    return false;
  for (const auto x : hits) {
    if (x != null_block)
      pool_.touch(x);
    r.blocks.push_back(x);
  }
  r.num_cached_blocks += static_cast<std::uint32_t>(hits.size());
  for (std::size_t i = 0; i < more; ++i)
    r.blocks.push_back(pool_.allocate());
  return true;
}

void scheduler::cache_blocks(request& r, std::uint32_t tokens) {
  if (!options_.enable_prefix_caching)
    return;
  for (const auto full = std::min(tokens, r.num_tokens) / options_.block_tokens; r.num_cached_blocks < full;
       ++r.num_cached_blocks)
    pool_.cache(r.blocks[r.num_cached_blocks],
                r.truth.contents[(r.num_cached_blocks + std::size_t{1}) * options_.block_tokens - 1]);
}

/// Requests that wait for a load, or to be scheduled after it, hold blocks and are not preempted. A running request
/// must be able to finish in spite of them, so they may hold what the longest request leaves. vLLM has no such limit,
/// and can deadlock.
bool scheduler::may_hold_for_load(std::size_t blocks, bool& others) const {
  for (const auto& x : waiting_) {
    blocks += x->blocks.size();
    others = others || !x->blocks.empty();
  }
  return blocks + blocks_for(options_.max_model_len) <= pool_.capacity();
}

/// Frees from the end, so that the end of a prefix is evicted before its beginning.
void scheduler::free_blocks(request& r) {
  for (auto i = r.blocks.rbegin(); i != r.blocks.rend(); ++i)
    if (*i != null_block)
      pool_.release(*i);
  r.blocks.clear();
  r.num_cached_blocks = 0;
}

void scheduler::preempt_between_steps(const std::shared_ptr<request>& r) {
  std::erase(running_, r);
  preempt(r);
  preempted_.pop_back();
  preempted_between_steps_.push_back(r);
  r->outputs_since = r->num_preemptions;
}

bool scheduler::reset_prefix_cache(bool reset_running_requests) {
  // Preempts from the end, so that requests resume in their order.
  while (reset_running_requests && !running_.empty())
    preempt_between_steps(running_.back());
  if (pool_.free_blocks() < pool_.capacity()) {
    ++statistics_.resets_refused;
    return false;
  }
  pool_.reset_prefix_cache();
  return true;
}

void scheduler::preempt(const std::shared_ptr<request>& r) {
  free_blocks(*r);
  r->status = request_status::preempted;
  r->num_computed_tokens = 0;
  r->num_spec_tokens = 0;
  r->num_output_placeholders = 0;
  ++r->num_preemptions;
  ++statistics_.preemptions;
  waiting_.push_front(r);
  preempted_.push_back(r);
}

void scheduler::end_load(request& r) {
  r.status = r.num_preemptions > 0 ? request_status::preempted : request_status::waiting;
  const auto valid = r.num_local_tokens + r.num_external_tokens;
  statistics_.external_tokens += r.num_external_tokens;
  r.num_local_tokens = r.num_external_tokens = 0;
  if (valid == 0) {
    free_blocks(r);
    return;
  }
  r.num_computed_tokens = valid == r.num_tokens ? valid - 1 : valid;
  cache_blocks(r, valid);
}

void scheduler::update_from_output(const scheduled_step& step, const connector::worker_output& output) {
  spoilt_.clear();
  failed_.clear();
  if (options_.load_failures_by_request)
    handle_failed_requests(output.failed);
  if (!output.load_errors.empty())
    handle_invalid_blocks(output.load_errors, step);
  for (const auto& x : step.parts)
    if (x.loads)
      statistics_.external_tokens += std::exchange(x.who->num_external_tokens, 0);
  for (const auto& x : step.parts)
    if (x.sampled > 0 && !x.who->finished() && !spoilt_.contains(x.who.get()))
      take_output(x);
  for (const auto& x : std::exchange(failed_, {})) {
    ++statistics_.requests_failed;
    finish(x);
  }
  connector_.update_connector_output(output);
  for (const auto& id : output.received)
    take_received(id);
  for (const auto& id : output.sent)
    take_sent(id);
}

void scheduler::take_output(const step_part& part) {
  auto& r = *part.who;
  const auto rejected = part.drafts - part.accepted;
  const auto current = part.preemptions == r.num_preemptions;
  if (current) {
    r.num_computed_tokens -= rejected;
    if (options_.async_scheduling)
      r.num_output_placeholders -= part.sampled + rejected;
  }
  if (part.preemptions < r.outputs_since || (!current && options_.requires_kv_delivery))
    return;
  if (!current)
    ++statistics_.outputs_of_preempted;
  const auto before = r.num_tokens;
  r.num_tokens = std::min(r.num_tokens + part.sampled, r.last_tokens());
  statistics_.generated_tokens += r.num_tokens - before;
  statistics_.rejected_drafts += rejected;
  if (r.num_tokens == r.last_tokens()) {
    ++statistics_.requests_stopped;
    finish(part.who);
  } else if (current && options_.async_scheduling)
    cache_blocks(r, r.num_computed_tokens - r.num_output_placeholders);
  else if (current)
    r.num_spec_tokens = options_.num_speculative_tokens;
}

void scheduler::handle_failed_requests(const std::vector<std::string>& failed) {
  for (const auto& id : failed) {
    const auto i = requests_.find(id);
    if (i == requests_.end() || i->second->status != request_status::waiting_for_remote_kvs)
      continue;
    auto& r = *i->second;
    ++statistics_.loads_failed;
    r.load_failed = true;
    r.num_local_tokens = r.num_external_tokens = 0;
    if (options_.kv_load_failure_policy == load_failure_policy::fail)
      failed_.push_back(i->second);
  }
}

/// Tokens behind the first failed block are computed instead. Blocks of loads between steps enter the prefix cache when
/// the load has ended, so that no other request can hold a failed one.
void scheduler::handle_invalid_blocks(const std::vector<block_id>& invalid, const scheduled_step& step) {
  if (step.has_sync_kv_loads)
    handle_synchronous_failures(invalid, step);
  if (options_.load_failures_by_request)
    return;
  const auto is_invalid = [&](block_id x) { return std::binary_search(invalid.begin(), invalid.end(), x); };
  for (const auto& [id, x] : requests_) {
    auto& r = *x;
    const auto first = std::find_if(r.blocks.begin(), r.blocks.end(), is_invalid);
    // The request finished while it was loaded: its blocks are not used.
    if (first == r.blocks.end() || r.finished() || spoilt_.contains(&r))
      continue;
    const auto valid = static_cast<std::uint32_t>(first - r.blocks.begin()) * options_.block_tokens;
    if (r.status != request_status::waiting_for_remote_kvs || r.received)
      violations_.add("engine", id + ": block " + std::to_string(*first) +
                                    " is reported as failed, and the request is not being loaded");
    else if (valid < r.num_local_tokens)
      violations_.add("engine", id + ": block " + std::to_string(*first) +
                                    " is reported as failed, which the engine has computed itself");
    else {
      if (!r.load_failed)
        ++statistics_.loads_failed;
      r.load_failed = true;
      r.num_external_tokens = std::min(r.num_external_tokens, valid - r.num_local_tokens);
      if (options_.kv_load_failure_policy == load_failure_policy::fail &&
          std::find(failed_.begin(), failed_.end(), x) == failed_.end())
        failed_.push_back(x);
    }
  }
}

/// Requests of the step have computed from blocks that were not filled, so their output is dropped. The request that
/// was to load the blocks goes back to the first of them. Others that have found them in the prefix cache, or blocks
/// computed from them, restart. vLLM continues with those, and relies on the first request to recompute everything at
/// once; this model does not.
void scheduler::handle_synchronous_failures(const std::vector<block_id>& invalid, const scheduled_step& step) {
  std::unordered_set<block_id> of_no_use;
  for (const auto& part : step.parts) {
    auto& r = *part.who;
    const auto first = std::find_if(r.blocks.begin(), r.blocks.end(),
                                    [&](block_id x) { return std::binary_search(invalid.begin(), invalid.end(), x); });
    const auto valid = static_cast<std::uint32_t>(first - r.blocks.begin()) * options_.block_tokens;
    if (!part.loads || r.status != request_status::running || first == r.blocks.end() || valid < r.num_local_tokens)
      continue;
    ++statistics_.loads_failed;
    ++statistics_.loads_synchronous_failed;
    if (valid >= r.num_local_tokens + r.num_external_tokens)
      violations_.add("engine", r.spec.id + ": block " + std::to_string(*first) +
                                    " is reported as failed, which was not to be loaded");
    r.num_external_tokens = valid - r.num_local_tokens;
    of_no_use.insert(first, r.blocks.end());
    spoilt_.insert(&r);
    compute_again(r, static_cast<std::size_t>(first - r.blocks.begin()));
    if (options_.kv_load_failure_policy == load_failure_policy::fail)
      failed_.push_back(part.who);
  }
  // In the order of scheduling, in which one request may have found blocks that another was to compute.
  for (const auto& part : step.parts) {
    const auto& r = part.who;
    const auto first =
        std::find_if(r->blocks.begin(), r->blocks.end(), [&](block_id x) { return of_no_use.contains(x); });
    if (r->status != request_status::running || spoilt_.contains(r.get()) || first == r->blocks.end())
      continue;
    ++statistics_.shared_loads_failed;
    of_no_use.insert(first, r->blocks.end());
    spoilt_.insert(r.get());
    for (auto i = first; i != r->blocks.end(); ++i)
      pool_.evict(*i);
    preempt_between_steps(r);
  }
}

void scheduler::compute_again(request& r, std::size_t first_block) {
  for (auto i = first_block; i < r.blocks.size(); ++i)
    pool_.evict(r.blocks[i]);
  r.num_cached_blocks = std::min(r.num_cached_blocks, static_cast<std::uint32_t>(first_block));
  r.num_computed_tokens = r.worker_computed = static_cast<std::uint32_t>(first_block) * options_.block_tokens;
  r.worker_tokens = r.num_tokens;
  r.num_spec_tokens = 0;
}

void scheduler::take_received(const std::string& id) {
  const auto i = requests_.find(id);
  if (i == requests_.end()) {
    violations_.add("engine", id + " is reported as received, and the engine has no such request");
    return;
  }
  auto& r = *i->second;
  if (r.status == request_status::waiting_for_remote_kvs && !r.received)
    r.received = true;
  else if (r.finished()) {
    free_blocks(r);
    requests_.erase(i);
  } else
    violations_.add("engine", id + " is reported as received, and waits for nothing");
}

void scheduler::take_sent(const std::string& id) {
  const auto i = requests_.find(id);
  if (i == requests_.end())
    violations_.add("engine", id + " is reported as sent, and the engine has no such request");
  else if (!i->second->finished())
    violations_.add("engine", id + " is reported as sent, and has not finished");
  else {
    free_blocks(*i->second);
    requests_.erase(i);
  }
}

void scheduler::finish(const std::shared_ptr<request>& r) {
  const auto loading = r->status == request_status::waiting_for_remote_kvs && !r->received;
  if (r->status == request_status::running)
    std::erase(running_, r);
  else
    std::erase(waiting_, r);
  r->status = request_status::finished;
  const auto keep = connector_.request_finished(r->spec.id);
  finished_ids_.push_back(r->spec.id);
  if (keep) {
    ++statistics_.requests_kept;
    return;
  }
  if (loading)
    violations_.add("engine", r->spec.id + " ends while it is being loaded, and its blocks would be free");
  free_blocks(*r);
  requests_.erase(r->spec.id);
}

} // namespace troupe::engine
