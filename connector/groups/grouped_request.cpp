#include "connector/groups/grouped_request.hpp"

#include <algorithm>
#include <utility>

namespace troupe::connector {

grouped_request::grouped_request(session_id session, std::string name, key_chain keys,
                                 std::span<const page_group> groups, std::uint32_t page_tokens,
                                 std::uint32_t prompt_tokens)
    : session_(session), name_(std::move(name)), keys_(std::move(keys)), groups_(groups), page_tokens_(page_tokens),
      prompt_tokens_(prompt_tokens), tables_(table_count(groups)), pages_(groups.size()) {}

void grouped_request::add(const token_range& tokens, const hash_range& hashes) {
  if (!keys_.add_tokens(tokens) || !keys_.add_hashes(hashes))
    usable_ = false;
}

std::uint32_t grouped_request::pages_to_look_up() const noexcept {
  const auto known = keys_.known_tokens();
  if (!usable_ || known == 0)
    return 0;
  return std::min(static_cast<std::uint32_t>(keys_.keys().size()), (known - 1) / page_tokens_);
}

// -- lookup -----------------------------------------------------------------------------------------------------------

void grouped_request::begin_lookup(std::uint32_t pages, timestamp now) {
  const auto missed = lookup_.missed;
  lookup_ = {};
  lookup_.missed = missed;
  lookup_.now = lookup::status::under_way;
  lookup_.since = now;
  lookup_.found.assign(groups_.size(), std::vector<std::uint8_t>(pages, 0));
  lookup_.on_disk.assign(groups_.size(), std::vector<std::uint8_t>(pages, 0));
}

void grouped_request::begin_search(timestamp now) {
  if (lookup_.searched++ == 0)
    lookup_.searched_since = now;
  lookup_.at = lookup::step::searching;
  lookup_.searches.clear();
  lookup_.at_peers.assign(groups_.size(), std::vector<std::uint8_t>(lookup_.found.front().size(), 0));
}

void grouped_request::take_marks(const lookup_part& part, std::span<const std::uint8_t> found,
                                 std::span<const std::uint8_t> on_disk) {
  auto& marks = lookup_.found[part.group];
  auto& tiers = lookup_.on_disk[part.group];
  const auto& distrusted = pages_[part.group].distrusted;
  lookup_.tiers_known = lookup_.tiers_known && on_disk.size() >= found.size();
  for (std::size_t i = 0; i < found.size() && i < part.pages.size(); ++i) {
    const auto page = part.pages[i];
    marks[page] = found[i] != 0 && !distrusted.contains(page) ? part.mark : 0;
    tiers[page] = i < on_disk.size() ? on_disk[i] : 0;
  }
}

std::uint32_t grouped_request::longest(std::uint32_t limit) const {
  return longest_hit(groups_, lookup_.found, limit, page_tokens_);
}

std::uint32_t grouped_request::longest() const {
  return lookup_.found.empty() ? 0 : longest(static_cast<std::uint32_t>(lookup_.found.front().size()));
}

std::uint32_t grouped_request::highest_hit() const {
  auto marks = lookup_.found;
  for (std::size_t g = 0; g < marks.size(); ++g)
    for (std::uint32_t i = 0; i < marks[g].size(); ++i)
      marks[g][i] = pages_[g].distrusted.contains(i) ? 0 : 1;
  return longest_hit(groups_, marks, static_cast<std::uint32_t>(marks.front().size()), page_tokens_);
}

std::vector<std::vector<std::uint32_t>> grouped_request::pages_to_search() const {
  const auto hit = longest();
  const auto highest = highest_hit();
  std::vector<std::vector<std::uint32_t>> out(groups_.size());
  for (std::size_t g = 0; g < groups_.size() && highest > hit; ++g) {
    out[g] = pages_missing(groups_[g], lookup_.found[g], hit, highest, page_tokens_);
    std::erase_if(out[g], [&](std::uint32_t page) { return pages_[g].distrusted.contains(page); });
  }
  return out;
}

void grouped_request::take_peer_marks(const search_part& part, std::span<const std::uint8_t> found) {
  for (std::size_t i = 0; i < found.size() && i < part.pages.size(); ++i)
    lookup_.at_peers[part.group][part.pages[i]] = found[i];
}

std::uint32_t grouped_request::longest_with_peers() const {
  auto marks = lookup_.found;
  for (std::size_t g = 0; g < marks.size(); ++g)
    for (std::size_t i = 0; i < marks[g].size(); ++i)
      marks[g][i] |= lookup_.at_peers[g][i];
  return longest_hit(groups_, marks, static_cast<std::uint32_t>(marks.front().size()), page_tokens_);
}

std::vector<std::uint32_t> grouped_request::pages_to_fetch(const search_part& part, std::uint32_t hit) const {
  const auto span = needed(part.group, hit);
  auto out = part.pages;
  std::erase_if(out, [&](std::uint32_t page) {
    return page < span.first || page >= span.last || lookup_.at_peers[part.group][page] == 0;
  });
  return out;
}

std::vector<key_digest> grouped_request::keys_of(std::span<const std::uint32_t> pages) const {
  std::vector<key_digest> out;
  out.reserve(pages.size());
  for (const auto page : pages)
    out.push_back(keys_.keys()[page]);
  return out;
}

std::vector<key_digest> grouped_request::parents_of(std::uint32_t group, std::span<const std::uint32_t> pages) const {
  std::vector<key_digest> out;
  if (groups_[group].kind == group_kind::full)
    for (const auto page : pages)
      out.push_back(page > 0 ? keys_.keys()[page - 1] : key_digest{});
  return out;
}

std::vector<key_digest> grouped_request::keys_to_keep(const lookup_part& part, std::uint32_t hit) const {
  const auto span = needed(part.group, hit);
  std::vector<key_digest> out;
  for (const auto page : part.pages)
    if (page >= span.first && page < span.last && lookup_.found[part.group][page] == part.mark)
      out.push_back(keys_.keys()[page]);
  return out;
}

page_range grouped_request::needed(std::uint32_t group, std::uint32_t hit) const noexcept {
  return {first_page_needed(groups_[group], hit, page_tokens_), hit};
}

std::vector<std::uint8_t> grouped_request::tiers_of(std::uint32_t hit) const {
  if (!lookup_.tiers_known)
    return {};
  std::vector<std::uint8_t> out(hit, 0);
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    for (auto i = needed(g, hit).first; i < hit; ++i)
      out[i] = out[i] != 0 || lookup_.on_disk[g][i] != 0 ? 1 : 0;
  return out;
}

std::uint32_t grouped_request::new_tokens(std::uint32_t computed) noexcept {
  computed_ = computed;
  const auto end = lookup_.hit * page_tokens_;
  return end > computed ? end - computed : 0;
}

hit_sources grouped_request::sources(std::uint32_t first, std::uint32_t last) const noexcept {
  hit_sources out;
  for (auto at = first; at < last;) {
    const auto page = at / page_tokens_;
    const auto next = std::min(last, (page + 1) * page_tokens_);
    const auto& tiers = lookup_.hit_on_disk;
    auto& tier = page >= tiers.size() ? out.unknown : tiers[page] != 0 ? out.disk : out.memory;
    tier += next - at;
    at = next;
  }
  return out;
}

// -- blocks -----------------------------------------------------------------------------------------------------------

void grouped_request::set_tables(const block_tables& blocks) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const auto table = blocks.table(t);
    tables_[t].assign(table.begin(), table.end());
  }
}

void grouped_request::append_tables(const block_tables& blocks) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const auto table = blocks.table(t);
    tables_[t].insert(tables_[t].end(), table.begin(), table.end());
  }
}

bool grouped_request::allocated(const block_tables& blocks, std::uint32_t external_tokens) {
  if (phase_ == phase::loading || phase_ == phase::to_load)
    return false; // the second call for a load changes nothing
  set_tables(blocks);
  if (phase_ != phase::asking)
    return false;
  grow();
  // Pages behind the hit are stored again, though they were found: no lease holds them, and other groups lack pages of
  // theirs, so they may be evicted first. The node answers that it has them, and then counts them as young.
  const auto hit = (computed_ + external_tokens) / page_tokens_;
  for (std::size_t g = 0; g < lookup_.found.size(); ++g)
    for (std::size_t i = 0; i < std::min<std::size_t>(lookup_.found[g].size(), hit); ++i)
      if (lookup_.found[g][i] != 0 && pages_[g].states[i] != page_state::storing)
        pages_[g].states[i] = page_state::stored;
  if (external_tokens == 0 || !may_load())
    return false;
  load_first_ = computed_;
  load_last_ = computed_ + external_tokens;
  load_failed_ = false;
  phase_ = phase::to_load;
  return true;
}

std::vector<load_op> grouped_request::take_loads() {
  phase_ = phase::loading;
  std::vector<load_op> out;
  const auto hit = std::min(load_last_ / page_tokens_, static_cast<std::uint32_t>(keys_.keys().size()));
  const bool offered = hit > 0 && hit * page_tokens_ == load_last_;
  for (std::uint32_t g = 0; g < groups_.size() && offered; ++g) {
    const auto per_page = page_tokens_ / groups_[g].block_tokens;
    auto op = new_load(g);
    for (auto page = std::max(needed(g, hit).first, load_first_ / page_tokens_); page < hit; ++page) {
      const auto before = op.blocks.size();
      bool wanted = false;
      for (const auto t : groups_[g].tables)
        for (auto b = page * per_page; b < (page + 1) * per_page; ++b) {
          // Computed blocks may be shared with running requests, so they are not overwritten.
          const bool fresh = (b + 1) * groups_[g].block_tokens > load_first_;
          op.blocks.push_back(fresh && b < tables_[t].size() ? tables_[t][b] : null_block);
          wanted = wanted || op.blocks.back() != null_block;
        }
      if (wanted)
        op.keys.push_back(keys_.keys()[page]);
      else
        op.blocks.resize(before);
    }
    if (!op.keys.empty())
      out.push_back(std::move(op));
  }
  if (out.empty()) {
    out.push_back(new_load(0));
    out.back().keys.push_back(keys_.keys().empty() ? key_digest{} : keys_.keys().front()); // without blocks: it fails
  }
  return out;
}

load_op grouped_request::new_load(std::uint32_t group) const {
  load_op out;
  out.session = session_;
  out.request = name_;
  out.group = group;
  return out;
}

void grouped_request::load_failed(std::uint32_t group, std::span<const std::uint32_t> pages, bool distrust) {
  if (phase_ != phase::loading)
    return;
  load_failed_ = load_failed_ || !pages.empty();
  auto& its = pages_[group];
  for (const auto page : pages) {
    if (distrust)
      its.distrusted.insert(page);
    // A store from before a preemption may still be reported: its report decides the state of the page.
    if (page < its.states.size() && its.states[page] != page_state::storing) {
      its.states[page] = page_state::unknown;
      its.cursor = std::min(its.cursor, page);
    }
  }
}

bool grouped_request::loaded(bool failed) {
  if (phase_ != phase::loading)
    return true;
  const bool whole = !failed && !load_failed_;
  if (whole) {
    phase_ = phase::active;
    return true;
  }
  ++failed_loads_;
  preempt();
  return false;
}

void grouped_request::run() noexcept {
  has_run_ = true;
  if (phase_ == phase::asking)
    phase_ = phase::active;
}

void grouped_request::preempt() {
  phase_ = phase::asking;
  has_run_ = false;
  lookup_ = {};
  for (auto& table : tables_)
    table.clear();
  // What is computed again has all its blocks again.
  for (auto& its : pages_)
    for (auto i = static_cast<std::uint32_t>(its.states.size()); i-- > 0;)
      if (its.states[i] == page_state::hole) {
        its.states[i] = page_state::unknown;
        its.cursor = std::min(its.cursor, i);
      }
}

// -- stores -----------------------------------------------------------------------------------------------------------

void grouped_request::grow() {
  for (auto& its : pages_) {
    const auto size = std::max(keys_.keys().size(), its.states.size());
    its.states.resize(size, page_state::unknown);
    its.attempts.resize(size, 0);
  }
}

bool grouped_request::append_blocks(std::uint32_t group, std::uint32_t page, std::uint32_t first_live,
                                    std::vector<block_id>& out) const {
  const auto tokens = groups_[group].block_tokens;
  const auto per_page = page_tokens_ / tokens;
  const auto before = out.size();
  for (const auto t : groups_[group].tables)
    for (auto b = page * per_page; b < (page + 1) * per_page; ++b) {
      if (b < first_live / tokens || b >= tables_[t].size() || tables_[t][b] == null_block) {
        out.resize(before);
        return false;
      }
      out.push_back(tables_[t][b]);
    }
  return true;
}

grouped_request::page_store grouped_request::new_store(std::uint32_t group) const {
  page_store out;
  out.op.session = session_;
  out.op.request = name_;
  out.op.group = group;
  out.op.chained = groups_[group].kind == group_kind::full;
  return out;
}

void grouped_request::take_group(std::uint32_t group, std::uint32_t computed_before, std::uint32_t end,
                                 std::uint32_t limit, std::uint32_t attempts_max, std::vector<page_store>& out) {
  auto& its = pages_[group];
  if (its.cursor >= end)
    return; // in almost every step: nothing is allocated
  // The engine has freed the blocks that no token from `computed_before` on needs.
  const auto first_live = first_token_needed(groups_[group], computed_before, page_tokens_);
  auto store = new_store(group);
  const auto close = [&] {
    if (!store.pages.empty())
      out.push_back(std::move(store));
    store = new_store(group);
  };
  for (; its.cursor < end; ++its.cursor) {
    const auto i = its.cursor;
    if (its.states[i] != page_state::unknown)
      continue;
    const bool follows = store.pages.empty() || !store.op.chained || store.pages.back() + 1 == i;
    if (!follows || store.pages.size() >= limit)
      close();
    if (its.attempts[i] >= attempts_max || !append_blocks(group, i, first_live, store.op.blocks)) {
      its.states[i] = page_state::hole;
      continue;
    }
    its.states[i] = page_state::storing;
    ++its.attempts[i];
    if (store.pages.empty()) {
      store.op.first_page = i;
      if (i > 0 && store.op.chained)
        store.op.parent = keys_.keys()[i - 1];
    }
    store.op.keys.push_back(keys_.keys()[i]);
    store.pages.push_back(i);
  }
  close();
}

std::vector<grouped_request::page_store> grouped_request::take_stores(std::uint32_t computed_before,
                                                                      std::uint32_t computed_after, std::uint32_t limit,
                                                                      std::uint32_t attempts_max) {
  std::vector<page_store> out;
  if (!usable_ || phase_ != phase::active || limit == 0)
    return out;
  grow();
  const auto end = std::min(static_cast<std::uint32_t>(keys_.keys().size()), computed_after / page_tokens_);
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].kind != group_kind::state)
      take_group(g, computed_before, end, limit, attempts_max, out);
  return out;
}

std::vector<grouped_request::page_store> grouped_request::take_states(std::span<const state_offer> offers,
                                                                      std::uint32_t tokens_max) {
  std::vector<page_store> out;
  if (!usable_ || phase_ != phase::active || offers.empty())
    return out;
  grow();
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind != group_kind::state)
      continue;
    auto store = new_store(g);
    for (const auto& lead : offers) {
      if (lead.table != groups_[g].tables.front() || lead.tokens == 0 || lead.tokens % page_tokens_ != 0 ||
          lead.tokens > tokens_max)
        continue;
      const auto page = lead.tokens / page_tokens_ - 1;
      if (page >= pages_[g].states.size() || page >= keys_.keys().size() ||
          pages_[g].states[page] == page_state::storing || pages_[g].states[page] == page_state::stored)
        continue;
      std::vector<block_id> blocks;
      for (const auto t : groups_[g].tables) {
        const auto own = std::find_if(offers.begin(), offers.end(),
                                      [&](const state_offer& x) { return x.table == t && x.tokens == lead.tokens; });
        if (own != offers.end())
          blocks.push_back(own->block);
      }
      if (blocks.size() != groups_[g].tables.size())
        continue; // the states of some layers are missing
      pages_[g].states[page] = page_state::storing;
      store.op.keys.push_back(keys_.keys()[page]);
      store.op.blocks.insert(store.op.blocks.end(), blocks.begin(), blocks.end());
      store.pages.push_back(page);
    }
    if (!store.pages.empty()) {
      store.op.first_page = store.pages.front();
      out.push_back(std::move(store));
    }
  }
  return out;
}

void grouped_request::stored(std::uint32_t group, std::span<const std::uint32_t> pages,
                             std::span<const std::uint8_t> ok) {
  auto& its = pages_[group];
  for (std::size_t k = 0; k < pages.size(); ++k) {
    const auto i = pages[k];
    if (i >= its.states.size() || its.states[i] != page_state::storing)
      continue;
    if (k < ok.size() && ok[k] != 0) {
      its.states[i] = page_state::stored;
      its.distrusted.erase(i);
      continue;
    }
    its.states[i] = page_state::unknown;
    its.cursor = std::min(its.cursor, i);
  }
}

} // namespace troupe::connector
