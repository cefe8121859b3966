#include "lmcache/server_rules.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace troupe::lmcache {

namespace {

/// Whether two handles refer to the same memory, or parts of it.
bool is_same_memory(const memory_handle& a, const memory_handle& b) {
  if (const auto* x = std::get_if<shared_memory_handle>(&a)) {
    const auto* y = std::get_if<shared_memory_handle>(&b);
    return y != nullptr && x->name == y->name;
  }
  const auto* x = std::get_if<gpu_memory_handle>(&a);
  const auto* y = std::get_if<gpu_memory_handle>(&b);
  return x != nullptr && y != nullptr && x->handle == y->handle;
}

bool overlap(const std::shared_ptr<const remote_layout>& a, const std::shared_ptr<const remote_layout>& b) {
  return a && b && std::ranges::any_of(a->memories, [&](const memory_handle& x) {
           return std::ranges::any_of(b->memories, [&](const memory_handle& y) { return is_same_memory(x, y); });
         });
}

bool may_be_same_process(const server_rules::registration& a, const server_rules::registration& b) {
  if (a.process != 0 && b.process != 0)
    return a.process == b.process;
  return a.name.second == b.name.second;
}

bool may_share_memory(const server_rules::registration& a, const server_rules::registration& b) {
  return a.name == b.name || may_be_same_process(a, b) || overlap(a.memory, b.memory);
}

/// Errors after which a later registration may succeed.
bool may_pass(errc x) {
  return x == errc::busy || x == errc::limit_exceeded || x == errc::timeout || x == errc::unreachable ||
         x == errc::shutting_down || x == errc::cancelled || x == errc::expired || x == errc::no_space ||
         x == errc::no_memory || x == errc::full ||
         x == errc::io_error; // for example, no threads or file descriptors are left
}

} // namespace

// -- changes ----------------------------------------------------------------------------------------------------------

change_number server_rules::enroll(registration x, timestamp now) {
  const auto number = ++last_;
  if (const auto known = workers_.find(x.name); known != workers_.end() && is_same(known->second, x)) {
    outbox_.emplace_back(settle{number, true});
    return number;
  }
  // Answered like any other, when no lane works on its memory.
  const bool rejected = !may_come(x.name);
  supersede(x);
  add({number, std::move(x), true, rejected}, now);
  return number;
}

change_number server_rules::unregister(const instance_name& name, std::int32_t process, timestamp now) {
  const auto number = ++last_;
  registration x;
  x.name = name;
  x.process = process;
  supersede(x);
  add({number, std::move(x), false, false}, now);
  return number;
}

// A worker that has missed a ping forgets its requests, and its engine reuses the blocks, before it registers again. So
// a registration with copies in progress is replaced by an equal one.
bool server_rules::is_same(const worker& known, const registration& x) const {
  if (stopping_ || x.invalid || known.current == 0 || !known.pending.empty())
    return false;
  const auto& now = entries_.at(known.current);
  if (now.what.ns != x.ns || (now.what.memory == nullptr) != (x.memory == nullptr))
    return false;
  if (!x.memory)
    return !x.has_begun;
  return now.copies == 0 && now.what.sliding == x.sliding && *now.what.memory == *x.memory &&
         std::ranges::none_of(entries_,
                              [&](const auto& y) { return y.second.work > 0 && may_share_memory(y.second.what, x); });
}

void server_rules::supersede(const registration& x) {
  const auto is_replaced = [&](const registration& y) {
    if (y.name == x.name || (y.process != 0 && x.process != 0 && y.process != x.process))
      return false;
    const bool is_known = y.process != 0 && x.process != 0;
    return (is_known && y.name.second == x.name.second) || overlap(y.memory, x.memory);
  };
  std::vector<change_number> replaced;
  for (const auto& [number, y] : entries_)
    if (!y.ended && is_replaced(y.what))
      replaced.push_back(number);
  for (const auto number : replaced)
    end_entry(number, end_reason::replaced);
  for (auto& [name, y] : workers_)
    for (auto& pending : y.pending)
      if (pending.registers && is_replaced(pending.what)) {
        pending.rejected = true;
        if (&pending == &y.pending.back())
          y.state = phase::waiting;
      }
}

void server_rules::add(change x, timestamp now) {
  auto& known = workers_[x.what.name];
  // A ready but unanswered one is prepared like the current one.
  const auto old = known.current != 0 || known.pending.empty() ? known.current : known.pending.back().number;
  if (const auto there = entries_.find(old); there != entries_.end() && !x.registers && x.what.process == 0)
    x.what.process = there->second.what.process;
  known.pending.push_back(std::move(x));
  known.state = phase::waiting;
  if (entries_.contains(old))
    end_entry(old, end_reason::replaced);
  advance(now);
}

server_rules::worker_map::iterator server_rules::find_newest(change_number x) {
  return std::ranges::find_if(workers_, [&](const auto& y) {
    return !y.second.pending.empty() && y.second.pending.back().number == x && y.second.pending.back().registers;
  });
}

void server_rules::begin_preparing(worker& x, client_number client) {
  const auto number = x.pending.back().number;
  x.state = phase::preparing;
  preparations_.emplace(number, client);
  outbox_.emplace_back(prepare{number});
}

bool server_rules::may_prepare(client_number client) const {
  const auto under_way = std::ranges::count_if(preparations_, [&](const auto& x) { return x.second == client; });
  return static_cast<std::size_t>(under_way) < options_.preparations_per_client;
}

bool server_rules::may_come(const instance_name& name) const {
  if (workers_.contains(name))
    return true;
  std::size_t others = 0;
  for (auto i = workers_.lower_bound({name.first, std::numeric_limits<instance_id>::min()});
       i != workers_.end() && i->first.first == name.first; ++i)
    ++others;
  return others < options_.workers_per_client;
}

void server_rules::prepared(change_number x, timestamp now) {
  preparations_.erase(x);
  const auto known = find_newest(x);
  if (known == workers_.end() || known->second.state != phase::preparing) {
    outbox_.emplace_back(release{x, end_reason::replaced});
    return;
  }
  entries_.emplace(x, entry{known->second.pending.back().what, std::nullopt, 0, 0});
  known->second.state = phase::ready;
  advance(now);
}

void server_rules::failed(change_number x, errc why, timestamp now) {
  preparations_.erase(x);
  const auto known = find_newest(x);
  if (known == workers_.end() || known->second.state != phase::preparing)
    return;
  auto& [name, y] = *known;
  if (why == errc::busy && now < y.until) {
    y.state = phase::pausing;
    y.retry_at = later(now, options_.retry_interval);
    return;
  }
  if (!may_pass(why))
    remember(rejected_, name);
  y.pending.back().rejected = true;
  y.state = phase::waiting;
  advance(now);
}

// -- ends -------------------------------------------------------------------------------------------------------------

void server_rules::end_entry(change_number x, end_reason why) {
  auto& y = entries_.at(x);
  if (y.ended)
    return;
  y.ended = why;
  outbox_.emplace_back(end{x, why});
  if (const auto known = workers_.find(y.what.name); known != workers_.end()) {
    if (known->second.current == x)
      known->second.current = 0;
    if (known->second.current == 0 && known->second.pending.empty())
      workers_.erase(known);
  }
  release_if_done(x);
}

void server_rules::release_if_done(change_number x) {
  const auto known = entries_.find(x);
  if (known == entries_.end() || !known->second.ended || known->second.copies > 0 || known->second.work > 0)
    return;
  outbox_.emplace_back(release{x, *known->second.ended});
  entries_.erase(known);
}

void server_rules::sent_away(change_number x, timestamp now) {
  const auto known = entries_.find(x);
  if (known == entries_.end() || known->second.ended)
    return;
  // Prepared, but not answered yet: prepare once more.
  if (const auto newest = find_newest(x); newest != workers_.end())
    newest->second.state = phase::waiting;
  end_entry(x, end_reason::sent_away);
  advance(now);
}

void server_rules::client_disconnected(client_number client, timestamp now) {
  const instance_name first(client, std::numeric_limits<instance_id>::min());
  std::vector<change_number> ended;
  for (const auto& [number, x] : entries_)
    if (!x.ended && x.what.name.first == client)
      ended.push_back(number);
  for (const auto number : ended)
    end_entry(number, end_reason::disconnected);
  for (auto i = workers_.lower_bound(first); i != workers_.end() && i->first.first == client; i = workers_.erase(i))
    for (const auto& x : i->second.pending)
      outbox_.emplace_back(settle{x.number, false});
  for (auto* names : {&notified_unknown_, &rejected_})
    for (auto i = names->lower_bound(first); i != names->end() && i->first == client;)
      i = names->erase(i);
  advance(now);
}

void server_rules::stop(timestamp now) {
  stopping_ = true;
  std::vector<change_number> ended;
  for (const auto& [number, x] : entries_)
    if (!x.ended)
      ended.push_back(number);
  for (const auto number : ended)
    end_entry(number, end_reason::stopping);
  for (auto& [name, x] : workers_)
    x.state = phase::waiting;
  advance(now);
}

void server_rules::tick(timestamp now) {
  for (auto& [name, x] : workers_) {
    if (x.state != phase::preparing && x.state != phase::pausing)
      continue;
    if (x.until <= now) {
      x.pending.back().rejected = true;
      x.state = phase::waiting;
    } else if (x.state == phase::pausing && x.retry_at <= now) {
      if (may_prepare(name.first))
        begin_preparing(x, name.first);
      else
        x.retry_at = later(now, options_.retry_interval);
    }
  }
  advance(now);
}

timestamp server_rules::next_deadline() const noexcept {
  auto out = timestamp::max();
  for (const auto& [name, x] : workers_) {
    if (x.state == phase::preparing || x.state == phase::pausing)
      out = std::min(out, x.until);
    if (x.state == phase::pausing)
      out = std::min(out, x.retry_at);
  }
  return out;
}

// -- settling ---------------------------------------------------------------------------------------------------------

bool server_rules::is_quiet(const worker& x) const {
  return std::ranges::none_of(entries_, [&](const auto& y) {
    return y.second.work > 0 &&
           std::ranges::any_of(x.pending, [&](const change& z) { return may_share_memory(y.second.what, z.what); });
  });
}

/// A change that waits for lanes would wait for ever if they continued.
bool server_rules::is_held_up(const registration& x) const {
  return std::ranges::any_of(workers_, [&](const auto& y) {
    return (y.second.state == phase::waiting || y.second.state == phase::ready) &&
           std::ranges::any_of(y.second.pending, [&](const change& z) { return may_share_memory(x, z.what); });
  });
}

void server_rules::advance(timestamp now) {
  std::vector<instance_name> due;
  for (const auto& [name, x] : workers_)
    if (!x.pending.empty() && (x.state == phase::waiting || x.state == phase::ready))
      due.push_back(name);
  for (const auto& name : due)
    if (const auto known = workers_.find(name); known != workers_.end() && is_quiet(known->second))
      advance(name, known->second, now);
}

void server_rules::advance(const instance_name& name, worker& x, timestamp now) {
  const auto& newest = x.pending.back();
  if (x.state == phase::ready && !newest.rejected) {
    x.current = newest.number;
    return finish(name, x, true);
  }
  if (newest.registers && newest.what.invalid)
    remember(rejected_, name);
  if (!newest.registers || newest.what.invalid || newest.rejected || stopping_)
    return finish(name, x, !newest.registers);
  x.until = later(now, options_.prepare_time);
  if (may_prepare(name.first))
    return begin_preparing(x, name.first);
  x.state = phase::pausing;
  x.retry_at = later(now, options_.retry_interval);
}

void server_rules::finish(const instance_name& name, worker& x, bool accepted) {
  const auto newest = x.pending.back().number;
  for (const auto& y : std::exchange(x.pending, {}))
    outbox_.emplace_back(settle{y.number, y.number == newest ? accepted : !y.registers});
  x.state = phase::waiting;
  if (x.current != 0) {
    notified_unknown_.erase(name);
    rejected_.erase(name);
  } else {
    workers_.erase(name);
  }
}

// -- copies -----------------------------------------------------------------------------------------------------------

change_number server_rules::current(const instance_name& name) const {
  const auto known = workers_.find(name);
  return known == workers_.end() ? 0 : known->second.current;
}

bool server_rules::is_current(change_number x) const {
  const auto known = entries_.find(x);
  return known != entries_.end() && !known->second.ended && current(known->second.what.name) == x;
}

bool server_rules::begin_copy(change_number x) {
  if (!is_current(x))
    return false;
  ++entries_.at(x).copies;
  return true;
}

void server_rules::end_copy(change_number x, timestamp) {
  if (const auto known = entries_.find(x); known != entries_.end() && known->second.copies > 0)
    --known->second.copies;
  release_if_done(x);
}

bool server_rules::begin_work(change_number x) {
  if (!is_current(x) || is_held_up(entries_.at(x).what))
    return false;
  ++entries_.at(x).work;
  return true;
}

void server_rules::end_work(change_number x, timestamp now) {
  const auto known = entries_.find(x);
  if (known == entries_.end() || known->second.work == 0)
    return;
  --known->second.work;
  const bool last = known->second.work == 0;
  release_if_done(x);
  if (last)
    advance(now);
}

// -- pings ------------------------------------------------------------------------------------------------------------

void server_rules::remember(std::set<instance_name>& in, const instance_name& name) const {
  if (!in.insert(name).second)
    return;
  const auto first = in.lower_bound({name.first, std::numeric_limits<instance_id>::min()});
  std::size_t known = 0;
  for (auto i = first; i != in.end() && i->first == name.first; ++i)
    ++known;
  if (known > options_.remembered_per_client)
    in.erase(*first == name ? std::next(first) : first);
}

bool server_rules::answer_ping(const instance_name& name) {
  if (stopping_)
    return false;
  // An unanswered registration counts: another one would only replace it.
  if (const auto known = workers_.find(name);
      known != workers_.end() &&
      (known->second.current != 0 || (!known->second.pending.empty() && known->second.pending.back().registers)))
    return true;
  if (rejected_.contains(name))
    return false;
  if (notified_unknown_.erase(name) > 0)
    return true;
  remember(notified_unknown_, name);
  return false;
}

std::size_t server_rules::instances() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(workers_, [](const auto& x) { return x.second.current != 0; }));
}

bool server_rules::drained() const noexcept {
  return std::ranges::all_of(workers_, [](const auto& x) { return x.second.pending.empty(); }) &&
         std::ranges::all_of(entries_, [](const auto& x) { return x.second.copies == 0 && x.second.work == 0; });
}

} // namespace troupe::lmcache
