#include "tests/engine_simulation/halves.hpp"

#include <algorithm>

namespace troupe::engine_simulation {

using connector::connector_metadata;

sim_scheduler_half::sim_scheduler_half(world& w, cache& c) : world_(w), cache_(c), state_(w.p.scheduler) {}

void sim_scheduler_half::pass_time() {
  cache_.advance(tick * static_cast<duration::rep>(world_.draw(dice::hook, 99, hooks_++) %
                                                   (world_.p.cache.hook_max + std::uint64_t{1})));
}

void sim_scheduler_half::receive() {
  for (const auto& [lookup, answer] : std::exchange(inbox_, {}))
    state_.on_lookup(lookup, answer, world_.now());
  flush();
}

bool sim_scheduler_half::flush() {
  if (state_.outbox_empty())
    return false;
  bool asked = false;
  for (auto& effect : state_.take_outbox())
    if (auto* x = std::get_if<connector::lookup_submit>(&effect)) {
      cache_.submit_lookup(x->lookup, x->work);
      asked = true;
    } else {
      const auto lease = std::get<connector::lookup_release>(effect).lease;
      if (!world_.has(defect::leak_lease) || lease.sequence % 4 != 0)
        cache_.release(lease);
    }
  return asked;
}

void sim_scheduler_half::lookup_answered(std::uint64_t lookup, const result<lookup_result>& answer) {
  inbox_.emplace_back(lookup, answer);
}

void sim_scheduler_half::on_new_request(const connector::engine_request& request) {
  pass_time();
  receive();
  auto asked = request;
  if (world_.has(defect::forget_scope))
    asked.lora = asked.cache_salt = {};
  asked.cacheable = asked.cacheable && world_.p.connector;
  state_.on_new_request(asked, world_.now());
  const auto has_asked = flush();
  if (observer_ != nullptr)
    observer_->matched(request, {}, has_asked);
}

connector::matched_tokens sim_scheduler_half::get_num_new_matched_tokens(const connector::engine_request& request,
                                                                         std::uint32_t computed_tokens) {
  pass_time();
  receive();
  auto asked = request;
  if (world_.has(defect::forget_scope))
    asked.lora = asked.cache_salt = {};
  asked.cacheable = asked.cacheable && world_.p.connector;
  const auto out = state_.get_num_new_matched_tokens(asked, computed_tokens, world_.now());
  const auto has_asked = flush();
  if (observer_ != nullptr)
    observer_->matched(request, out, has_asked);
  world_.trace("matched", request.id, out.tokens ? *out.tokens + std::uint64_t{1} : 0, computed_tokens);
  return out;
}

void sim_scheduler_half::update_state_after_alloc(std::string_view request, const connector::block_tables& blocks,
                                                  std::uint32_t external_tokens) {
  world_.trace("allocated", request, blocks.blocks.size(), external_tokens);
  const auto* known = state_.find(request);
  if (observer_ != nullptr && known != nullptr && known->current_phase() == connector::request_tracker::phase::asking)
    observer_->allocating(request, known->search().matched);
  const auto passed_over = state_.passed_over_tokens();
  state_.update_state_after_alloc(request, blocks, external_tokens);
  if (state_.passed_over_tokens() > passed_over)
    world_.count(seen::hit_passed_over);
  flush();
}

connector_metadata sim_scheduler_half::build_connector_meta(const connector::scheduler_output& step) {
  pass_time();
  receive();
  auto notified = step;
  std::vector<connector::scheduled_request> cached;
  std::vector<std::vector<connector::block_id>> lists;
  if (world_.has(defect::resume_appends_blocks) || world_.has(defect::store_before_computed)) {
    cached.assign(step.cached_requests.begin(), step.cached_requests.end());
    lists.reserve(cached.size());
    for (auto& x : cached) {
      if (world_.has(defect::store_before_computed))
        x.scheduled_tokens += world_.p.page_tokens();
      else if (x.resumed && state_.find(x.id) != nullptr) {
        auto& list = lists.emplace_back(x.blocks.blocks.rbegin(), x.blocks.blocks.rend());
        list.insert(list.end(), x.blocks.blocks.begin(), x.blocks.blocks.end());
        x.blocks = list;
      }
    }
    notified.cached_requests = cached;
  }
  std::vector<connector::scheduled_request> fresh;
  if (world_.has(defect::forget_holes)) {
    fresh.assign(step.new_requests.begin(), step.new_requests.end());
    cached.assign(step.cached_requests.begin(), step.cached_requests.end());
    lists.reserve(fresh.size() + cached.size());
    for (auto* part : {&fresh, &cached})
      for (auto& x : *part) {
        auto& list = lists.emplace_back(x.blocks.blocks.begin(), x.blocks.blocks.end());
        if (!list.empty())
          std::replace(list.begin(), list.end(), null_block, list.back());
        x.blocks = list;
      }
    notified.new_requests = fresh;
    notified.cached_requests = cached;
  }
  auto said = state_.build_connector_meta(notified, world_.now());
  flush();
  spoil(said);
  for (const auto& x : said.loads)
    world_.trace("load", x.request, x.keys.size(), x.session);
  for (const auto& x : said.stores)
    world_.trace("store", x.request, x.first_page, x.keys.size());
  for (const auto& x : said.finished)
    world_.trace(x.received ? "leaves during its load" : "leaves", x.request, x.session);
  for (const auto& x : step.preempted)
    world_.trace("preempted", x);
  if (observer_ != nullptr)
    observer_->scheduled(step, said);
  return said;
}

void sim_scheduler_half::spoil(connector_metadata& said) {
  switch (world_.built_in) {
  case defect::load_twice:
    for (auto& x : std::exchange(kept_loads_, said.loads))
      said.loads.push_back(std::move(x));
    break;
  case defect::load_over_computed:
    for (auto& x : said.loads)
      if (const auto* known = state_.find(x.request))
        for (std::size_t i = 0, first = known->blocks().size() - x.blocks.size(); i < x.blocks.size(); ++i)
          x.blocks[i] = known->blocks()[first + i];
    break;
  case defect::shifted_load:
    for (auto& x : said.loads)
      std::rotate(x.blocks.begin(), x.blocks.begin() + 1, x.blocks.end());
    break;
  case defect::store_twice:
    for (std::size_t i = 0, n = said.stores.size(); i < n; ++i) {
      auto again = said.stores[i];
      again.id += 1'000'000;
      said.stores.push_back(std::move(again));
    }
    break;
  default:
    break;
  }
}

bool sim_scheduler_half::request_finished(std::string_view request) {
  const auto* known = state_.find(request);
  const auto loading = known != nullptr && known->current_phase() == connector::request_tracker::phase::loading;
  const auto keep = state_.request_finished(request);
  flush();
  world_.trace("finished", request, keep ? 1 : 0);
  if (keep)
    world_.count(loading ? seen::finish_kept_for_load : seen::finish_kept_for_store);
  return keep && !(world_.has(defect::free_during_load) && loading);
}

void sim_scheduler_half::update_connector_output(const connector::worker_output& output) {
  pass_time();
  state_.update_connector_output(output, world_.now());
  flush();
  if (observer_ != nullptr)
    observer_->reported(output);
}

std::uint32_t sim_scheduler_half::get_finished_count() const {
  return world_.has(defect::one_worker_is_enough) ? 1 : world_.p.workers();
}

bool sim_scheduler_half::reset_cache() {
  ++epoch_;
  const auto out = state_.reset_cache();
  flush();
  return out;
}

} // namespace troupe::engine_simulation
