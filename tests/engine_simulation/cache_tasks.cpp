#include "tests/engine_simulation/cache.hpp"

#include <algorithm>

// Loads and saves, phase by phase.

namespace troupe::engine_simulation {

void cache::submit_load(std::uint32_t worker, connector::task_tag tag, transfer_task work) {
  auto& t = tasks_.emplace_back();
  t.load = true;
  t.worker = worker;
  t.tag = tag;
  t.work = std::move(work);
  memory_.begin_load(worker, t.work.blocks.items);
  t.marked = true;
  t.node = node_;
  ++tasks_under_way_;
  plan_event(what::task, tasks_.size() - 1, delay(dice::task_delay, t.work.keys[0].lo + worker, 100));
}

void cache::submit_save(std::uint32_t worker, connector::task_tag tag, transfer_task work) {
  auto& t = tasks_.emplace_back();
  t.worker = worker;
  t.tag = tag;
  t.work = std::move(work);
  const auto* right = expected(t.work.keys[0]);
  if (right == nullptr || right->parent != t.work.parent)
    world_.fail("P3", "worker " + std::to_string(worker) + " saves a key behind another parent than its own");
  memory_.begin_save(worker, t.work.blocks.items);
  t.marked = true;
  t.node = node_;
  ++tasks_under_way_;
  plan_event(what::task, tasks_.size() - 1, delay(dice::task_delay, t.work.keys[0].lo + worker, 200));
}

void cache::cancel(std::uint32_t worker, const std::vector<connector::task_tag>& tags) {
  cancellations_.push_back({worker, tags});
  plan_event(what::cancel, cancellations_.size() - 1, delay(dice::cancel_delay, worker, 0));
}

/// From here on, pages that are not copied yet will not be published, whatever a copy in progress may still read.
void cache::finish_cancel(std::uint32_t index) {
  const auto& x = cancellations_[index];
  for (auto& t : tasks_) {
    if (t.load || t.over || t.worker != x.worker || std::find(x.tags.begin(), x.tags.end(), t.tag) == x.tags.end())
      continue;
    if (t.copied) {
      world_.count(seen::cancel_after_copy);
      continue;
    }
    world_.count(t.next == phase::copy_second ? seen::cancel_during_copy : seen::cancel_before_copy);
    t.cancelled = true;
    end_copy(t);
  }
  world_.trace("cancel answered", "", x.worker);
  client_->cancel_answered(x.worker);
}

void cache::end_copy(task& t) {
  if (!t.marked)
    return;
  t.marked = false;
  if (t.load)
    memory_.end_load(t.worker, t.work.blocks.items);
  else
    memory_.end_save(t.worker, t.work.blocks.items);
}

void cache::step_task(std::uint32_t index) {
  auto& t = tasks_[index];
  if (t.next == phase::answer)
    return answer_task(t);
  // Recorded again later, the event would be another one: the event is fixed when the wait begins.
  if (t.next == phase::copy_first && !t.ready_at) {
    t.ready_at = memory_.happens_at(t.work.ready_event);
    if (*t.ready_at > world_.now()) {
      world_.count(seen::copy_waited_for_event);
      return plan_event(what::task, index, *t.ready_at - world_.now());
    }
  }
  const auto first = t.work.keys[0].lo + t.worker;
  if (down_ || t.node != node_)
    abandon(t, index, errc::unreachable);
  else if (t.next == phase::begin && world_.strikes(fault::task_timeout, first, world_.step))
    abandon(t, index, errc::timeout);
  else if (!(t.load ? step_load(t) : step_save(t, index)))
    abandon(t, index, errc::cancelled);
  plan_event(what::task, index, delay(dice::task_delay, first, static_cast<std::uint64_t>(t.next) + (t.load ? 8 : 0)));
}

/// Pages without another result end with this one.
void cache::abandon(task& t, std::uint32_t index, errc why) {
  t.results.resize(t.work.keys.size(), errc::ok);
  for (std::size_t i = 0; i < t.results.size(); ++i)
    if (t.results[i] == errc::ok && (!t.load || t.next != phase::copy_second || i >= t.results.size() / 2))
      t.results[i] = why;
  if (!t.load) {
    end_copy(t);
    for (const auto i : t.entries) {
      auto& x = entries_[i].pages[rank_of(t.worker)];
      if (x.state == page_state::reserved && x.reserved_by == index)
        x.state = page_state::none;
    }
  }
  t.next = phase::answer;
}

bool cache::step_save(task& t, std::uint32_t index) {
  if (t.cancelled)
    return false;
  switch (t.next) {
  case phase::begin:
    t.next = reserve(t, index) ? phase::copy_first : phase::answer;
    return true;
  case phase::copy_first:
    gather(t, true);
    t.next = phase::copy_second;
    return true;
  case phase::copy_second:
    gather(t, false);
    end_copy(t);
    t.copied = true;
    t.next = phase::write;
    return true;
  case phase::write:
    for (std::size_t i = 0; i < t.results.size(); ++i)
      if (t.results[i] == errc::ok && world_.strikes(fault::failed_write, t.work.keys[i].lo, world_.step))
        t.results[i] = errc::io_error;
    t.next = phase::commit;
    return true;
  default:
    commit(t, index);
    t.next = phase::answer;
    return true;
  }
}

bool cache::reserve(task& t, std::uint32_t index) {
  bool any = false;
  for (const auto& key : t.work.keys) {
    const auto i = entry_of(key);
    t.entries.push_back(i);
    auto& x = entries_[i].pages[rank_of(t.worker)];
    auto result = errc::ok;
    if (x.state == page_state::live)
      result = errc::exists;
    else if (x.state == page_state::reserved)
      result = errc::busy;
    else if (world_.strikes(fault::full, key.lo, world_.step) || !make_room())
      result = errc::full;
    else {
      x.state = page_state::reserved;
      x.reserved_by = index;
      x.corrupt = false;
      any = true;
    }
    t.results.push_back(result);
  }
  const auto page_tokens = std::size_t{world_.p.page_tokens()};
  t.held.resize(page_tokens * t.work.keys.size());
  return any;
}

void cache::gather(task& t, bool first_half) {
  const auto block_tokens = std::size_t{world_.p.engine.block_tokens};
  for (std::size_t b = 0; b < t.work.blocks.size(); ++b) {
    if ((b % 2 == 0) != first_half || t.work.blocks[b] == null_block)
      continue;
    const auto held = memory_.block(t.worker, t.work.blocks[b]);
    std::copy(held.begin(), held.end(), t.held.begin() + static_cast<std::ptrdiff_t>(b * block_tokens));
  }
}

void cache::commit(task& t, std::uint32_t index) {
  const auto page_tokens = std::size_t{world_.p.page_tokens()};
  for (std::size_t i = 0; i < t.results.size(); ++i) {
    auto& e = entries_[t.entries[i]];
    auto& x = e.pages[rank_of(t.worker)];
    if (x.state != page_state::reserved || x.reserved_by != index)
      continue;
    if (t.results[i] != errc::ok) {
      x.state = page_state::none;
      continue;
    }
    const auto held = std::span(t.held).subspan(i * page_tokens, page_tokens);
    for (std::size_t k = 0; k < page_tokens; ++k)
      if (e.contents.empty() || held[k] != memory_.as_held(t.worker, e.contents[k])) {
        world_.fail("P3", "worker " + std::to_string(t.worker) + " publishes a page of a key whose token " +
                              std::to_string(k) + " is another one than was in its block");
        break;
      }
    x.state = page_state::live;
    x.ever_live = true;
    x.held.assign(held.begin(), held.end());
    x.corrupt = world_.strikes(fault::corrupt_page, t.work.keys[i].lo, world_.step);
    e.used = ++uses_;
  }
}

bool cache::step_load(task& t) {
  switch (t.next) {
  case phase::begin:
    t.next = locate(t) ? phase::read : phase::answer;
    return true;
  case phase::read:
    read(t);
    t.next = phase::copy_first;
    return true;
  case phase::copy_first:
    scatter(t, true);
    t.next = phase::copy_second;
    return true;
  default:
    scatter(t, false);
    t.next = phase::answer;
    return true;
  }
}

bool cache::locate(task& t) {
  bool any = false;
  for (const auto& key : t.work.keys) {
    const auto i = entry_of(key);
    t.entries.push_back(i);
    auto& e = entries_[i];
    if (e.holds == 0 && world_.strikes(fault::eviction, key.lo, world_.step))
      drop(e);
    const auto found = e.pages[rank_of(t.worker)].state == page_state::live;
    t.results.push_back(found ? errc::ok : errc::not_found);
    any = any || found;
    ++e.holds;
    e.used = ++uses_;
  }
  t.pinned = true;
  t.held.resize(std::size_t{world_.p.page_tokens()} * t.work.keys.size());
  return any;
}

void cache::read(task& t) {
  const auto page_tokens = std::size_t{world_.p.page_tokens()};
  for (std::size_t i = 0; i < t.results.size(); ++i) {
    if (t.results[i] != errc::ok)
      continue;
    auto& x = entries_[t.entries[i]].pages[rank_of(t.worker)];
    if (x.state != page_state::live)
      t.results[i] = errc::not_found;
    else if (x.corrupt) {
      t.results[i] = errc::corrupt;
      x.state = page_state::none;
    } else if (world_.strikes(fault::failed_read, t.work.keys[i].lo + t.worker, world_.step))
      t.results[i] = errc::io_error;
    else
      std::copy(x.held.begin(), x.held.end(), t.held.begin() + static_cast<std::ptrdiff_t>(i * page_tokens));
  }
}

void cache::scatter(task& t, bool first_half) {
  const auto per_key = std::size_t{world_.p.worker.blocks_per_page};
  const auto block_tokens = std::size_t{world_.p.engine.block_tokens};
  for (std::size_t i = 0; i < t.results.size(); ++i) {
    if ((i < t.results.size() / 2) != first_half || t.results[i] != errc::ok)
      continue;
    for (auto b = i * per_key; b < (i + 1) * per_key; ++b)
      if (t.work.blocks[b] != null_block)
        memory_.scatter(t.worker, t.work.blocks[b], std::span(t.held).subspan(b * block_tokens, block_tokens));
  }
}

void cache::answer_task(task& t) {
  static constexpr std::pair<errc, seen> saves[] = {{errc::ok, seen::save_ok},
                                                    {errc::exists, seen::save_exists},
                                                    {errc::busy, seen::save_busy},
                                                    {errc::full, seen::save_full},
                                                    {errc::io_error, seen::save_io_error},
                                                    {errc::timeout, seen::save_timeout},
                                                    {errc::unreachable, seen::save_unreachable},
                                                    {errc::cancelled, seen::save_cancelled}};
  static constexpr std::pair<errc, seen> loads[] = {{errc::ok, seen::load_ok},
                                                    {errc::not_found, seen::load_not_found},
                                                    {errc::io_error, seen::load_io_error},
                                                    {errc::corrupt, seen::load_corrupt},
                                                    {errc::timeout, seen::load_timeout},
                                                    {errc::unreachable, seen::load_unreachable}};
  for (const auto x : t.results)
    for (const auto& [code, outcome_seen] : t.load ? std::span<const std::pair<errc, seen>>(loads) : saves)
      if (code == x)
        world_.count(outcome_seen);
  end_copy(t);
  if (t.pinned && t.node == node_)
    for (const auto i : t.entries)
      --entries_[i].holds;
  t.over = true;
  --tasks_under_way_;
  const auto first = t.results[0];
  const auto worker = t.worker;
  const auto tag = t.tag;
  world_.trace(t.load ? "load ended" : "save ended", to_string(first), tag, worker);
  // A coordinator that knows nothing of single keys says it once.
  const auto same = first != errc::ok && first != errc::exists &&
                    std::all_of(t.results.begin(), t.results.end(), [&](auto x) { return x == first; });
  result<transfer_result> outcome = transfer_result{};
  if (same && world_.draw(dice::torn, tag, worker) % 2 == 0)
    outcome = troupe::fail(first, "");
  else
    for (const auto x : t.results)
      outcome->results.items.push_back(static_cast<std::uint8_t>(x));
  t.held = {};
  client_->task_ended(worker, tag, outcome);
}

} // namespace troupe::engine_simulation
