#include "tests/group_simulation/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace troupe::group_simulation {

namespace {

using std::chrono::milliseconds;

std::vector<page_group> groups_for_rules(const world& w) {
  auto out = w.made.groups;
  for (auto& x : out) {
    if (w.has(defect::short_window) && x.kind == group_kind::window)
      x.tokens = x.tokens > x.block_tokens ? x.tokens - x.block_tokens : 1;
    if (w.has(defect::forget_extra))
      x.extra_tokens = 0;
    if (w.has(defect::chunk_as_window) && x.kind == group_kind::chunk)
      x.kind = group_kind::window;
  }
  return out;
}

connector::grouped_options options_of(world& w) {
  auto& random = w.random;
  connector::grouped_options out;
  out.groups = groups_for_rules(w);
  out.page_tokens = w.made.page_tokens;
  out.workers = w.made.workers_of_group();
  out.writers = w.made.ranks();
  out.lookup_keys_max = random.one_in(2) ? 4096 : random.number(1, 6);
  out.lookups_max = random.one_in(2) ? 256 : random.number(1, 16);
  out.early_lookups_max = random.one_in(3) ? random.below(4) : 512;
  out.lease = milliseconds(random.number(800, 4000));
  out.lookup_patience = milliseconds(random.number(100, 2500));
  if (w.has(defect::wait_for_peers))
    out.lookup_patience = std::chrono::hours(10'000);
  out.store_attempts_max = random.number(1, 3);
  out.store_pages_max = random.one_in(2) ? 4096 : random.number(1, 4);
  out.save_generated = !random.one_in(4);
  out.min_load_tokens = random.one_in(4) ? random.number(1, 2 * w.made.page_tokens) : 0;
  if (random.one_in(4))
    out.pace.rule = random.one_in(2) ? connector::disk_hits::never : connector::disk_hits::when_faster;
  return out;
}

} // namespace

scheduler_side::scheduler_side(world& w, cache& c, block_pool& pool)
    : world_(w), cache_(c), pool_(pool), options_(options_of(w)),
      rules_(std::make_unique<connector::grouped_scheduler_state>(options_)),
      tokens_(std::size_t{w.made.prompt_max} + w.made.output_max + 2, 0) {}

connector::engine_request scheduler_side::said_of(const request& x) {
  connector::engine_request out;
  out.id = x.name;
  const bool one_more = world_.has(defect::whole_request);
  out.tokens = {0, std::span(tokens_).first(x.tokens() + (one_more ? 1 : 0))};
  out.hashes = {0, x.hashes};
  return out;
}

// -- effects ----------------------------------------------------------------------------------------------------------

void scheduler_side::receive() {
  const auto before = caller_;
  for (auto& [lookup, answer] : std::exchange(inbox_, {})) {
    const auto asked = asked_.extract(lookup).mapped();
    const bool fetched = asked.step == peer_step::kind::fetch;
    if (answer && answer->matched > 0)
      cache_.delivered(answer->lease);
    if (answer && answer->search != 0)
      cache_.delivered_search(answer->search);
    if (answer && fetched)
      fetched_leases_.insert(answer->lease);
    const bool alone = world_.has(defect::full_alone) && world_.made.groups.front().kind == group_kind::full;
    const bool others = world_.has(defect::stage_alone) && world_.made.groups[asked.group].stage > 1;
    const bool spoiled = others || (alone && world_.made.groups[asked.group].kind != group_kind::full) ||
                         (world_.has(defect::believe_fetches) && fetched);
    if (spoiled && answer) {
      answer->matched = static_cast<std::uint32_t>(asked.keys.size());
      answer->found.items.assign(asked.keys.size(), 1);
    }
    note_found(lookup, asked, answer);
    if (answer && world_.has(defect::prefix_only)) {
      auto& marks = answer->found.items;
      std::fill(std::find(marks.begin(), marks.end(), 0), marks.end(), std::uint8_t{0});
    }
    rules_->on_lookup(lookup, answer, world_.now());
    // The next step of the same request's lookup.
    caller_ = asked.asker;
    flush();
  }
  caller_ = before;
  flush();
}

void scheduler_side::note_failed(const connector::store_outcome& outcome) {
  const auto load = loads_.find(outcome.id);
  if (load == loads_.end())
    return;
  auto& open = load->second;
  for (std::size_t k = 0; k < open.keys.size(); ++k)
    if (outcome.stored[k] == 0)
      open.failed.insert(open.keys[k]);
  // The rules know it when all workers have reported, which may be after a save of the page.
  const auto x = alive_.find(open.life);
  if (--open.reports_missing == 0 && x != alive_.end())
    for (const auto& key : open.failed)
      x->second->bad.emplace(open.group, key);
}

void scheduler_side::note_found(std::uint64_t lookup, const asked_keys& asked, const result<lookup_result>& answer) {
  const auto x = alive_.find(asked.asker);
  if (x == alive_.end())
    return;
  auto& search = searches_[asked.asker];
  const bool current = search.waiting.erase(lookup) > 0;
  if (asked.step == peer_step::kind::search) {
    for (std::size_t i = 0; answer && current && i < answer->found.size(); ++i)
      if (answer->found[i] != 0)
        search.at_peers.emplace(asked.group, asked.keys[i]);
    return;
  }
  for (std::size_t i = 0; answer && i < answer->found.size(); ++i)
    if (answer->found[i] != 0) {
      const std::pair place{asked.group, asked.keys[i]};
      x->second->known.insert(place);
      if (current && !x->second->bad.contains(place))
        search.found.insert(place);
    }
}

void scheduler_side::flush() {
  bool first = true;
  std::vector<connector::lookup_submit> fetches;
  for (auto& effect : rules_->take_outbox()) {
    if (auto* x = std::get_if<connector::lookup_submit>(&effect)) {
      const auto step = x->work.peers.what;
      if (step == peer_step::kind::none && std::exchange(first, false))
        searches_[caller_] = {world_.now(), {}, {}, {}, false};
      if (step == peer_step::kind::search && std::exchange(first, false))
        searches_[caller_].at_peers.clear();
      if (step == peer_step::kind::fetch) {
        spoil_fetch(*x);
        fetches.push_back(*x);
      }
      submit(*x);
    } else if (const auto* y = std::get_if<connector::lookup_release>(&effect)) {
      if (!world_.has(defect::keep_fetched_leases) || !fetched_leases_.contains(y->lease))
        cache_.release(y->lease);
    } else if (const auto* z = std::get_if<connector::search_release>(&effect)) {
      world_.count("search released");
      if (!world_.has(defect::keep_searches))
        cache_.end_search(z->search);
    } else
      retain(std::get<connector::lookup_retain>(effect));
  }
  if (!fetches.empty())
    check_fetched(fetches);
}

void scheduler_side::submit(connector::lookup_submit& x) {
  constexpr const char* names[] = {"lookup", "search", "fetch"};
  const auto step = x.work.peers.what;
  world_.count(names[static_cast<int>(step)]);
  searches_[caller_].waiting.insert(x.lookup);
  asked_.emplace(x.lookup, asked_keys{caller_, x.group, x.work.keys.items, step});
  const bool lost = world_.has(defect::wait_for_peers) && step != peer_step::kind::none && world_.random.one_in(4);
  cache_.look_up(caller_, x.group, x.work, [this, lost, lookup = x.lookup](result<lookup_result> answer) {
    if (!lost)
      inbox_.emplace_back(lookup, std::move(answer));
  });
}

void scheduler_side::retain(const connector::lookup_retain& x) {
  if (!world_.has(defect::keep_fetched_leases) || !fetched_leases_.contains(x.lease))
    cache_.retain(x.lease, x.keys);
}

void scheduler_side::spoil_fetch(connector::lookup_submit& x) {
  const auto who = alive_.find(caller_);
  const auto& group = world_.made.groups[x.group];
  if (!world_.has(defect::fetch_for_stale_hit) || who == alive_.end() || group.kind != group_kind::window)
    return;
  // Pages that a shorter hit would need, and this one does not.
  const auto& keys = who->second->keys;
  const auto& there = searches_[caller_].at_peers;
  const auto first = std::find(keys.begin(), keys.end(), x.work.keys.items.front());
  for (auto i = keys.begin(); i != first; ++i)
    if (there.contains({x.group, *i}))
      x.work.keys.items.push_back(*i);
}

void scheduler_side::check_fetched(const std::vector<connector::lookup_submit>& fetches) {
  const auto who = alive_.find(caller_);
  if (who == alive_.end())
    return world_.broken("fetched", "pages are fetched for a request that has ended");
  const auto& x = *who->second;
  const auto& search = searches_[caller_];
  auto there = search.found;
  there.insert(search.at_peers.begin(), search.at_peers.end());
  const auto pages = longest(x, there);
  std::set<std::pair<std::uint32_t, key_digest>> needed;
  for (std::uint32_t g = 0; g < world_.made.groups.size(); ++g)
    for (auto i = first_page(world_.made, g, pages * world_.made.page_tokens); i < pages; ++i)
      if (!search.found.contains({g, x.keys[i]}))
        needed.emplace(g, x.keys[i]);
  std::set<std::pair<std::uint32_t, key_digest>> named;
  for (const auto& each : fetches)
    for (std::size_t k = 0; k < each.work.keys.size(); ++k) {
      const auto& key = each.work.keys[k];
      if (!named.emplace(each.group, key).second)
        world_.broken("fetched", "a page is fetched twice");
      const auto& parents = each.work.peers.parents;
      const auto page = static_cast<std::size_t>(std::find(x.keys.begin(), x.keys.end(), key) - x.keys.begin());
      const bool full = world_.made.groups[each.group].kind == group_kind::full;
      if (parents.size() != (full ? each.work.keys.size() : 0) ||
          (full && parents[k] != (page > 0 ? x.keys[page - 1] : key_digest{})))
        world_.broken("fetched", "a page is fetched with another parent");
    }
  if (named != needed)
    world_.broken("fetched", "for a hit of " + std::to_string(pages) + " pages of " + x.name + ", " +
                                 std::to_string(named.size()) + " pages are fetched, and " +
                                 std::to_string(needed.size()) + " are missing");
}

void scheduler_side::hold(block_id block) {
  if (block >= pool_.size() || block == empty_block || pool_.users(block) == 0)
    return world_.broken("holds", "block " + std::to_string(block) + " is to be held, which no request has");
  held_.insert(block);
  pool_.use(block);
}

void scheduler_side::let_go(block_id block) {
  const auto i = held_.find(block);
  if (i == held_.end())
    return world_.broken("holds", "block " + std::to_string(block) + " is released, which is not held");
  held_.erase(i);
  pool_.free(block);
}

void scheduler_side::take_holds() {
  auto said = rules_->take_block_holds();
  if (world_.has(defect::ignore_holds))
    return;
  if (world_.has(defect::release_early)) {
    for (const auto block : said.hold)
      hold(block);
    late_holds_.insert(late_holds_.end(), said.hold.begin(), said.hold.end());
    return;
  }
  if (world_.has(defect::late_save))
    said.hold.swap(late_holds_);
  for (const auto block : said.hold)
    hold(block);
  for (const auto block : said.release)
    let_go(block);
}

// -- requests ---------------------------------------------------------------------------------------------------------

void scheduler_side::on_new_request(request& x) {
  caller_ = x.life;
  receive();
  alive_[x.life] = &x;
  rules_->on_new_request(said_of(x), world_.now());
  flush();
}

connector::matched_tokens scheduler_side::match(request& x, std::uint32_t computed) {
  caller_ = x.life;
  alive_[x.life] = &x;
  receive();
  const auto out = rules_->get_num_new_matched_tokens(said_of(x), computed, world_.now());
  flush();
  if (!out.tokens) {
    world_.count("hit not known yet");
    return out;
  }
  check_longest(x, computed, *out.tokens);
  if (cache_.has_search(x.life))
    world_.broken("leases", "peers hold pages for " + x.name + ", whose hit is decided");
  if (*out.tokens == 0)
    return out;
  if (!out.asynchronous)
    world_.broken("engine", "a hit of a model with several groups is to be loaded in the step");
  check_hit(x, computed + *out.tokens);
  return out;
}

void scheduler_side::check_hit(request& x, std::uint32_t length) {
  const auto& made = world_.made;
  const auto what = [&](std::uint32_t g) {
    return "a hit of " + std::to_string(length) + " of " + std::to_string(x.tokens()) + " tokens of " + x.name +
           ", group " + std::to_string(g) + ": ";
  };
  if (length % made.page_tokens != 0 || length >= x.tokens())
    return world_.broken("hits", what(0) + "not a number of pages before the last token");
  for (std::uint32_t g = 0; g < made.groups.size(); ++g) {
    std::set<key_digest> needed;
    for (auto i = first_page(made, g, length); i < length / made.page_tokens; ++i) {
      needed.insert(x.keys[i]);
      if (!cache_.was_promised(g, x.keys[i]))
        world_.broken("hits", what(g) + "page " + std::to_string(i) + " is not there on all ranks");
      if (x.bad.contains({g, x.keys[i]}))
        world_.broken("again", what(g) + "page " + std::to_string(i) + " could not be loaded before");
    }
    const auto leased = cache_.leased(x.life, g);
    if (!leased)
      world_.broken("leases", what(g) + "the lease has expired");
    else if (*leased != needed)
      world_.broken("leases", what(g) + std::to_string(leased->size()) + " pages are leased, and " +
                                  std::to_string(needed.size()) + " are needed");
    if (!needed.empty() && needed.size() < length / made.page_tokens)
      world_.count("hit with a part of a group");
  }
  world_.count("hit");
}

std::uint32_t scheduler_side::longest(const request& x,
                                      const std::set<std::pair<std::uint32_t, key_digest>>& there) const {
  const auto& made = world_.made;
  const auto whole = [&](std::uint32_t pages) {
    bool any = false;
    for (std::uint32_t g = 0; g < made.groups.size(); ++g)
      for (auto i = first_page(made, g, pages * made.page_tokens); i < pages; ++i) {
        any = true;
        if (!there.contains({g, x.keys[i]}))
          return false;
      }
    return any;
  };
  auto pages = (x.tokens() - 1) / made.page_tokens;
  while (pages > 0 && !whole(pages))
    --pages;
  return pages;
}

void scheduler_side::check_longest(const request& x, std::uint32_t computed, std::uint32_t tokens) {
  auto& search = searches_[x.life];
  search.cut = search.cut || !search.waiting.empty();
  // Leases that have nearly expired are not used, and hits on disk are another matter.
  if (search.cut || options_.pace.rule != connector::disk_hits::always || x.failed_loads >= 3 ||
      world_.now() - search.since > options_.lease / 8)
    return;
  const auto& made = world_.made;
  const auto pages = longest(x, search.found);
  const auto more = pages * made.page_tokens > computed ? pages * made.page_tokens - computed : 0;
  if (tokens < more && more >= options_.min_load_tokens)
    world_.broken("longest", "a hit of " + x.name + " has " + std::to_string(tokens) + " tokens, although " +
                                 std::to_string(more) + " were found");
}

connector::block_tables scheduler_side::flat(const std::vector<std::vector<block_id>>& tables, bool without_named) {
  auto& out = tables_.emplace_back();
  for (const auto& table : tables) {
    for (const auto block : table) {
      const bool null = block == empty_block || (without_named && pool_.has_name(block));
      const bool kept = block == empty_block && without_named && world_.has(defect::load_null_blocks);
      out.blocks.push_back(null && !kept ? null_block : block);
    }
    out.ends.push_back(static_cast<std::uint32_t>(out.blocks.size()));
  }
  return {out.blocks, out.ends};
}

void scheduler_side::allocated(request& x, const std::vector<std::vector<block_id>>& tables, std::uint32_t external) {
  caller_ = x.life;
  receive();
  if (external > 0)
    loading_[x.name] = &x;
  rules_->update_state_after_alloc(x.name, external > 0 ? flat(tables, true) : connector::block_tables{}, external);
  flush();
  tables_.clear();
}

bool scheduler_side::finished(request& x) {
  caller_ = x.life;
  receive();
  const bool waits = rules_->request_finished(x.name);
  flush();
  late_offers_.erase(x.name);
  return waits;
}

// -- steps ------------------------------------------------------------------------------------------------------------

std::vector<connector::state_offer> scheduler_side::spoiled_offers(const step_part& of) {
  auto out = of.offers;
  if (world_.has(defect::shifted_state))
    for (auto& each : out)
      each.tokens -= world_.made.page_tokens;
  if (world_.has(defect::late_state)) {
    auto& waiting = late_offers_[of.who->name];
    waiting.push_back(std::exchange(out, {}));
    if (waiting.size() > 2) {
      out = std::move(waiting.front());
      waiting.pop_front();
    }
  }
  return out;
}

void scheduler_side::name_drafts(const request& x, std::vector<connector::block_hash>& hashes,
                                 connector::scheduled_request& said) {
  const auto tokens = x.tokens() + static_cast<std::uint32_t>(x.drafts.size());
  for (auto end = (hashes.size() + 1) * world_.made.page_tokens; end <= tokens; end += world_.made.page_tokens)
    hashes.push_back(hash_of(x.with_drafts(end)));
  said.tokens = {0, std::span(tokens_).first(tokens)};
  said.hashes = {0, hashes};
}

connector::connector_metadata scheduler_side::build(const step& of) {
  receive();
  std::deque<std::vector<connector::state_offer>> offers;
  std::deque<std::vector<connector::block_hash>> hashes;
  std::vector<connector::scheduled_request> fresh;
  std::vector<connector::scheduled_request> cached;
  for (const auto& part : of.parts) {
    connector::scheduled_request said;
    said.id = part.who->name;
    said.computed_tokens = part.computed;
    said.scheduled_tokens = part.scheduled;
    if (world_.has(defect::stale_tables))
      said.scheduled_tokens += std::exchange(said.computed_tokens, 0);
    said.resumed = part.resumed;
    said.blocks = flat(part.blocks, false);
    const auto whole = said_of(*part.who);
    said.tokens = whole.tokens;
    said.hashes = whole.hashes;
    said.states = offers.emplace_back(spoiled_offers(part));
    if (world_.has(defect::save_drafts) && !part.who->drafts.empty())
      name_drafts(*part.who, hashes.emplace_back(part.who->hashes), said);
    (part.is_new ? fresh : cached).push_back(said);
  }
  const std::vector<std::string_view> preempted(of.preempted.begin(), of.preempted.end());
  auto out = rules_->build_connector_meta({fresh, cached, preempted}, world_.now());
  flush();
  tables_.clear();
  take_holds();
  note_stores(of, out);
  spoil(out);
  check_loads(out);
  return out;
}

void scheduler_side::spoil(connector::connector_metadata& said) {
  if (world_.has(defect::late_save))
    said.stores.swap(late_stores_);
  if (world_.has(defect::full_alone) && world_.made.groups.front().kind == group_kind::full)
    std::erase_if(said.loads,
                  [&](const connector::load_op& op) { return world_.made.groups[op.group].kind != group_kind::full; });
  if (world_.has(defect::stage_alone))
    std::erase_if(said.loads, [&](const connector::load_op& op) { return world_.made.groups[op.group].stage > 1; });
  if (!world_.has(defect::load_over_computed))
    return;
  for (auto& op : said.loads) {
    const auto& x = *loading_.at(op.request);
    const auto& group = world_.made.groups[op.group];
    if (group.kind != group_kind::full || x.load_first < world_.made.page_tokens)
      continue;
    op.keys.insert(op.keys.begin(), x.keys.front());
    std::vector<block_id> blocks;
    for (const auto t : group.tables)
      for (std::uint32_t b = 0; b < world_.made.page_tokens / group.block_tokens; ++b)
        blocks.push_back(x.tables[t][b]);
    op.blocks.insert(op.blocks.begin(), blocks.begin(), blocks.end());
  }
}

void scheduler_side::check_loads(const connector::connector_metadata& said) {
  const auto& made = world_.made;
  for (const auto& op : said.loads) {
    const auto i = loading_.find(op.request);
    if (i == loading_.end()) {
      world_.broken("loads", op.request + " is loaded, but not allocated for that");
      continue;
    }
    const auto& x = *i->second;
    loads_[op.id] = {x.life, op.group, op.keys, made.workers_of_group(), {}};
    const auto& group = made.groups[op.group];
    const auto per_page = made.page_tokens / group.block_tokens;
    auto at = op.blocks.begin();
    for (const auto& key : op.keys) {
      const auto page = static_cast<std::uint32_t>(std::find(x.keys.begin(), x.keys.end(), key) - x.keys.begin());
      bool right = page >= first_page(made, op.group, x.load_last) && page * made.page_tokens >= x.load_first &&
                   page * made.page_tokens < x.load_last &&
                   op.blocks.size() == op.keys.size() * made.blocks_per_page(op.group);
      for (std::size_t n = 0; right && n < group.tables.size() * per_page; ++n, ++at) {
        const auto block = x.tables[group.tables[n / per_page]][page * per_page + n % per_page];
        right = *at == (block != empty_block && pool_.loaded_for(block) == x.life ? block : null_block);
      }
      if (!right)
        world_.broken("loads", op.request + ": page " + std::to_string(page) + " of group " + std::to_string(op.group) +
                                   " is loaded, or goes to other blocks, than its hit of " +
                                   std::to_string(x.load_last) + " tokens needs");
    }
  }
}

void scheduler_side::note_stores(const step& of, const connector::connector_metadata& said) {
  if (!said.preempted.empty())
    world_.broken("engine", "saves of a preempted request are cancelled, although its blocks are held");
  for (const auto& op : said.stores) {
    world_.count("save ordered");
    life_number life = 0;
    for (const auto& [number, x] : alive_)
      if (x->name == op.request && x->now != request::phase::leaving) {
        life = number;
        for (const auto& key : op.keys)
          ++x->saves[{op.group, key}];
      }
    stores_.emplace(
        op.id, open_store{life, op.group, op.keys, world_.made.ranks(), std::vector<std::uint8_t>(op.keys.size(), 1)});
  }
  for (const auto& part : of.parts)
    check_nothing_forgotten(part);
}

void scheduler_side::check_nothing_forgotten(const step_part& part) {
  const auto& x = *part.who;
  const auto page_tokens = world_.made.page_tokens;
  // The page of a token that a step before has drafted is known only now.
  const auto begin = part.computed - std::min(part.computed, world_.made.drafts);
  auto end = std::min(part.computed + part.scheduled, x.tokens());
  if (!options_.save_generated)
    end = std::min(end, x.prompt);
  for (std::uint32_t g = 0; g < world_.made.groups.size(); ++g) {
    const auto& group = world_.made.groups[g];
    if (group.kind == group_kind::state) {
      const auto offered = [&](std::uint32_t table) {
        return std::any_of(part.offers.begin(), part.offers.end(),
                           [&](const connector::state_offer& each) { return each.table == table; });
      };
      if (std::all_of(group.tables.begin(), group.tables.end(), offered) && part.offers.front().tokens <= end)
        check_saved(part, g, part.offers.front().tokens / page_tokens - 1);
      continue;
    }
    const auto per_page = page_tokens / group.block_tokens;
    for (auto i = begin / page_tokens; i < end / page_tokens; ++i) {
      bool whole = true;
      for (const auto t : group.tables)
        for (auto b = i * per_page; b < (i + 1) * per_page; ++b)
          whole = whole && x.tables[t][b] != empty_block;
      if (whole)
        check_saved(part, g, i);
    }
  }
}

void scheduler_side::check_saved(const step_part& part, std::uint32_t group, std::uint32_t page) {
  const auto& x = *part.who;
  const std::pair place{group, x.keys[page]};
  if (!x.known.contains(place) && !x.saves.contains(place))
    world_.broken("forgotten", "page " + std::to_string(page) + " of group " + std::to_string(group) + " of " + x.name +
                                   " is complete, and not to be saved");
}

void scheduler_side::report(const connector::worker_output& output) {
  receive();
  auto said = output;
  for (auto& outcome : said.stores) {
    note_failed(outcome);
    if (loads_.contains(outcome.id) && world_.has(defect::offer_again))
      std::fill(outcome.stored.begin(), outcome.stored.end(), std::uint8_t{1});
    const auto i = stores_.find(outcome.id);
    if (i == stores_.end())
      continue;
    auto& open = i->second;
    for (std::size_t k = 0; k < open.done.size(); ++k)
      if (outcome.stored[k] != 1)
        open.done[k] = 0;
    if (--open.reports_missing > 0)
      continue;
    if (const auto x = alive_.find(open.life); x != alive_.end())
      for (std::size_t k = 0; k < open.done.size(); ++k)
        if (open.done[k] != 0)
          x->second->bad.erase({open.group, open.keys[k]});
    stores_.erase(i);
  }
  rules_->update_connector_output(said, world_.now());
  flush();
  if (world_.has(defect::release_early)) {
    for (const auto block : std::exchange(late_holds_, {}))
      let_go(block);
    rules_->take_block_holds();
    return;
  }
  // Only now there is something to release.
  const auto held_late = std::exchange(late_holds_, {});
  take_holds();
  late_holds_.insert(late_holds_.begin(), held_late.begin(), held_late.end());
}

} // namespace troupe::group_simulation
