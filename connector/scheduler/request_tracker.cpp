#include "connector/scheduler/request_tracker.hpp"

#include <algorithm>

namespace troupe::connector {

request_tracker::request_tracker(session_id session, std::string name, key_chain keys, const key_chain_options& shape,
                                 std::uint32_t prompt_tokens)
    : session_(session), name_(std::move(name)), keys_(std::move(keys)), shape_(shape), prompt_tokens_(prompt_tokens) {}

void request_tracker::add(const token_range& tokens, const hash_range& hashes) {
  if (!keys_.add_tokens(tokens) || !keys_.add_hashes(hashes))
    usable_ = false;
}

std::uint32_t request_tracker::pages_to_look_up() const noexcept {
  const auto known = keys_.known_tokens();
  if (!usable_ || known == 0)
    return 0;
  return std::min(static_cast<std::uint32_t>(keys_.keys().size()), (known - 1) / page_tokens());
}

std::uint32_t request_tracker::new_tokens(std::uint32_t computed) noexcept {
  computed_ = computed;
  const auto end = std::min(lookup_.matched, lookup_.worth.value_or(lookup_.matched)) * page_tokens();
  return end > computed ? end - computed : 0;
}

std::uint32_t request_tracker::take_passed_over() noexcept {
  if (std::exchange(lookup_.passed_over_taken, true))
    return 0;
  const auto found = lookup_.matched * page_tokens();
  const auto from = std::max(computed_, lookup_.worth.value_or(lookup_.matched) * page_tokens());
  lookup_.passed_over = found > from ? found - from : 0;
  return lookup_.passed_over;
}

hit_sources request_tracker::sources(std::uint32_t first, std::uint32_t last) const noexcept {
  hit_sources out;
  for (auto at = first; at < last;) {
    const auto page = at / page_tokens();
    const auto next = std::min(last, (page + 1) * page_tokens());
    auto& tier = page >= lookup_.on_disk.size() ? out.unknown : lookup_.on_disk[page] != 0 ? out.disk : out.memory;
    tier += next - at;
    at = next;
  }
  return out;
}

bool request_tracker::allocated(std::span<const block_id> blocks, std::uint32_t external_tokens) {
  if (phase_ == phase::loading || phase_ == phase::to_load)
    return false; // the second call for a load changes nothing
  replace_blocks(blocks);
  if (phase_ != phase::asking)
    return false;
  grow();
  for (std::uint32_t i = 0; i < lookup_.matched; ++i)
    if (pages_[i] != page_state::storing)
      pages_[i] = page_state::stored;
  if (external_tokens == 0 || !may_load())
    return false;
  load_first_ = computed_;
  load_last_ = computed_ + external_tokens;
  load_failed_.clear();
  phase_ = phase::to_load;
  return true;
}

page_range request_tracker::load_range() const noexcept {
  const auto end = (load_last_ + page_tokens() - 1) / page_tokens();
  return {load_first_ / page_tokens(), std::min(end, static_cast<std::uint32_t>(keys_.keys().size()))};
}

std::span<const block_id> request_tracker::blocks_from_load() const noexcept {
  const auto first = std::min<std::size_t>(load_first_ / shape_.block_tokens, blocks_.size());
  return std::span(blocks_).subspan(first);
}

load_op request_tracker::take_load() {
  phase_ = phase::loading;
  const auto [first, last] = load_range();
  load_op out;
  out.session = session_;
  out.request = name_;
  out.keys.assign(keys_.keys().begin() + first, keys_.keys().begin() + last);
  out.blocks.reserve(out.keys.size() * shape_.blocks_per_page);
  for (auto b = first * shape_.blocks_per_page; b < last * shape_.blocks_per_page; ++b) {
    // Computed blocks may be shared with running requests, so they are not overwritten.
    const auto begin = b * shape_.block_tokens;
    const bool wanted = begin + shape_.block_tokens > load_first_ && begin < load_last_ && b < blocks_.size();
    out.blocks.push_back(wanted ? blocks_[b] : null_block);
  }
  return out;
}

void request_tracker::mark_failed(std::span<const block_id> failed) {
  if (phase_ != phase::loading)
    return;
  const auto last = std::min<std::size_t>(blocks_.size(), std::size_t{load_range().last} * shape_.blocks_per_page);
  for (std::size_t b = load_first_ / shape_.block_tokens; b < last; ++b)
    if (std::binary_search(failed.begin(), failed.end(), blocks_[b]))
      load_failed_.push_back(static_cast<block_id>(b));
}

void request_tracker::mark_failed_pages(std::span<const std::uint8_t> filled) {
  if (phase_ != phase::loading)
    return;
  const auto [first, last] = load_range();
  for (std::uint32_t i = first; i < last; ++i)
    if (i - first >= filled.size() || filled[i - first] == 0)
      load_failed_.push_back(i * shape_.blocks_per_page);
}

void request_tracker::mark_some_failed() {
  if (load_failed_.empty())
    mark_failed_pages({});
}

std::vector<page_range> request_tracker::loaded() {
  std::vector<page_range> out;
  if (phase_ != phase::loading)
    return out;
  phase_ = phase::active;
  std::sort(load_failed_.begin(), load_failed_.end());
  for (const auto block : load_failed_) {
    const auto i = block / shape_.blocks_per_page;
    if (!out.empty() && out.back().last > i)
      continue;
    // A store from before a preemption may still be reported: its report decides the state of the page.
    if (pages_[i] != page_state::storing) {
      pages_[i] = page_state::unknown;
      cursor_ = std::min(cursor_, i);
    }
    if (!out.empty() && out.back().last == i)
      ++out.back().last;
    else
      out.push_back({i, i + 1});
  }
  load_failed_.clear();
  return out;
}

void request_tracker::run() noexcept {
  has_run_ = true;
  if (phase_ == phase::asking)
    phase_ = phase::active;
}

void request_tracker::preempt() {
  phase_ = phase::asking;
  has_run_ = false;
  ++generation_;
  open_stores_ = 0;
  lookup_ = {};
  blocks_.clear();
}

void request_tracker::grow() {
  const auto size = std::max(keys_.keys().size(), pages_.size());
  pages_.resize(size, page_state::unknown);
  attempts_.resize(size, 0);
}

bool request_tracker::storable(std::uint32_t i) const noexcept {
  const auto first = blocks_.begin() + std::ptrdiff_t{i} * shape_.blocks_per_page;
  return std::find(first, first + shape_.blocks_per_page, null_block) == first + shape_.blocks_per_page;
}

std::vector<page_range> request_tracker::take_stores(std::uint32_t computed_after, std::uint32_t limit,
                                                     std::uint32_t attempts_max) {
  std::vector<page_range> out;
  if (!usable_ || phase_ != phase::active || limit == 0)
    return out;
  const auto end = static_cast<std::uint32_t>(std::min(
      {keys_.keys().size(), blocks_.size() / shape_.blocks_per_page, std::size_t{computed_after / page_tokens()}}));
  grow();
  const auto take = [&](std::uint32_t i) {
    if (!storable(i)) {
      pages_[i] = page_state::hole;
      return;
    }
    pages_[i] = page_state::storing;
    ++attempts_[i];
    if (!out.empty() && out.back().last == i && i - out.back().first < limit)
      ++out.back().last;
    else
      out.push_back({i, i + 1});
  };
  if (!retries_.empty()) {
    std::sort(retries_.begin(), retries_.end());
    std::vector<std::uint32_t> later;
    for (const auto i : retries_) {
      if (i >= end)
        later.push_back(i);
      else if (pages_[i] == page_state::hole && attempts_[i] < attempts_max)
        take(i);
    }
    retries_ = std::move(later);
  }
  for (; cursor_ < end; ++cursor_)
    if (pages_[cursor_] == page_state::unknown)
      take(cursor_);
  // A failed load moves the cursor back, before the retried pages.
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

store_op request_tracker::make_store(const page_range& range) const {
  store_op out;
  out.session = session_;
  out.request = name_;
  out.first_page = range.first;
  if (range.first > 0)
    out.parent = keys_.keys()[range.first - 1];
  out.keys.assign(keys_.keys().begin() + range.first, keys_.keys().begin() + range.last);
  out.blocks.assign(blocks_.begin() + std::ptrdiff_t{range.first} * shape_.blocks_per_page,
                    blocks_.begin() + std::ptrdiff_t{range.last} * shape_.blocks_per_page);
  return out;
}

void request_tracker::stored(std::uint32_t first_page, std::span<const std::uint8_t> ok) {
  for (std::size_t k = 0; k < ok.size(); ++k) {
    const auto i = first_page + static_cast<std::uint32_t>(k);
    if (pages_[i] != page_state::storing)
      continue;
    pages_[i] = ok[k] != 0 ? page_state::stored : page_state::hole;
    if (ok[k] == 0)
      retries_.push_back(i);
  }
}

void request_tracker::store_closed(std::uint32_t generation) noexcept {
  --reports_missing_;
  if (generation == generation_)
    --open_stores_;
}

} // namespace troupe::connector
