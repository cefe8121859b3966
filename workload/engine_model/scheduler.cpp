#include "workload/engine_model/scheduler.hpp"

#include "base/digest.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::engine {

scheduler::scheduler(const engine_options& options, connector::scheduler_half& connector, violations& found,
                     engine_statistics& statistics)
    : options_(options), connector_(connector), violations_(found), statistics_(statistics), pool_(options.num_blocks) {
}

std::uint32_t scheduler::blocks_for(std::uint32_t tokens) const noexcept {
  return (tokens + options_.block_tokens - 1) / options_.block_tokens;
}

const request* scheduler::find(std::string_view id) const {
  const auto i = requests_.find(std::string(id));
  return i == requests_.end() ? nullptr : i->second.get();
}

template <class F>
auto scheduler::with_view(const request& r, F f) const {
  std::vector<connector::multimodal_item> items;
  for (const auto& x : r.spec.multimodal)
    items.push_back({x.first_token, x.tokens, x.hash});
  return f(connector::engine_request{r.spec.id, r.token_range(), r.hash_range(options_.block_tokens), r.spec.lora,
                                     r.spec.cache_salt, items, r.spec.cacheable});
}

bool scheduler::add(request_spec spec) {
  const auto drafts = options_.num_speculative_tokens;
  const auto most = spec.prompt.size() + spec.max_tokens + drafts + 1;
  if (spec.prompt.empty() || spec.max_tokens == 0 || spec.output_tokens == 0 || most > options_.max_model_len ||
      blocks_for(options_.max_model_len) > pool_.capacity() || requests_.contains(spec.id))
    return false;
  auto r = std::make_shared<request>();
  const auto known = static_cast<std::uint32_t>(spec.prompt.size()) + spec.max_tokens + 2 * (drafts + 1);
  r->truth = make_course(spec, known, options_.vocabulary);
  r->spec = std::move(spec);
  r->num_tokens = r->prompt_tokens();
  if (options_.report_block_hashes)
    for (auto end = options_.block_tokens; end <= known; end += options_.block_tokens) {
      auto& hash = r->block_hashes.emplace_back();
      const std::uint64_t halves[] = {r->truth.contents[end - 1], mix(r->truth.contents[end - 1], end)};
      std::memcpy(hash.data(), halves, sizeof halves);
    }
  waiting_.push_back(r);
  requests_.emplace(r->spec.id, r);
  with_view(*r, [this](const auto& view) { connector_.on_new_request(view); });
  return true;
}

bool scheduler::abort(std::string_view id) {
  const auto i = requests_.find(std::string(id));
  if (i == requests_.end() || i->second->finished())
    return false;
  const auto r = i->second;
  r->aborted = true;
  ++statistics_.requests_aborted;
  if (r->status == request_status::waiting_for_remote_kvs && !r->received)
    ++statistics_.aborted_during_load;
  finish(r);
  return true;
}

scheduled_step scheduler::schedule() {
  scheduled_step step;
  budget_ = options_.max_num_batched_tokens;
  preempted_.clear();
  listed_.clear();
  schedule_running(step);
  // A request that was just preempted would be resumed at once.
  if (preempted_.empty())
    schedule_waiting(step);
  step.finished = std::exchange(finished_ids_, {});
  notify_connector(step);
  preempted_between_steps_.clear();
  advance(step);
  return step;
}

void scheduler::schedule_running(scheduled_step& step) {
  for (std::size_t i = 0; i < running_.size() && budget_ > 0;) {
    const auto r = running_[i];
    const auto under_way = r->num_tokens + r->num_output_placeholders;
    // All permitted output is being computed.
    if (r->num_output_placeholders > 0 && under_way >= r->prompt_tokens() + r->spec.max_tokens) {
      ++i;
      continue;
    }
    const auto tokens = std::min(under_way + r->num_spec_tokens - r->num_computed_tokens, budget_);
    if (tokens == 0) {
      ++i;
      continue;
    }
    const auto first_new_block = r->blocks.size();
    auto fits = allocate(*r, {}, r->num_computed_tokens + tokens);
    while (!fits) {
      const auto last = running_.back();
      running_.pop_back();
      preempt(last);
      if (last == r)
        break;
      fits = allocate(*r, {}, r->num_computed_tokens + tokens);
    }
    if (!fits)
      break;
    cache_blocks(*r, r->num_computed_tokens + tokens);
    budget_ -= tokens;
    const auto certain = under_way - r->num_computed_tokens;
    step.parts.push_back({r, tokens, tokens > certain ? tokens - certain : 0, r->num_preemptions, false, false});
    listed_.push_back({r.get(), tokens, first_new_block, false, false});
    ++i;
  }
}

void scheduler::schedule_waiting(scheduled_step& step) {
  for (std::size_t i = 0; i < waiting_.size() && budget_ > 0 && running_.size() < options_.max_num_seqs;)
    switch (try_waiting(i, step)) {
    case turn::taken:
      break;
    case turn::skipped:
      ++i;
      break;
    case turn::no_blocks:
      return;
    }
}

scheduler::turn scheduler::try_waiting(std::size_t position, scheduled_step& step) {
  auto& r = *waiting_[position];
  if (r.status == request_status::waiting_for_remote_kvs) {
    if (!r.received)
      return turn::skipped;
    end_load(r);
  }
  std::vector<block_id> hits;
  std::uint32_t local = 0;
  std::uint32_t external = 0;
  bool synchronous = false;
  if (r.num_computed_tokens == 0) {
    hits = get_computed_blocks(r);
    local = static_cast<std::uint32_t>(hits.size()) * options_.block_tokens;
    const auto matched =
        with_view(r, [&](const auto& view) { return connector_.get_num_new_matched_tokens(view, local); });
    ++statistics_.questions;
    if (!matched.tokens) {
      ++statistics_.questions_unanswered;
      return turn::skipped;
    }
    external = *matched.tokens;
    synchronous = !matched.asynchronous;
    if (matched.asynchronous && external == 0)
      violations_.add("engine", r.spec.id + ": a load between steps has no tokens");
    if (local + external >= r.num_tokens && external > 0) {
      violations_.add("engine", r.spec.id + ": " + std::to_string(local + external) + " of " +
                                    std::to_string(r.num_tokens) + " tokens would be there, and none to compute");
      external = 0;
    }
  }
  if (external > 0 && !synchronous) {
    bool others = false;
    if (!may_hold_for_load(blocks_for(local + external), others)) {
      // Other requests will run, and may be preempted then. Without others waiting would never help.
      if (others)
        return turn::skipped;
      ++statistics_.hits_declined;
      external = 0;
    }
  }
  const auto computed = r.num_computed_tokens == 0 ? local + external : r.num_computed_tokens;
  const bool parked = external > 0 && !synchronous;
  const auto tokens = parked ? 0 : std::min(r.num_tokens - computed, budget_);
  if (!allocate(r, hits, computed + tokens)) {
    if (external > 0)
      ++statistics_.hits_without_blocks;
    return turn::no_blocks;
  }
  connector_.update_state_after_alloc(r.spec.id, r.blocks, external);
  statistics_.prefix_cache_tokens += local;
  if (external > 0)
    begin_load(r, local, external);
  if (parked) {
    r.status = request_status::waiting_for_remote_kvs;
    r.received = false;
    r.load_failed = false;
    return turn::skipped;
  }
  if (external > 0)
    ++statistics_.loads_synchronous;
  run(position, computed, tokens, external > 0, step);
  return turn::taken;
}

void scheduler::begin_load(request& r, std::uint32_t local, std::uint32_t external) {
  r.num_local_tokens = local;
  r.num_external_tokens = external;
  ++statistics_.loads;
  if (r.num_preemptions > 0)
    ++statistics_.loads_after_preemption;
}

void scheduler::run(std::size_t position, std::uint32_t computed, std::uint32_t tokens, bool loads,
                    scheduled_step& step) {
  const auto r = waiting_[position];
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(position));
  running_.push_back(r);
  r->status = request_status::running;
  r->num_computed_tokens = computed;
  r->worker_tokens = r->num_tokens;
  r->worker_computed = computed;
  cache_blocks(*r, computed + tokens);
  budget_ -= tokens;
  if (std::find(preempted_between_steps_.begin(), preempted_between_steps_.end(), r) != preempted_between_steps_.end())
    ++statistics_.resumed_in_the_same_step;
  step.has_sync_kv_loads = step.has_sync_kv_loads || loads;
  step.parts.push_back({r, tokens, 0, r->num_preemptions, true, loads});
  listed_.push_back({r.get(), tokens, 0, r->known_to_workers, !r->known_to_workers});
  r->known_to_workers = true;
}

void scheduler::notify_connector(scheduled_step& step) {
  new_requests_.clear();
  cached_requests_.clear();
  preempted_ids_.clear();
  for (const auto& x : listed_) {
    const auto& r = *x.who;
    auto& list = x.fresh || (x.resumed && options_.resumed_are_new) ? new_requests_ : cached_requests_;
    list.push_back({r.spec.id, r.num_computed_tokens, x.tokens, std::span(r.blocks).subspan(x.first_new_block),
                    x.resumed, r.token_range(), r.hash_range(options_.block_tokens)});
  }
  for (const auto* list : {&preempted_, &preempted_between_steps_})
    for (const auto& x : *list)
      preempted_ids_.push_back(x->spec.id);
  step.metadata = connector_.build_connector_meta({new_requests_, cached_requests_, preempted_ids_});
}

void scheduler::advance(scheduled_step& step) {
  for (const auto& x : step.parts) {
    auto& r = *x.who;
    r.num_computed_tokens += x.tokens;
    step.total_tokens += x.tokens;
    r.num_spec_tokens = 0;
    if (!options_.async_scheduling || r.num_computed_tokens != r.num_tokens + r.num_output_placeholders + x.drafts)
      continue;
    r.num_output_placeholders += 1 + x.drafts;
    r.num_spec_tokens = options_.num_speculative_tokens;
  }
  statistics_.scheduled_tokens += step.total_tokens;
}

} // namespace troupe::engine
