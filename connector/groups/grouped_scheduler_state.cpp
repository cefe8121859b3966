#include "connector/groups/grouped_scheduler_state.hpp"

#include "connector/load_marks.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace troupe::connector {

namespace {

using lookup_status = grouped_request::lookup::status;
using phase_of_request = grouped_request::phase;

/// The group whose events stand for the tokens: the one that needs all of them, if there is one.
std::uint32_t lead_group(std::span<const page_group> groups) {
  std::uint32_t out = 0;
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    if (groups[g].kind == group_kind::full)
      out = g;
  return out;
}

event_log::source source_of(const grouped_request& x, std::uint32_t group) {
  return {x.name(), x.keys(), group};
}

} // namespace

grouped_scheduler_state::grouped_scheduler_state(grouped_options options)
    : options_(std::move(options)), pace_(options_.pace),
      events_(
          {.detail = options_.events, .page_tokens = options_.page_tokens, .lead_group = lead_group(options_.groups)}) {
}

grouped_request* grouped_scheduler_state::track(const engine_request& request) {
  return sessions_.track(request, [&](session_id id) {
    // The first group's namespace stands for all: each group's identity has all of them in it.
    key_chain keys({options_.keys, options_.page_tokens, 1},
                   key_scope{options_.groups.front().ns, request.lora, request.cache_salt, epoch_}, request.multimodal);
    const auto prompt = static_cast<std::uint32_t>(request.tokens.first + request.tokens.tokens.size());
    return std::make_unique<grouped_request>(id, std::string(request.id), std::move(keys), options_.groups,
                                             options_.page_tokens, prompt);
  });
}

// -- lookups ----------------------------------------------------------------------------------------------------------

void grouped_scheduler_state::on_new_request(const engine_request& request, timestamp now) {
  const bool crowded = sessions_.present() >= options_.early_lookups_max;
  // The request is tracked in any case, because an engine may send its tokens only once.
  auto* x = track(request);
  if (!crowded && x != nullptr && x->may_load() && x->search().now == lookup_status::none)
    ask(*x, now);
}

bool grouped_scheduler_state::may_add(std::size_t count) const noexcept {
  return lookups_.empty() || lookups_.size() + count <= options_.lookups_max;
}

void grouped_scheduler_state::submit(grouped_request& x, std::uint32_t group, lookup_task work) {
  lookups_.emplace(++last_lookup_, open_lookup{x.session(), group});
  ++x.search().waiting;
  work.request = x.name();
  outbox_.emplace_back(lookup_submit{last_lookup_, std::move(work), group});
}

void grouped_scheduler_state::ask(grouped_request& x, timestamp now) {
  const auto pages = x.pages_to_look_up();
  const auto parts = (pages + options_.lookup_keys_max - 1) / options_.lookup_keys_max;
  if (pages == 0 || !may_add(parts * options_.groups.size()))
    return;
  x.begin_lookup(pages, now);
  for (std::uint32_t g = 0; g < options_.groups.size(); ++g)
    for (std::uint32_t first = 0; first < pages; first += options_.lookup_keys_max) {
      grouped_request::lookup_part part;
      part.group = g;
      part.pages.resize(std::min(pages, first + options_.lookup_keys_max) - first);
      std::iota(part.pages.begin(), part.pages.end(), first);
      submit(x, g, {{x.keys_of(part.pages)}, options_.lease, true, true});
      part.id = last_lookup_;
      x.search().parts.push_back(std::move(part));
    }
}

void grouped_scheduler_state::go_on(grouped_request& x, timestamp now) {
  auto& search = x.search();
  search.due = false;
  if (!x.may_load())
    return;
  switch (search.at) {
  case grouped_request::lookup::step::here:
    return search_peers(x, now);
  case grouped_request::lookup::step::searching:
    return fetch_pages(x);
  case grouped_request::lookup::step::fetching:
    if (search.searched < searches_max && x.longest() < search.goal)
      search_peers(x, now);
  }
}

void grouped_scheduler_state::search_peers(grouped_request& x, timestamp now) {
  auto& search = x.search();
  if (!search.has_peers)
    return;
  const auto pages = x.pages_to_search();
  const std::size_t most = options_.lookup_keys_max;
  std::size_t count = 0;
  for (const auto& of_group : pages)
    count += (of_group.size() + most - 1) / most;
  if (count == 0)
    return;
  if (!may_add(count)) {
    search.due = true;
    return;
  }
  x.begin_search(now);
  for (std::uint32_t g = 0; g < pages.size(); ++g)
    for (std::size_t first = 0; first < pages[g].size(); first += most) {
      const auto some = std::span(pages[g]).subspan(first, std::min(most, pages[g].size() - first));
      lookup_task work{{x.keys_of(some)}, options_.lease, false, true};
      work.peers.what = peer_step::kind::search;
      work.peers.waited = now - search.searched_since;
      submit(x, g, std::move(work));
      search.searches.push_back({last_lookup_, g, {some.begin(), some.end()}, false, 0});
    }
}

void grouped_scheduler_state::fetch_pages(grouped_request& x) {
  auto& search = x.search();
  const auto goal = x.longest_with_peers();
  std::vector<std::pair<grouped_request::search_part*, std::vector<std::uint32_t>>> wanted;
  const bool worth = std::uint64_t{goal} * options_.page_tokens >= options_.min_load_tokens;
  if (goal > x.longest() && worth)
    for (auto& part : search.searches)
      if (auto pages = x.pages_to_fetch(part, goal); part.search != 0 && !pages.empty())
        wanted.emplace_back(&part, std::move(pages));
  if (!may_add(wanted.size())) {
    search.due = true;
    return;
  }
  search.at = grouped_request::lookup::step::fetching;
  search.goal = wanted.empty() ? 0 : goal;
  for (auto& [from, pages] : wanted) {
    lookup_task work{{x.keys_of(pages)}, options_.lease, true, true};
    work.peers = {peer_step::kind::fetch, std::exchange(from->search, 0), {x.parents_of(from->group, pages)}, {}};
    submit(x, from->group, std::move(work));
    grouped_request::lookup_part part;
    part.id = last_lookup_;
    part.group = from->group;
    part.pages = std::move(pages);
    part.mark = static_cast<std::uint8_t>(1 + search.searched);
    search.parts.push_back(std::move(part));
  }
  release_searches(x);
}

bool grouped_scheduler_state::take_search(grouped_request& x, std::uint64_t lookup,
                                          const result<lookup_result>& answer) {
  auto& search = x.search();
  if (search.at != grouped_request::lookup::step::searching)
    return false;
  for (auto& part : search.searches)
    if (part.id == lookup && !part.answered) {
      part.answered = true;
      --search.waiting;
      if (answer) {
        part.search = answer->search;
        x.take_peer_marks(part, answer->found.items);
      }
      return true;
    }
  return false;
}

void grouped_scheduler_state::on_lookup(std::uint64_t lookup, result<lookup_result> answer, timestamp now) {
  const auto found = lookups_.find(lookup);
  if (found == lookups_.end())
    return;
  const auto asked = found->second;
  lookups_.erase(found);
  if (answer)
    events_.leased(asked.group, answer->lease);
  else
    events_.lookup_failed(answer.error().code);
  auto* session = sessions_.find(asked.session);
  grouped_request::lookup_part* part = nullptr;
  if (session != nullptr && session->search().now == lookup_status::under_way) {
    if (answer)
      add(session->search().fetched, answer->peers);
    if (take_search(*session, lookup, answer)) {
      if (session->search().waiting == 0)
        go_on(*session, now);
      return;
    }
    for (auto& each : session->search().parts)
      if (each.id == lookup && !each.answered)
        part = &each;
  }
  if (part == nullptr) {
    // Too late, or not needed any more.
    if (answer && answer->matched > 0)
      outbox_.emplace_back(lookup_release{answer->lease, asked.group});
    if (answer && answer->search != 0)
      outbox_.emplace_back(search_release{answer->search, asked.group});
    return;
  }
  auto& x = *session;
  take_answer(x, *part, answer);
  if (--x.search().waiting == 0)
    go_on(x, now);
}

void grouped_scheduler_state::note_marks(const grouped_request& x, const grouped_request::lookup_part& part,
                                         const lookup_result& answer) {
  auto marks = answer.found.items;
  marks.resize(part.pages.size(), 0);
  if (part.mark == 1)
    return events_.looked_up(source_of(x, part.group), part.pages.front(), marks, answer.on_disk.items);
  // Of a fetch: pages anywhere in the prefix, whose misses were noted before.
  for (std::size_t i = 0; i < marks.size(); ++i)
    if (marks[i] != 0) {
      const auto tier = std::span(answer.on_disk.items).subspan(std::min(i, answer.on_disk.size()));
      events_.looked_up(source_of(x, part.group), part.pages[i], std::span(marks).subspan(i, 1), tier);
    }
}

void grouped_scheduler_state::take_answer(grouped_request& x, grouped_request::lookup_part& part,
                                          const result<lookup_result>& answer) {
  auto& search = x.search();
  part.answered = true;
  if (answer && events_.wants_all())
    note_marks(x, part, *answer);
  if (!answer)
    return;
  search.has_peers = search.has_peers || answer->has_peers;
  if (answer->matched == 0)
    return;
  part.lease = answer->lease;
  x.take_marks(part, answer->found.items, answer->on_disk.items);
  const auto held = answer->lease_for > duration::zero() ? std::min(answer->lease_for, options_.lease) : options_.lease;
  search.fresh_until = std::min(search.fresh_until, later(search.since, held - held / 4));
}

void grouped_scheduler_state::decide(grouped_request& x, std::uint32_t computed_tokens) {
  auto& search = x.search();
  search.now = lookup_status::decided;
  release_searches(x); // at the end of its patience some may not have led to a fetch
  search.hit = x.longest();
  search.hit_on_disk = x.tiers_of(search.hit);
  const auto whole = search.hit;
  const auto worth =
      pace_.worth_loading(computed_tokens / options_.page_tokens, search.hit, search.hit_on_disk, options_.page_tokens);
  if (worth < search.hit) {
    search.hit = x.longest(worth);
    search.hit_on_disk = x.tiers_of(search.hit);
  }
  // A shorter hit needs other pages of a window, which may be on disk as well.
  while (options_.pace.rule == disk_hits::never && search.hit > 0 &&
         std::find(search.hit_on_disk.begin(), search.hit_on_disk.end(), 1) != search.hit_on_disk.end()) {
    search.hit = x.longest(search.hit - 1);
    search.hit_on_disk = x.tiers_of(search.hit);
  }
  search.passed_over = whole - search.hit;
  for (auto& part : search.parts) {
    if (part.lease == ticket{})
      continue;
    auto keys = x.keys_to_keep(part, search.hit);
    if (!keys.empty())
      outbox_.emplace_back(lookup_retain{part.lease, std::move(keys), part.group});
    else
      outbox_.emplace_back(lookup_release{std::exchange(part.lease, {}), part.group});
  }
}

matched_tokens grouped_scheduler_state::get_num_new_matched_tokens(const engine_request& request,
                                                                   std::uint32_t computed_tokens, timestamp now) {
  constexpr matched_tokens nothing{0, false};
  auto* known = track(request);
  if (known == nullptr)
    return nothing;
  auto& x = *known;
  // The request was preempted between two steps. The next step reports that, which is too late for this lookup.
  if (x.current_phase() == phase_of_request::active && x.has_run())
    preempt(x);
  if (!x.may_load())
    return nothing;
  auto& search = x.search();
  if (search.now == lookup_status::under_way) {
    const bool too_late = now - search.since >= options_.lookup_patience;
    if (search.due && !too_late)
      go_on(x, now);
    if ((search.waiting == 0 && !search.due) || too_late)
      decide(x, computed_tokens);
  }
  // Also of a hit that was decided just now: some answers may have waited long for others, or for the engine.
  if (search.now == lookup_status::decided && search.hit > 0 && now >= search.fresh_until) {
    release_leases(x);
    const auto missed = search.missed + 1;
    search = {};
    search.missed = missed;
    if (missed >= options_.lookups_missed_max)
      search.now = lookup_status::decided;
  }
  if (search.now == lookup_status::none) {
    if (x.pages_to_look_up() == 0)
      return nothing;
    ask(x, now);
  }
  if (search.now != lookup_status::decided)
    return {std::nullopt, false};
  search.missed = 0;
  const auto tokens = x.new_tokens(computed_tokens);
  if (tokens == 0 || tokens < options_.min_load_tokens)
    return nothing;
  return {tokens, true};
}

hit_sources grouped_scheduler_state::get_external_cache_hit_sources(std::string_view request,
                                                                    std::uint32_t tokens) const {
  const auto* x = find(request);
  return x == nullptr ? hit_sources{.unknown = tokens} : x->sources(x->load_first(), x->load_first() + tokens);
}

fetched_pages grouped_scheduler_state::get_fetched_pages(std::string_view request) const {
  const auto* x = find(request);
  return x == nullptr ? fetched_pages{} : x->search().fetched;
}

void grouped_scheduler_state::release_searches(grouped_request& x) {
  for (auto& part : x.search().searches)
    if (part.search != 0)
      outbox_.emplace_back(search_release{std::exchange(part.search, 0), part.group});
}

void grouped_scheduler_state::release_leases(grouped_request& x) {
  release_searches(x);
  for (auto& part : x.search().parts)
    if (part.lease != ticket{})
      outbox_.emplace_back(lookup_release{std::exchange(part.lease, {}), part.group});
}

void grouped_scheduler_state::preempt(grouped_request& x) {
  release_leases(x);
  x.preempt();
}

void grouped_scheduler_state::update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                                       std::uint32_t external_tokens) {
  auto* x = sessions_.find(request);
  if (x == nullptr)
    return;
  const bool asking = x->current_phase() == phase_of_request::asking;
  if (asking)
    passed_over_tokens_ += std::uint64_t{std::exchange(x->search().passed_over, 0)} * options_.page_tokens;
  if (x->allocated(blocks, external_tokens))
    loads_.push_back(x->session());
  else if (asking) {
    // The result is not used: the engine has the tokens itself, or computes them. Should it ask again, as after a load
    // of another connector that failed, the pages are not leased any more.
    release_leases(*x);
    const auto missed = x->search().missed;
    x->search() = {};
    x->search().missed = missed;
  }
}

// -- steps ------------------------------------------------------------------------------------------------------------

connector_metadata grouped_scheduler_state::build_connector_meta(const scheduler_output& step, timestamp now) {
  connector_metadata out;
  for (const auto id : step.preempted)
    if (auto* x = sessions_.find(id); x != nullptr && x->has_run())
      preempt(*x);
  std::uint32_t step_tokens = 0;
  bool goes_on = false;
  for (const auto& parts : {step.new_requests, step.cached_requests})
    for (const auto& part : parts)
      step_tokens += part.scheduled_tokens;
  for (const auto& part : step.cached_requests)
    goes_on = goes_on || !part.resumed;
  pace_.step(now, step_tokens, goes_on);
  emit_loads(out, now);
  for (const auto& part : step.new_requests)
    if (auto* x = sessions_.find(part.id)) {
      x->set_tables(part.blocks);
      emit_stores(*x, part, out);
    }
  for (const auto& part : step.cached_requests)
    if (auto* x = sessions_.find(part.id)) {
      if (part.resumed)
        x->set_tables(part.blocks);
      else
        x->append_tables(part.blocks);
      emit_stores(*x, part, out);
    }
  out.finished = std::exchange(finished_, {});
  return out;
}

void grouped_scheduler_state::emit_loads(connector_metadata& out, timestamp now) {
  for (const auto session : std::exchange(loads_, {})) {
    auto& x = sessions_.at(session);
    if (x.current_phase() != phase_of_request::to_load)
      continue;
    loading_.push_back({session, now, x.load_sources()});
    for (auto& op : x.take_loads()) {
      op.id = ++last_transfer_;
      open_transfer open;
      open.session = session;
      open.group = op.group;
      open.load = true;
      open.reports_missing = options_.workers;
      // Keys of a request are all different, so each one says which page it is.
      for (std::uint32_t i = 0; i < x.keys().size() && open.pages.size() < op.keys.size(); ++i)
        if (x.keys()[i] == op.keys[open.pages.size()])
          open.pages.push_back(i);
      open.done.assign(op.keys.size(), 1);
      transfers_.emplace(op.id, std::move(open));
      out.loads.push_back(std::move(op));
    }
  }
}

void grouped_scheduler_state::emit_stores(grouped_request& x, const scheduled_request& part, connector_metadata& out) {
  if (x.current_phase() == phase_of_request::asking)
    release_leases(x);
  x.run();
  x.add(part.tokens, part.hashes);
  auto end = part.computed_tokens + part.scheduled_tokens;
  if (!options_.save_generated)
    end = std::min(end, x.prompt_tokens());
  for (auto& store : x.take_stores(part.computed_tokens, end, options_.store_pages_max, options_.store_attempts_max))
    emit(x, store, out);
  for (auto& store : x.take_states(part.states, end))
    emit(x, store, out);
}

void grouped_scheduler_state::emit(const grouped_request& x, grouped_request::page_store& store,
                                   connector_metadata& out) {
  store.op.id = ++last_transfer_;
  events_.saving(source_of(x, store.op.group), store.op.id, store.pages);
  holds_.hold.insert(holds_.hold.end(), store.op.blocks.begin(), store.op.blocks.end());
  transfers_.emplace(store.op.id, open_transfer{.session = store.op.session,
                                                .group = store.op.group,
                                                .pages = std::move(store.pages),
                                                .reports_missing = options_.writers,
                                                .done = std::vector<std::uint8_t>(store.op.keys.size(), 1),
                                                .blocks = store.op.blocks});
  out.stores.push_back(std::move(store.op));
}

bool grouped_scheduler_state::request_finished(std::string_view request) {
  auto* known = sessions_.find(request);
  if (known == nullptr)
    return false;
  auto& x = *known;
  const auto session = x.session();
  sessions_.finish(x);
  const bool loading = x.current_phase() == phase_of_request::loading;
  if (x.current_phase() == phase_of_request::to_load)
    std::erase(loads_, session); // not sent to a worker yet
  if (loading) {
    x.presence = grouped_request::stay::waiting_for_reports;
    sessions_.leave(x);
    finished_.push_back({session, x.name(), true});
  } else
    drop(x);
  return loading;
}

// -- reports ----------------------------------------------------------------------------------------------------------

std::uint8_t grouped_scheduler_state::joined(const open_transfer& of, std::uint8_t before, std::uint8_t said) noexcept {
  if (said == page_filled)
    return before;
  // A page that failed on one worker has failed, whatever the others could do.
  return of.load && said == page_untried && before != page_failed ? page_untried : page_failed;
}

void grouped_scheduler_state::update_connector_output(const worker_output& output, timestamp now) {
  for (const auto& outcome : output.stores) {
    const auto i = transfers_.find(outcome.id);
    if (i == transfers_.end())
      continue;
    auto& open = i->second;
    for (std::size_t k = 0; k < open.done.size(); ++k)
      open.done[k] = joined(open, open.done[k], k < outcome.stored.size() ? outcome.stored[k] : page_failed);
    if (--open.reports_missing > 0)
      continue;
    const auto done = std::move(open);
    transfers_.erase(i);
    finish_transfer(outcome.id, done);
  }
  for (const auto& name : output.received) {
    const bool failed = std::find(output.failed.begin(), output.failed.end(), name) != output.failed.end();
    if (auto* left = sessions_.take_leaving(name)) {
      finish_load(*left, true, now);
      drop(*left);
    } else if (auto* x = sessions_.find(name))
      finish_load(*x, failed, now);
  }
}

void grouped_scheduler_state::finish_transfer(store_id id, const open_transfer& done) {
  holds_.release.insert(holds_.release.end(), done.blocks.begin(), done.blocks.end());
  auto* known = sessions_.find(done.session);
  if (known == nullptr) {
    if (!done.load && events_.wants_all())
      events_.saved({{}, {}, done.group}, id, done.pages, done.done);
    return;
  }
  auto& x = *known;
  if (done.load) {
    std::vector<std::uint32_t> bad;
    std::vector<std::uint32_t> untried;
    for (std::size_t k = 0; k < done.pages.size(); ++k)
      if (done.done[k] != page_filled)
        (done.done[k] == page_untried ? untried : bad).push_back(done.pages[k]);
    x.load_failed(done.group, bad, true);
    x.load_failed(done.group, untried, false);
    events_.not_loaded(source_of(x, done.group), bad);
    events_.not_loaded(source_of(x, done.group), untried);
    return;
  }
  x.stored(done.group, done.pages, done.done);
  events_.saved(source_of(x, done.group), id, done.pages, done.done);
}

void grouped_scheduler_state::finish_load(grouped_request& x, bool failed, timestamp now) {
  const auto open = std::find_if(loading_.begin(), loading_.end(),
                                 [&](const open_load& load) { return load.session == x.session(); });
  if (open == loading_.end())
    return;
  const auto load = *open;
  loading_.erase(open);
  release_leases(x);
  pace_.loaded(load.tokens, now - load.since, x.loaded(failed), 0, now);
}

void grouped_scheduler_state::drop(grouped_request& x) {
  release_leases(x);
  sessions_.drop(x.session());
}

bool grouped_scheduler_state::reset_cache() {
  ++epoch_;
  for (const auto& [session, x] : sessions_) {
    x->abandon();
    if (x->current_phase() == phase_of_request::asking)
      release_leases(*x);
  }
  events_.clear();
  return true;
}

std::size_t grouped_scheduler_state::leases_held() const noexcept {
  std::size_t out = 0;
  for (const auto& [session, x] : sessions_)
    for (const auto& part : x->search().parts)
      out += part.lease != ticket{} ? 1 : 0;
  return out;
}

} // namespace troupe::connector
