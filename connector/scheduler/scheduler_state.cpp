#include "connector/scheduler/scheduler_state.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace troupe::connector {

namespace {

/// The pages from `first` to before `last`.
std::vector<std::uint32_t> run_of_pages(std::uint32_t first, std::size_t last) {
  std::vector<std::uint32_t> out(last - first);
  std::iota(out.begin(), out.end(), first);
  return out;
}

using status = request_tracker::lookup::status;
using stay = request_tracker::stay;

} // namespace

request_tracker* scheduler_state::track(const engine_request& request) {
  return sessions_.track(request, [&](session_id id) {
    key_chain keys(options_.keys, key_scope{options_.ns, request.lora, request.cache_salt, epoch_}, request.multimodal);
    const auto prompt = static_cast<std::uint32_t>(request.tokens.first + request.tokens.tokens.size());
    return std::make_unique<request_tracker>(id, std::string(request.id), std::move(keys), options_.keys, prompt);
  });
}

void scheduler_state::on_new_request(const engine_request& request, timestamp now) {
  const bool crowded = sessions_.present() >= options_.early_lookups_max;
  // The request is tracked in any case, because an engine may send its tokens only once.
  auto* x = track(request);
  if (!crowded && x != nullptr && x->may_load() && x->search().now == status::none && x->pages_to_look_up() > 0)
    ask(*x, now);
}

matched_tokens scheduler_state::get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens,
                                                           timestamp now) {
  constexpr matched_tokens nothing{0, false};
  constexpr matched_tokens ask_again{std::nullopt, false};
  auto* known = track(request);
  if (known == nullptr)
    return nothing;
  // The request was preempted between two steps. The next step reports that, which is too late for this lookup.
  if (known->current_phase() == request_tracker::phase::active && known->has_run())
    preempt(*known);
  if (!known->may_load())
    return nothing;
  auto& x = *known;
  expire_lookups(now);
  auto& search = x.search();
  if (search.now == status::answered && search.matched > 0 && now >= search.fresh_until) {
    release_leases(x);
    const auto missed = search.missed + 1;
    search = {};
    search.missed = missed;
    if (missed >= options_.lookups_missed_max)
      search.now = status::answered;
  }
  if (search.now == status::none) {
    if (x.pages_to_look_up() == 0)
      return nothing;
    ask(x, now);
  }
  if (search.now != status::answered)
    return ask_again;
  search.missed = 0;
  const auto first = computed_tokens / page_tokens();
  if (!search.worth || search.worth_from != first) {
    search.worth = pace_.worth_loading(first, search.matched, search.on_disk, page_tokens());
    search.worth_from = first;
  }
  const auto tokens = x.new_tokens(computed_tokens);
  if (tokens == 0 || tokens < options_.min_load_tokens)
    return nothing;
  return {tokens, !options_.synchronous_loads};
}

hit_sources scheduler_state::get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const {
  const auto* x = find(request);
  return x == nullptr ? hit_sources{.unknown = tokens} : x->sources(x->load_first(), x->load_first() + tokens);
}

fetched_pages scheduler_state::get_fetched_pages(std::string_view request) const {
  const auto* x = find(request);
  return x == nullptr ? fetched_pages{} : x->search().fetched;
}

void scheduler_state::ask(request_tracker& x, timestamp now) {
  auto& search = x.search();
  if (lookups_.size() >= options_.lookups_max)
    return;
  const auto count = std::min(x.pages_to_look_up() - search.matched, options_.lookup_keys_max);
  search.now = status::under_way;
  search.id = ++last_lookup_;
  search.asked = count;
  search.since = now;
  lookups_.emplace(search.id, x.session());
  lookup_order_.push_back({search.id, now});
  lookup_submit effect{search.id, {{}, options_.lease, true}, 0};
  const auto keys = x.keys().subspan(search.matched, count);
  effect.work.keys.items.assign(keys.begin(), keys.end());
  effect.work.request = x.name();
  outbox_.emplace_back(std::move(effect));
}

void scheduler_state::on_lookup(std::uint64_t lookup, result<lookup_result> answer, timestamp now) {
  if (answer)
    events_.leased(0, answer->lease);
  else
    events_.lookup_failed(answer.error().code);
  const auto found = lookups_.find(lookup);
  auto* session = found == lookups_.end() ? nullptr : sessions_.find(found->second);
  if (found != lookups_.end())
    lookups_.erase(found);
  if (session == nullptr || session->presence != stay::present || !session->may_load() ||
      session->search().now != status::under_way || session->search().id != lookup) {
    if (answer && answer->matched > 0)
      outbox_.emplace_back(lookup_release{answer->lease, 0}); // not needed any more
    return;
  }
  auto& x = *session;
  auto& search = x.search();
  search.now = status::answered;
  if (answer && events_.wants_all()) {
    std::vector<std::uint8_t> marks(search.asked, 0);
    std::fill_n(marks.begin(), std::min(answer->matched, search.asked), std::uint8_t{1});
    events_.looked_up(source_of(x), search.matched, marks, answer->on_disk.items);
  }
  if (answer)
    add(search.fetched, answer->peers);
  if (!answer || answer->matched == 0)
    return;
  const auto matched = std::min(answer->matched, search.asked);
  // The tiers are known for all pages, or for none.
  if (search.on_disk.size() == search.matched && answer->on_disk.size() >= matched)
    search.on_disk.insert(search.on_disk.end(), answer->on_disk.begin(), answer->on_disk.begin() + matched);
  else
    search.on_disk.clear();
  search.matched += matched;
  const auto held = answer->lease_for > duration::zero() ? std::min(answer->lease_for, options_.lease) : options_.lease;
  search.fresh_until = std::min(search.fresh_until, later(search.since, held - held / 4));
  search.leases.push_back(answer->lease);
  if (answer->matched >= search.asked && search.matched < x.pages_to_look_up())
    ask(x, now);
}

void scheduler_state::expire_lookups(timestamp now) {
  while (!lookup_order_.empty()) {
    const auto& oldest = lookup_order_.front();
    const auto found = lookups_.find(oldest.lookup);
    if (found != lookups_.end()) {
      if (now - oldest.since < options_.lookup_patience)
        return;
      // A late answer is ignored, and its lease released.
      auto* x = sessions_.find(found->second);
      if (x != nullptr && x->search().id == oldest.lookup && x->search().now == status::under_way)
        x->search().now = status::answered;
      lookups_.erase(found);
    }
    lookup_order_.pop_front();
  }
}

void scheduler_state::release_leases(request_tracker& x) {
  for (const auto& lease : std::exchange(x.search().leases, {}))
    outbox_.emplace_back(lookup_release{lease, 0});
}

void scheduler_state::release_or_read_ahead(request_tracker& x) {
  const auto passed_over = std::exchange(x.search().passed_over, 0);
  if (passed_over > 0 && pace_.reads_ahead())
    for (auto& leases = x.search().leases; !leases.empty() && reads_ahead_.size() < options_.reads_ahead_max;) {
      reads_ahead_.push_back({leases.back(), std::min(pace_.computing(passed_over), options_.lease), std::nullopt});
      leases.pop_back();
    }
  release_leases(x);
}

void scheduler_state::end_reads_ahead(timestamp now) {
  std::erase_if(reads_ahead_, [&](read_ahead& x) {
    if (!x.until)
      x.until = later(now, x.lasts);
    if (now < *x.until)
      return false;
    outbox_.emplace_back(lookup_release{x.lease, 0});
    return true;
  });
}

void scheduler_state::end_all_reads_ahead() {
  for (const auto& x : std::exchange(reads_ahead_, {}))
    outbox_.emplace_back(lookup_release{x.lease, 0});
}

void scheduler_state::update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                               std::uint32_t external_tokens) {
  auto* x = sessions_.find(request);
  if (x == nullptr)
    return;
  const bool asking = x->current_phase() == request_tracker::phase::asking;
  if (asking)
    passed_over_tokens_ += x->take_passed_over();
  if (x->allocated(blocks.blocks, external_tokens))
    loads_.push_back(x->session());
  else if (asking)
    release_or_read_ahead(*x); // the result is not used: the engine has the tokens itself, or computes them
}

connector_metadata scheduler_state::build_connector_meta(const scheduler_output& step, timestamp now) {
  expire_lookups(now);
  end_reads_ahead(now);
  connector_metadata out;
  for (const auto id : step.preempted)
    if (auto* x = sessions_.find(id)) {
      if (x->has_run())
        preempt(*x);
    } else if (const auto* left = sessions_.find_leaving(id)) {
      // Preempted between two steps, and aborted before the next one: its blocks are not kept.
      preempted_.push_back(left->session());
    }
  out.preempted = std::exchange(preempted_, {});
  std::uint32_t step_tokens = 0;
  bool goes_on = false;
  for (const auto& parts : {step.new_requests, step.cached_requests})
    for (const auto& part : parts)
      step_tokens += part.scheduled_tokens;
  for (const auto& part : step.cached_requests)
    goes_on = goes_on || !part.resumed;
  pace_.step(now, step_tokens, goes_on, options_.synchronous_loads && !loads_.empty());
  emit_loads(out, step_tokens, now);
  for (const auto& part : step.new_requests)
    if (auto* x = sessions_.find(part.id))
      x->replace_blocks(part.blocks.blocks);
  for (const auto& part : step.cached_requests)
    if (auto* x = sessions_.find(part.id)) {
      if (part.resumed)
        x->replace_blocks(part.blocks.blocks);
      else
        x->append_blocks(part.blocks.blocks);
    }
  if (!doubtful_.empty())
    settle_doubts(step);
  for (const auto& parts : {step.new_requests, step.cached_requests})
    for (const auto& part : parts)
      if (auto* x = sessions_.find(part.id))
        emit_stores(*x, part, out);
  sure_tokens_.clear();
  out.finished = std::exchange(finished_, {});
  return out;
}

void scheduler_state::preempt(request_tracker& x) {
  if (x.reports_missing() > 0)
    preempted_.push_back(x.session());
  release_leases(x);
  x.preempt();
}

void scheduler_state::emit_loads(connector_metadata& out, std::uint32_t step_tokens, timestamp now) {
  for (const auto session : std::exchange(loads_, {})) {
    auto& x = sessions_.at(session);
    if (x.current_phase() != request_tracker::phase::to_load)
      continue;
    auto op = x.take_load();
    const load_times times{now, x.load_sources(), options_.synchronous_loads ? step_tokens : 0};
    if (options_.synchronous_loads) {
      op.id = ++last_store_;
      op.between_steps = false;
      x.load_opened();
      doubtful_.load_begins(x.blocks_from_load());
      stores_.emplace(op.id, open_store{session, x.generation(), x.load_range().first, options_.workers,
                                        std::vector<std::uint8_t>(op.keys.size(), 1), true, times});
    } else
      loading_.push_back({session, times});
    out.loads.push_back(std::move(op));
  }
}

/// One request may read what another one of the step computes, in unknown order, so this repeats until nothing changes.
void scheduler_state::settle_doubts(const scheduler_output& step) {
  const auto tokens = options_.keys.block_tokens;
  const auto blocks_of = [tokens](std::uint32_t n) { return (n + tokens - 1) / tokens; };
  const auto most = step.new_requests.size() + step.cached_requests.size() + 1;
  bool changed = true;
  for (std::size_t i = 0; i < most && changed; ++i) {
    changed = false;
    for (const auto& parts : {step.cached_requests, step.new_requests})
      for (const auto& part : parts)
        if (const auto* x = sessions_.find(part.id)) {
          const auto sure = doubtful_.run(x->blocks(), blocks_of(part.computed_tokens),
                                          blocks_of(part.computed_tokens + part.scheduled_tokens));
          const auto limit = static_cast<std::uint32_t>(sure) * tokens;
          const auto [known, is_new] = sure_tokens_.try_emplace(x->session(), limit);
          changed = changed || is_new || known->second != limit;
          known->second = limit;
        }
  }
}

void scheduler_state::emit_stores(request_tracker& x, const scheduled_request& part, connector_metadata& out) {
  if (x.current_phase() == request_tracker::phase::asking)
    release_leases(x);
  x.run();
  x.add(part.tokens, part.hashes);
  auto end = part.computed_tokens + part.scheduled_tokens;
  if (!options_.save_generated)
    end = std::min(end, x.prompt_tokens());
  if (const auto sure = sure_tokens_.find(x.session()); sure != sure_tokens_.end())
    end = std::min(end, sure->second);
  for (const auto& range : x.take_stores(end, options_.store_pages_max, options_.store_attempts_max)) {
    auto op = x.make_store(range);
    op.id = ++last_store_;
    if (events_.wants_all())
      events_.saving(source_of(x), op.id, run_of_pages(range.first, range.last));
    x.store_opened();
    stores_.emplace(op.id, open_store{x.session(),
                                      x.generation(),
                                      range.first,
                                      options_.writers,
                                      std::vector<std::uint8_t>(op.keys.size(), 1),
                                      false,
                                      {}});
    out.stores.push_back(std::move(op));
  }
}

bool scheduler_state::request_finished(std::string_view request) {
  auto* known = sessions_.find(request);
  if (known == nullptr)
    return false;
  auto& x = *known;
  const auto session = x.session();
  const auto phase = x.current_phase();
  sessions_.finish(x);
  // A synchronous load ends in its own step, before other requests can write those blocks.
  const bool loading = phase == request_tracker::phase::loading && !options_.synchronous_loads;
  if (phase != request_tracker::phase::loading)
    release_leases(x);
  if (phase == request_tracker::phase::to_load)
    std::erase(loads_, session); // not sent to a worker yet
  const bool stays = loading || (phase == request_tracker::phase::active && x.open_stores() > 0);
  x.presence = stays ? stay::waiting_for_reports : stay::gone;
  if (stays) {
    sessions_.leave(x);
    finished_.push_back({session, x.name(), loading});
  }
  drop_if_over(session);
  return stays;
}

void scheduler_state::update_connector_output(const worker_output& output, timestamp now) {
  for (const auto& outcome : output.stores) {
    const auto i = stores_.find(outcome.id);
    if (i == stores_.end())
      continue;
    auto& open = i->second;
    for (std::size_t k = 0; k < open.stored.size(); ++k)
      if (k >= outcome.stored.size() || outcome.stored[k] != 1)
        open.stored[k] = 0;
    if (--open.reports_missing > 0)
      continue;
    const auto done = std::move(open);
    stores_.erase(i);
    finish_store(outcome.id, done, now);
  }
  // Some workers may report before others, so an error counts in every step.
  if (!output.load_errors.empty()) {
    auto errors = output.load_errors;
    std::sort(errors.begin(), errors.end());
    for (const auto& open : loading_)
      sessions_.at(open.session).mark_failed(errors);
  }
  for (const auto& name : output.failed)
    if (auto* x = sessions_.find(name))
      x->mark_some_failed();
  for (const auto& name : output.received) {
    if (auto* x = sessions_.find(name))
      finish_load(*x, now);
    else
      let_go(name, now);
  }
  for (const auto& name : output.sent)
    let_go(name, now);
}

void scheduler_state::let_go(const std::string& name, timestamp now) {
  auto* x = sessions_.take_leaving(name);
  if (x == nullptr)
    return;
  // This also applies if it is in the wrong list, because workers are other processes.
  finish_load(*x, now);
  x->presence = stay::gone;
  drop_if_over(x->session());
}

void scheduler_state::finish_load(request_tracker& x, timestamp now) {
  const auto open = std::find_if(loading_.begin(), loading_.end(),
                                 [&](const open_load& load) { return load.session == x.session(); });
  if (open == loading_.end())
    return;
  const auto times = open->times;
  loading_.erase(open);
  learn(times, take_loaded(x), now);
}

bool scheduler_state::take_loaded(request_tracker& x) {
  release_or_read_ahead(x);
  const auto failed = x.loaded();
  for (const auto& range : failed)
    events_.not_loaded(source_of(x), run_of_pages(range.first, range.last));
  return failed.empty();
}

void scheduler_state::learn(const load_times& load, bool whole, timestamp now) {
  pace_.loaded(load.tokens, now - load.since, whole, load.beside, now);
}

void scheduler_state::finish_synchronous_load(request_tracker& x, const open_store& done, timestamp now) {
  x.load_closed();
  const auto bad = std::find(done.stored.begin(), done.stored.end(), 0);
  std::optional<std::size_t> failed;
  if (bad != done.stored.end())
    failed = (done.first_page + static_cast<std::size_t>(bad - done.stored.begin())) * options_.keys.blocks_per_page;
  learn(done.times, !failed, now);
  // After a preemption the request has lost its blocks, and is looked up again.
  const bool has_blocks = x.generation() == done.generation && x.current_phase() == request_tracker::phase::loading;
  const auto blocks = has_blocks ? x.blocks() : std::span<const block_id>{};
  doubtful_.load_ended(blocks, blocks.size() - x.blocks_from_load().size(), failed);
  if (has_blocks) {
    x.mark_failed_pages(done.stored);
    take_loaded(x);
  }
  drop_if_over(done.session);
}

void scheduler_state::finish_store(store_id id, const open_store& done, timestamp now) {
  auto* known = sessions_.find(done.session);
  if (known == nullptr)
    return;
  auto& x = *known;
  if (done.load)
    return finish_synchronous_load(x, done, now);
  x.stored(done.first_page, done.stored);
  x.store_closed(done.generation);
  events_.saved(source_of(x), id, run_of_pages(done.first_page, done.first_page + done.stored.size()), done.stored);
  drop_if_over(done.session);
}

void scheduler_state::drop_if_over(session_id session) {
  auto* x = sessions_.find(session);
  if (x == nullptr || x->presence != stay::gone || x->reports_missing() > 0)
    return;
  release_leases(*x);
  sessions_.drop(session);
  if (sessions_.empty())
    end_all_reads_ahead(); // no request computes, and the next step may be late
}

bool scheduler_state::reset_cache() {
  ++epoch_;
  end_all_reads_ahead();
  for (const auto& [session, x] : sessions_) {
    x->abandon();
    if (x->current_phase() == request_tracker::phase::asking)
      release_leases(*x);
  }
  events_.clear();
  return true;
}

std::size_t scheduler_state::leases_held() const noexcept {
  auto out = reads_ahead_.size();
  for (const auto& [session, x] : sessions_)
    out += x->search().leases.size();
  return out;
}

} // namespace troupe::connector
