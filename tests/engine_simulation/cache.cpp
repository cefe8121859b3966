#include "tests/engine_simulation/cache.hpp"

#include <algorithm>
#include <bit>

namespace troupe::engine_simulation {

cache::cache(world& w, memory& m) : world_(w), memory_(m) {}

void cache::plan_event(what kind, std::size_t index, duration after) {
  events_.push_back({world_.now() + after, order_++, kind, static_cast<std::uint32_t>(index)});
  std::push_heap(events_.begin(), events_.end(),
                 [](const event& a, const event& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; });
}

/// The order of magnitude is distributed evenly.
duration cache::delay(dice kind, std::uint64_t a, std::uint64_t b) const {
  const auto x = world_.draw(kind, a, b + (std::uint64_t{world_.step} << 8));
  const auto doublings = static_cast<std::uint64_t>(std::bit_width(world_.p.cache.delay_max));
  return tick * static_cast<duration::rep>(1 + (x >> 8) % (std::uint64_t{1} << x % doublings));
}

void cache::advance(duration by) {
  const auto until = world_.now() + by;
  while (!events_.empty() && events_.front().at <= until)
    next();
  world_.set_time(until);
}

bool cache::next() {
  if (events_.empty())
    return false;
  std::pop_heap(events_.begin(), events_.end(),
                [](const event& a, const event& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; });
  const auto e = events_.back();
  events_.pop_back();
  world_.set_time(std::max(world_.now(), e.at));
  happen(e);
  return true;
}

void cache::happen(const event& e) {
  switch (e.kind) {
  case what::lookup:
    return find_keys(e.index);
  case what::lookup_answer:
    return answer_lookup(e.index);
  case what::lease_end:
    return end_lease(e.index, false);
  case what::task:
    return step_task(e.index);
  case what::cancel:
    return finish_cancel(e.index);
  }
}

std::uint32_t cache::entry_of(const key_digest& key) {
  const auto [i, is_new] = by_key_.try_emplace(key, static_cast<std::uint32_t>(entries_.size()));
  if (is_new) {
    auto& e = entries_.emplace_back();
    e.key = key;
    e.pages.resize(world_.p.ranks);
  }
  return i->second;
}

bool cache::expect(const key_digest& key, const key_digest& parent, std::span<const engine::content> contents,
                   std::uint32_t epoch) {
  auto& e = entries_[entry_of(key)];
  if (e.contents.empty()) {
    e.contents.assign(contents.begin(), contents.end());
    e.right = {e.contents, epoch, parent};
  }
  return e.right.parent == parent && std::equal(contents.begin(), contents.end(), e.contents.begin(), e.contents.end());
}

const cache::expectation* cache::expected(const key_digest& key) const {
  const auto i = by_key_.find(key);
  return i == by_key_.end() || entries_[i->second].contents.empty() ? nullptr : &entries_[i->second].right;
}

bool cache::was_found(const key_digest& key) const {
  const auto i = by_key_.find(key);
  return i != by_key_.end() && entries_[i->second].found;
}

bool cache::was_stored(const key_digest& key, std::uint32_t worker) const {
  const auto i = by_key_.find(key);
  return i != by_key_.end() && entries_[i->second].pages[rank_of(worker)].ever_live;
}

bool cache::is_held(const key_digest& key) const {
  const auto i = by_key_.find(key);
  return i != by_key_.end() && entries_[i->second].holds > 0;
}

bool cache::complete(const entry& e) {
  return std::all_of(e.pages.begin(), e.pages.end(), [](const page& x) { return x.state == page_state::live; });
}

void cache::drop(entry& e) {
  for (auto& x : e.pages)
    if (x.state == page_state::live)
      x.state = page_state::none;
}

std::uint32_t cache::stored_keys() const {
  std::uint32_t out = 0;
  for (const auto& e : entries_)
    out += std::any_of(e.pages.begin(), e.pages.end(), [](const page& x) { return x.state != page_state::none; });
  return out;
}

bool cache::make_room() {
  if (stored_keys() < world_.p.cache.capacity)
    return true;
  entry* victim = nullptr;
  for (auto& e : entries_)
    if (e.holds == 0 && complete(e) && (victim == nullptr || e.used < victim->used))
      victim = &e;
  if (victim == nullptr)
    return false;
  drop(*victim);
  world_.count(seen::page_evicted);
  return true;
}

void cache::evict_all() {
  for (auto& e : entries_)
    if (e.holds == 0)
      drop(e);
}

void cache::kill_node(bool loses_index) {
  ++node_;
  down_ = true;
  world_.count(seen::node_killed);
  if (loses_index)
    world_.count(seen::node_lost_index);
  for (auto& e : entries_) {
    e.holds = 0;
    for (auto& x : e.pages)
      if (loses_index || x.state == page_state::reserved)
        x.state = page_state::none;
  }
  for (auto& x : leases_) {
    if (x.known && !x.over)
      --leases_known_;
    x.over = true;
  }
}

void cache::submit_lookup(std::uint64_t id, const lookup_task& work) {
  const auto first = work.keys[0].lo;
  lookups_.push_back({id, work, {}, false});
  plan_event(what::lookup, lookups_.size() - 1, delay(dice::lookup_delay, first, 0));
}

void cache::find_keys(std::uint32_t index) {
  auto& x = lookups_[index];
  const auto first = x.work.keys[0].lo;
  auto after = delay(dice::lookup_delay, first, 1);
  if (down_) {
    x.answer = troupe::fail(errc::unreachable, "");
  } else {
    lookup_result found;
    lease held;
    for (const auto& key : x.work.keys) {
      const auto i = by_key_.find(key);
      if (i == by_key_.end() || !complete(entries_[i->second]))
        break;
      held.keys.push_back(i->second);
    }
    found.matched = static_cast<std::uint32_t>(held.keys.size());
    // At times the answer is unknown.
    if (x.work.report_on_disk && world_.draw(dice::on_disk, first) % 8 != 0)
      for (const auto& key : std::span(x.work.keys.items).first(found.matched))
        found.on_disk.items.push_back(world_.draw(dice::on_disk, key.lo, world_.step / 16) % 3 == 0 ? 1 : 0);
    if (found.matched > 0) {
      for (const auto i : held.keys) {
        ++entries_[i].holds;
        entries_[i].used = ++uses_;
        entries_[i].found = true;
      }
      leases_.push_back(std::move(held));
      found.lease = {1, leases_.size()};
      plan_event(what::lease_end, leases_.size() - 1, x.work.lease_for);
    }
    x.answer = found;
  }
  if (world_.strikes(fault::lost_answer, first, world_.step)) {
    world_.count(seen::lookup_answer_lost);
    x.lost = true;
    // The requester may be notified some time later that there is no answer, or never.
    if (world_.draw(dice::lookup_fault, first) % 2 == 0)
      return;
    after += tick * 4000;
  } else if (world_.strikes(fault::late_answer, first, world_.step)) {
    world_.count(seen::lookup_answer_late);
    after += tick * 3000;
  }
  plan_event(what::lookup_answer, index, after);
}

void cache::answer_lookup(std::uint32_t index) {
  const auto id = lookups_[index].id;
  const auto answer = lookups_[index].lost ? troupe::fail(errc::timeout, "") : lookups_[index].answer;
  world_.count(!answer ? seen::lookup_failed : answer->matched > 0 ? seen::lookup_found : seen::lookup_found_nothing);
  world_.trace("lookup answered", "", id, answer ? answer->matched : 0);
  if (answer && answer->matched > 0) {
    auto& held = leases_[answer->lease.sequence - 1];
    if (!held.over) {
      held.known = true;
      ++leases_known_;
    }
  }
  client_->lookup_answered(id, answer);
}

void cache::release(const ticket& which) {
  if (which.sequence == 0 || which.sequence > leases_.size()) {
    world_.fail("leases", "a lease is given back that there never was");
    return;
  }
  end_lease(static_cast<std::uint32_t>(which.sequence - 1), true);
}

void cache::end_lease(std::uint32_t index, bool returned) {
  auto& x = leases_[index];
  if (x.over)
    return;
  world_.count(returned ? seen::lease_returned : seen::lease_ran_out);
  x.over = true;
  if (x.known)
    --leases_known_;
  for (const auto i : x.keys)
    --entries_[i].holds;
}

} // namespace troupe::engine_simulation
