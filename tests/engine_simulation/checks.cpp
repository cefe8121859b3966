#include "tests/engine_simulation/checks.hpp"

#include <algorithm>

namespace troupe::engine_simulation {

using engine::request_status;

checks::checks(world& w, cache& c, const memory& m, const engine::engine_model& e, const sim_scheduler_half& half)
    : world_(w), cache_(c), memory_(m), engine_(e), half_(half) {}

void checks::fail(std::string_view property, const std::string& request, const std::string& text) {
  world_.fail(property, request + ": " + text);
}

std::span<const engine::content> checks::page_of(const engine::request& r, std::uint32_t page) const {
  const auto tokens = world_.p.page_tokens();
  return std::span(r.truth.contents).subspan(std::size_t{page} * tokens, tokens);
}

void checks::scheduled(const connector::scheduler_output& step, const connector::connector_metadata& said) {
  world_.count(seen::preemption, step.preempted.size());
  if (!said.preempted.empty())
    world_.count(seen::preemption_with_store, said.preempted.size());
  for (const auto& x : said.loads)
    check_load(x);
  for (const auto& x : said.stores)
    check_store(x, step);
  for (std::size_t i = 1; i < said.stores.size(); ++i) {
    const auto& before = said.stores[i - 1];
    if (said.stores[i].session == before.session && said.stores[i].first_page < before.first_page + before.keys.size())
      fail("P1b", before.request, "pages are not stored in order");
  }
  for (const auto& list : {step.new_requests, step.cached_requests})
    for (const auto& x : list)
      check_nothing_forgotten(x);
  check_blocks();
}

void checks::check_store(const connector::store_op& op, const connector::scheduler_output& step) {
  const auto* r = engine_.find(op.request);
  if (r == nullptr || r->status != request_status::running)
    return fail("P1a", op.request, "blocks are to be stored that the engine does not have");
  const auto per_page = world_.p.worker.blocks_per_page;
  const auto count = static_cast<std::uint32_t>(op.keys.size());
  const auto last = op.first_page + count;
  if (count == 0 || op.blocks.size() != std::size_t{count} * per_page)
    return fail("P1b", op.request, "a store that is not a multiple of a page");
  if (std::size_t{last} * per_page > r->blocks.size() ||
      std::size_t{last} * world_.p.page_tokens() > r->truth.contents.size())
    return fail("P1a", op.request, "a store goes beyond the blocks of the request");
  if (!std::equal(op.blocks.begin(), op.blocks.end(), r->blocks.begin() + std::ptrdiff_t{op.first_page} * per_page))
    fail("P1a", op.request,
         "a store of pages from " + std::to_string(op.first_page) + " names other blocks than the request has there");
  if (std::find(op.blocks.begin(), op.blocks.end(), null_block) != op.blocks.end())
    fail("P1a", op.request, "a store of blocks that the request does not have");
  std::uint32_t computed = 0;
  for (const auto& list : {step.new_requests, step.cached_requests})
    for (const auto& x : list)
      if (x.id == op.request)
        computed = std::min(x.computed_tokens + x.scheduled_tokens, r->num_tokens);
  if (last * world_.p.page_tokens() > computed)
    fail("P1b", op.request,
         "a store ends at token " + std::to_string(last * world_.p.page_tokens()) + ", and " +
             std::to_string(computed) + " are there after the step");
  for (const auto& [id, x] : stores_)
    if (!x.load && x.session == op.session && x.first < last && op.first_page < x.last)
      fail("P1b", op.request,
           "pages from " + std::to_string(op.first_page) +
               " are to be stored, and a store of some of them is under way");
  const auto* known = half_.state().find(op.request);
  if (known == nullptr || last > known->keys().size() ||
      !std::equal(op.keys.begin(), op.keys.end(), known->keys().begin() + op.first_page) ||
      op.parent != (op.first_page == 0 ? key_digest{} : known->keys()[op.first_page - 1]))
    return fail("P1b", op.request, "keys of a store are not those of its pages, or its parent is another one");
  stores_.emplace(
      op.id, open_store{op.session, op.first_page, last, world_.p.ranks, std::vector<std::uint8_t>(count, 1), false});
  check_pages(op, *r);
}

void checks::check_pages(const connector::store_op& op, const engine::request& r) {
  auto& pages = sessions_[op.session].pages;
  pages.resize(std::max(pages.size(), op.first_page + op.keys.size()));
  for (std::uint32_t i = 0; i < op.keys.size(); ++i) {
    const auto number = op.first_page + i;
    auto& x = pages[number];
    if (!x.load_failed && (x.now == page_state::stored || x.now == page_state::loaded))
      fail("P1b", op.request, "page " + std::to_string(number) + " is in the cache, and is to be stored again");
    if (!x.load_failed && x.now == page_state::failed && x.attempts >= world_.p.scheduler.store_attempts_max)
      fail("P1b", op.request, "page " + std::to_string(number) + " is tried too often");
    if (x.attempts++ > 0)
      world_.count(seen::store_retried);
    x.now = page_state::storing;
    x.load_failed = false;
    const auto parent = i == 0 ? op.parent : op.keys[i - 1];
    if (!cache_.expect(op.keys[i], parent, page_of(r, number), half_.epoch()))
      fail("P3", op.request, "page " + std::to_string(number) + " has the key of other tokens");
  }
}

/// Whatever can be stored is, or was, or need not be.
void checks::check_nothing_forgotten(const connector::scheduled_request& part) {
  const auto* known = half_.state().find(part.id);
  const auto* r = engine_.find(part.id);
  if (known == nullptr || r == nullptr || !known->usable() ||
      known->current_phase() == connector::request_tracker::phase::loading)
    return;
  auto end = std::min(part.computed_tokens + part.scheduled_tokens, r->num_tokens);
  if (!world_.p.scheduler.save_generated)
    end = std::min(end, known->prompt_tokens());
  auto& pages = sessions_[known->session()].pages;
  const auto count = std::min<std::size_t>(end / world_.p.page_tokens(), known->keys().size());
  pages.resize(std::max(pages.size(), count));
  const auto per_page = static_cast<std::ptrdiff_t>(world_.p.worker.blocks_per_page);
  for (std::size_t i = 0; i < count; ++i) {
    auto& x = pages[i];
    // From here on everything is computed from blocks that are not known to be filled.
    const auto behind = r->blocks.begin() + static_cast<std::ptrdiff_t>(i + 1) * per_page;
    if (std::any_of(r->blocks.begin(), behind, [&](auto b) { return half_.state().is_in_doubt(b); }))
      return;
    const auto first = r->blocks.begin() + static_cast<std::ptrdiff_t>(i) * per_page;
    if (!x.hole && std::find(first, first + per_page, null_block) != first + per_page) {
      x.hole = true;
      world_.count(seen::hole_not_stored);
    }
    if (x.hole)
      continue;
    if (x.now == page_state::unknown || x.now == page_state::lost ||
        (x.now == page_state::failed && x.attempts < world_.p.scheduler.store_attempts_max))
      return fail("P1b", r->spec.id, "page " + std::to_string(i) + " could be stored, and is not");
  }
}

void checks::allocating(std::string_view request, std::uint32_t pages_found) {
  const auto* known = half_.state().find(request);
  auto& pages = sessions_[known->session()].pages;
  pages.resize(std::max<std::size_t>(pages.size(), pages_found));
  for (std::size_t i = 0; i < pages_found; ++i) {
    if (!cache_.was_found(known->keys()[i]))
      return fail("P1b", known->name(), "page " + std::to_string(i) + " was never found in the cache");
    pages[i].load_failed = false;
    if (pages[i].now != page_state::storing)
      pages[i].now = page_state::stored;
  }
}

void checks::matched(const connector::engine_request& request, const connector::matched_tokens& answer, bool asked) {
  const auto* known = half_.state().find(request.id);
  const auto* r = engine_.find(request.id);
  if (known == nullptr || r == nullptr || !known->usable())
    return;
  auto& x = sessions_[known->session()];
  if (asked)
    x.asked = r->num_preemptions;
  if (answer.tokens && known->pages_to_look_up() > 0 && x.asked != r->num_preemptions)
    fail("P5", r->spec.id, "gets an answer, and the cache was not asked");
  if (answer.tokens.value_or(0) == 0 || cache_.was_killed())
    return;
  for (const auto& key : known->keys().first(known->search().matched))
    if (!cache_.is_held(key))
      fail("leases", r->spec.id, "gets tokens that nothing holds in the cache any more");
}

void checks::check_load(const connector::load_op& op) {
  const auto* r = engine_.find(op.request);
  if (r == nullptr ||
      r->status != (op.synchronous() ? request_status::running : request_status::waiting_for_remote_kvs))
    return fail("P1c", op.request, "a load for a request that waits for none");
  auto& session = sessions_[op.session];
  if (session.loaded == r->num_preemptions)
    fail("P1c", op.request, "a second load without a preemption");
  if (session.loaded != ~std::uint32_t{0})
    world_.count(seen::load_again);
  session.loaded = r->num_preemptions;
  const auto* known = half_.state().find(op.request);
  if (world_.p.scheduler.pace.rule == connector::disk_hits::never && known != nullptr && known->load_sources().disk > 0)
    fail("P1c", op.request, "a load from the disk, from which nothing is to be loaded");
  const auto per_page = world_.p.worker.blocks_per_page;
  const auto block_tokens = world_.p.engine.block_tokens;
  const auto first = r->num_local_tokens / world_.p.page_tokens();
  const auto end = r->num_local_tokens + r->num_external_tokens;
  if (end != (first + op.keys.size()) * world_.p.page_tokens() || op.blocks.size() != op.keys.size() * per_page)
    return fail("P1c", op.request,
                "a load of " + std::to_string(op.keys.size()) + " pages, and the engine waits for " +
                    std::to_string(r->num_external_tokens) + " tokens behind " + std::to_string(r->num_local_tokens));
  if (r->num_local_tokens % world_.p.page_tokens() != 0)
    world_.count(seen::load_of_computed_page);
  for (std::size_t i = 0; i < op.blocks.size(); ++i) {
    const auto position = std::size_t{first} * per_page + i;
    const auto computed = position * block_tokens < r->num_local_tokens;
    if (computed && op.blocks[i] != null_block)
      fail("P1c", op.request,
           "block " + std::to_string(op.blocks[i]) + " would be loaded, which the engine has computed itself");
    if (!computed && op.blocks[i] != r->blocks[position])
      fail("P1a", op.request,
           "a load names another block than the request has at position " + std::to_string(position));
  }
  for (std::uint32_t i = 0; i < op.keys.size(); ++i) {
    const auto* right = cache_.expected(op.keys[i]);
    const auto wanted = page_of(*r, first + i);
    if (right == nullptr || !std::equal(wanted.begin(), wanted.end(), right->contents.begin()))
      fail("P3", op.request, "page " + std::to_string(first + i) + " is loaded by the key of other tokens");
    else if (right->epoch != half_.epoch())
      return fail("P3", op.request, "a page is loaded from before the cache was reset");
  }
  session.pages.resize(std::max(session.pages.size(), first + op.keys.size()));
  if (op.synchronous())
    stores_.emplace(op.id, open_store{op.session, first, first + static_cast<std::uint32_t>(op.keys.size()),
                                      world_.p.workers(), std::vector<std::uint8_t>(op.keys.size(), 1), true});
  for (std::size_t i = first; i < first + op.keys.size(); ++i)
    if (session.pages[i].now != page_state::storing)
      session.pages[i].now = page_state::loaded;
}

/// P1d.
void checks::check_blocks() {
  for (const auto& [id, r] : engine_.schedule().requests()) {
    if (r->status != request_status::running && (r->status != request_status::waiting_for_remote_kvs || r->received))
      continue;
    const auto* known = half_.state().find(id);
    if (known == nullptr) {
      if (r->spec.cacheable && world_.p.connector)
        fail("P1d", id, "the connector does not know the request");
      continue;
    }
    const auto blocks = known->blocks();
    if (!std::equal(blocks.begin(), blocks.end(), r->blocks.begin(), r->blocks.end()))
      fail("P1d", id, "the connector's list of blocks is not the engine's");
    if (r->status == request_status::running && known->current_phase() != connector::request_tracker::phase::loading &&
        !known->search().leases.empty())
      fail("leases", id, "runs, and still holds what a lookup has found");
  }
}

void checks::reported(const connector::worker_output& output) {
  for (const auto& x : output.stores) {
    const auto i = stores_.find(x.id);
    if (i == stores_.end()) {
      world_.fail("reports", "a store is reported that there is not");
      continue;
    }
    auto& open = i->second;
    for (std::size_t k = 0; k < open.stored.size(); ++k)
      if (k >= x.stored.size() || x.stored[k] != 1)
        open.stored[k] = 0;
    if (--open.reports_missing > 0)
      continue;
    if (open.load) {
      end_synchronous_load(open);
      stores_.erase(i);
      continue;
    }
    auto& pages = sessions_[open.session].pages;
    for (std::size_t k = 0; k < open.stored.size(); ++k)
      pages[open.first + k].now = open.stored[k] != 0 ? page_state::stored : page_state::failed;
    stores_.erase(i);
  }
  if (output.load_errors.empty())
    return;
  for (const auto& [id, r] : engine_.schedule().requests()) {
    const auto* known = half_.state().find(id);
    if (known == nullptr || r->status != request_status::waiting_for_remote_kvs)
      continue;
    auto& pages = sessions_[known->session()].pages;
    for (std::size_t p = 0; p < r->blocks.size(); ++p) {
      const auto number = p / world_.p.worker.blocks_per_page;
      if (number >= pages.size() ||
          !std::binary_search(output.load_errors.begin(), output.load_errors.end(), r->blocks[p]))
        continue;
      pages[number].load_failed = true;
      if (pages[number].now != page_state::storing)
        pages[number].now = page_state::lost;
    }
  }
}

void checks::end_synchronous_load(const open_store& open) {
  auto& pages = sessions_[open.session].pages;
  for (std::size_t k = 0; k < open.stored.size(); ++k) {
    auto& x = pages[open.first + k];
    if (open.stored[k] != 0)
      continue;
    x.load_failed = true;
    if (x.now != page_state::storing)
      x.now = page_state::lost;
  }
}

/// Events about the cache's contents are possible: those keys were to be saved, behind that parent. A save that begins
/// ends once.
void checks::check_events(const std::vector<connector::cache_event>& events) {
  using kind = connector::cache_event::kind;
  for (const auto& x : events) {
    if (x.what == kind::all_cleared) {
      saving_.clear();
      forgotten_ = last_save_;
      continue;
    }
    check_save_events(x);
    const auto known = [&](const key_digest& key) { return cache_.expected(key) != nullptr; };
    if (x.page_tokens != world_.p.page_tokens() || x.keys.empty() || x.keys.size() != x.pages)
      fail("events", x.request, "an event names no pages");
    else if (x.what != kind::removed && !std::all_of(x.keys.begin(), x.keys.end(), known))
      fail("events", x.request, "an event names keys that were never saved");
  }
}

void checks::check_save_events(const connector::cache_event& x) {
  const bool begins = x.what == connector::cache_event::kind::saving;
  last_save_ = std::max(last_save_, x.save);
  for (auto page = x.first_page; x.save > forgotten_ && page < x.first_page + x.pages; ++page)
    if (!(begins ? saving_.emplace(x.save, page).second : saving_.erase({x.save, page}) > 0))
      fail("events", x.request,
           "page " + std::to_string(page) + " of save " + std::to_string(x.save) +
               (begins ? " begins twice" : " ends, and has not begun"));
}

void checks::quiet_moment() {
  if (auto wrong = engine_.check_pool(); !wrong.empty())
    world_.fail("pool", std::move(wrong));
  for (const auto& x : engine_.found())
    world_.fail(x.property, x.text);
  if (cache_.leases_known() > half_.state().leases_held() + half_.inbox())
    world_.fail("leases", "the cache holds keys for " + std::to_string(cache_.leases_known()) +
                              " leases, and the connector knows of " + std::to_string(half_.state().leases_held()));
  check_loading();
}

/// P2: whatever is being loaded belongs to one request, and that one waits for it or has left.
void checks::check_loading() {
  for (std::uint32_t worker = 0; worker < world_.p.workers(); ++worker)
    for (connector::block_id x = 1; x < engine_.pool().size(); ++x)
      if (memory_.is_loading(worker, x) && engine_.pool().references(x) != 1)
        return world_.fail("P2", "block " + std::to_string(x) + " is being loaded, and " +
                                     std::to_string(engine_.pool().references(x)) + " requests have it");
  for (const auto& [id, r] : engine_.schedule().requests()) {
    const auto may = r->finished() || (r->status == request_status::waiting_for_remote_kvs && !r->received);
    if (may)
      continue;
    for (const auto x : r->blocks)
      for (std::uint32_t worker = 0; worker < world_.p.workers() && x != null_block; ++worker)
        if (memory_.is_loading(worker, x))
          return fail("P2", id, "has block " + std::to_string(x) + ", which is being loaded for another request");
  }
}

} // namespace troupe::engine_simulation
