#include "handshake/client_state.hpp"

#include "handshake/rank_scope.hpp"

#include <algorithm>

namespace troupe::handshake {

namespace {

/// Errors that another attempt may change.
bool may_pass(errc code) {
  return code == errc::not_found || code == errc::timeout || code == errc::unreachable ||
         code == errc::limit_exceeded || code == errc::shutting_down || code == errc::io_error ||
         code == errc::no_memory;
}

bool suits(incarnation_number wanted, const resolution& found) {
  return wanted == 0 || wanted == found->incarnation;
}

handshake_fetch_request fetch_of(const std::string& engine, const wanted_ranks& ranks) {
  handshake_fetch_request out;
  out.engine = engine;
  out.scope = ranks.scope;
  out.rank = ranks.rank;
  out.own_tp_size = ranks.own_tp_size;
  return out;
}

} // namespace

std::optional<result<resolution>> client_state::resolve(const resolve_request& x, number who, timestamp now) {
  advance(now);
  if (x.ranks.scope == handshake_scope::peers && x.ranks.rank.tp >= x.ranks.own_tp_size)
    return result<resolution>(
        fail(errc::invalid_argument, "the requester is tp rank " + std::to_string(x.ranks.rank.tp) + " of " +
                                         std::to_string(x.ranks.own_tp_size) + ", which is invalid"));
  if (x.incarnation != 0 && x.incarnation < latest_known(x.engine))
    return result<resolution>(fail(errc::expired, "the engine has started again since"));
  if (x.incarnation != 0)
    forget_before(x.engine, x.incarnation);
  const target what{x.engine, x.ranks};
  if (auto known = look_up(what))
    return known;
  if (waiters_.size() >= options_.waiting_max)
    return result<resolution>(fail(errc::limit_exceeded, std::to_string(options_.waiting_max) +
                                                             " requests wait for engines, which is the limit"));
  const auto deadline = later(now, x.deadline > duration::zero() ? x.deadline : options_.deadline);
  waiters_.emplace(who, waiter{what, x.incarnation, deadline});
  auto& one = flights_[what];
  one.waiting.insert(who);
  if (one.fetch == 0 && one.not_before <= now)
    queue(what, now);
  launch(now);
  return std::nullopt;
}

std::optional<result<resolution>> client_state::look_up(const target& what) {
  if (const auto known = known_.find(what); known != known_.end())
    return result<resolution>(known->second.what);
  const auto whole = known_.find({what.engine, {}});
  if (whole == known_.end())
    return std::nullopt;
  const auto& all = *whole->second.what;
  const auto scope = rank_scope::make(fetch_of(what.engine, what.ranks), all.sizes);
  if (!scope)
    return result<resolution>(tl::unexpected(scope.error()));
  // A later incarnation may have it, so the request waits.
  if (!scope->exists())
    return std::nullopt;
  auto part = all;
  std::erase_if(part.entries, [&](const handshake_entry& entry) { return !scope->contains(entry.rank); });
  part.etag.clear();
  const auto found = std::make_shared<const handshake_fetch_reply>(std::move(part));
  remember(what, found, whole->second.until);
  return result<resolution>(found);
}

std::pair<client_state::known_map::iterator, client_state::known_map::iterator>
client_state::known_of(const std::string& engine) {
  // The smallest key of the engine.
  const auto first = known_.lower_bound({engine, {handshake_scope::rank, {}, 0}});
  const auto last = std::ranges::find_if(first, known_.end(), [&](const auto& x) { return x.first.engine != engine; });
  return {first, last};
}

incarnation_number client_state::latest_known(const std::string& engine) {
  const auto [first, last] = known_of(engine);
  return first == last ? 0 : first->second.what->incarnation;
}

void client_state::forget_before(const std::string& engine, incarnation_number incarnation) {
  if (const auto known = latest_known(engine); known != 0 && known < incarnation)
    forget(engine);
}

void client_state::forget(const std::string& engine) {
  const auto [first, last] = known_of(engine);
  known_.erase(first, last);
}

void client_state::queue(const target& what, timestamp now) {
  auto& x = flights_.at(what);
  if (x.is_queued)
    return;
  // Fetches that wait at the directory do not take the places of the others.
  if (x.has_looked && polls_ < options_.polls_max)
    return launch_one(what, x, true, now);
  x.is_queued = true;
  queue_.push_back(what);
}

void client_state::launch(timestamp now) {
  while (under_way_.size() - polls_ < options_.parallel_max && !queue_.empty()) {
    const auto what = std::move(queue_.front());
    queue_.pop_front();
    const auto x = flights_.find(what);
    if (x == flights_.end() || !x->second.is_queued)
      continue; // no request waits any more
    x->second.is_queued = false;
    launch_one(what, x->second, false, now);
  }
}

void client_state::launch_one(const target& what, flight& x, bool is_poll, timestamp now) {
  timestamp last = now;
  incarnation_number wanted = 0;
  for (const auto who : x.waiting) {
    last = std::max(last, waiters_.at(who).deadline);
    wanted = std::max(wanted, waiters_.at(who).incarnation);
  }
  fetch_order order;
  order.fetch = ++last_fetch_;
  order.what = fetch_of(what.engine, what.ranks);
  order.what.compat = options_.compat;
  order.what.complete = true;
  order.what.incarnation = wanted;
  order.what.wait = is_poll ? std::min(options_.poll, last - now) : duration::zero();
  order.deadline = later(now, order.what.wait + options_.grace);
  x.fetch = order.fetch;
  x.asked_for = wanted;
  x.is_poll = is_poll;
  polls_ += is_poll ? 1 : 0;
  x.fetch_deadline = order.deadline;
  under_way_.emplace(order.fetch, what);
  orders_.push_back(std::move(order));
}

void client_state::fetch_over(flight& x) {
  under_way_.erase(x.fetch);
  polls_ -= x.is_poll ? 1 : 0;
  x.is_poll = false;
  x.fetch = 0;
}

void client_state::answered(number fetch, result<handshake_fetch_reply> answer, timestamp now) {
  advance(now);
  const auto which = under_way_.find(fetch);
  if (which == under_way_.end())
    return;
  const auto what = which->second;
  auto& x = flights_.at(what);
  const bool has_waited = x.is_poll;
  fetch_over(x);
  const auto notified_of = answer ? answer->incarnation : 0;
  if (answer && answer->code != 0)
    answer = tl::unexpected(error{errc_from_wire(answer->code), answer->text});
  const auto noted = noted_.find(what.engine);
  const auto latest = std::max(latest_known(what.engine), noted == noted_.end() ? 0 : noted->second.incarnation);
  if (answer && answer->incarnation < latest)
    answer = fail(errc::not_found, "only an earlier start of the engine is known");
  if (answer) {
    const auto found = std::make_shared<const handshake_fetch_reply>(std::move(*answer));
    forget_before(what.engine, found->incarnation);
    remember(what, found, later(now, options_.cache_for));
    deliver(what, found);
    // Requests for a later incarnation wait for it.
    if (!x.waiting.empty())
      back_off(x, {errc::not_found, "only an earlier start of the engine is known"}, has_waited, now);
  } else if (may_pass(answer.error().code)) {
    back_off(x, answer.error(), has_waited, now);
  } else if (answer.error().code == errc::expired && x.asked_for != 0) {
    deliver_expired(x, notified_of, answer.error(), now);
  } else {
    for (const auto who : std::set<number>(x.waiting))
      this->answer(who, tl::unexpected(answer.error()));
  }
  drop_if_idle(what);
  if (const auto next = flights_.find(what);
      next != flights_.end() && next->second.fetch == 0 && next->second.not_before <= now)
    queue(what, now);
  launch(now);
}

void client_state::back_off(flight& x, error why, bool has_waited, timestamp now) const {
  x.last = std::move(why);
  // A missing publication is waited for at the directory; it is not a failure.
  x.has_looked = x.last.code == errc::not_found;
  if (x.has_looked && !has_waited && polls_ < options_.polls_max)
    x.pause = {};
  else if (x.has_looked && has_waited)
    x.pause = options_.backoff_min;
  else
    x.pause = std::clamp(x.pause * 2, options_.backoff_min, options_.backoff_max);
  x.not_before = later(now, x.pause);
}

void client_state::remember(const target& what, const resolution& found, timestamp until) {
  if (known_.size() >= options_.cached_max && !known_.contains(what)) {
    const auto first = std::ranges::min_element(known_, {}, [](const auto& y) { return y.second.until; });
    known_.erase(first);
  }
  known_[what] = {found, until};
}

void client_state::deliver(const target& what, const resolution& found) {
  auto& x = flights_.at(what);
  for (const auto who : std::set<number>(x.waiting)) {
    const auto wanted = waiters_.at(who).incarnation;
    if (suits(wanted, found))
      answer(who, found);
    else if (wanted < found->incarnation)
      answer(who, fail(errc::expired, "the engine has started again since"));
  }
}

void client_state::deliver_expired(flight& x, incarnation_number latest, const error& why, timestamp now) {
  const auto is_over = [&](incarnation_number wanted) {
    return wanted != 0 && (wanted <= x.asked_for || wanted < latest);
  };
  for (const auto who : std::set<number>(x.waiting))
    if (is_over(waiters_.at(who).incarnation))
      answer(who, tl::unexpected(why));
  // At once, and not for ever: each time, a later incarnation is requested, or in the end the live one.
  x.not_before = now;
  x.has_looked = false;
}

void client_state::answer(number who, result<resolution> what) {
  const auto x = waiters_.find(who);
  flights_.at(x->second.what).waiting.erase(who);
  waiters_.erase(x);
  answers_.emplace_back(who, std::move(what));
}

void client_state::drop_if_idle(const target& what) {
  const auto x = flights_.find(what);
  if (x == flights_.end() || !x->second.waiting.empty())
    return;
  // A fetch in progress is not waited for: its answer is ignored.
  if (x->second.fetch != 0) {
    abandoned_.push_back(x->second.fetch);
    fetch_over(x->second);
  }
  flights_.erase(x);
}

void client_state::cancel(number who, timestamp now) {
  advance(now);
  const auto x = waiters_.find(who);
  if (x == waiters_.end())
    return;
  const auto what = x->second.what;
  answer(who, fail(errc::cancelled, "cancelled by the caller"));
  drop_if_idle(what);
  launch(now);
}

void client_state::note(const std::string& engine, incarnation_number incarnation, bool lives, timestamp now) {
  advance(now);
  if (noted_.size() >= options_.cached_max && !noted_.contains(engine))
    noted_.erase(noted_order_.extract(noted_order_.begin()).mapped());
  auto& latest = noted_[engine];
  noted_order_.erase(latest.notified);
  latest = {std::max(latest.incarnation, incarnation), ++last_notified_};
  noted_order_.emplace(latest.notified, engine);
  const auto mine = latest_known(engine);
  // If the directory has removed an engine, the cached result stays: engines that are connected continue.
  if (incarnation > mine || (!lives && incarnation == mine))
    forget(engine);
}

bool client_state::connection_opened(number order, bool is_open, timestamp now) {
  const auto is_used = watch_.opened(order, is_open, now);
  if (is_used && is_open)
    for (auto& [what, x] : flights_)
      if (x.fetch == 0) {
        x.not_before = now;
        x.pause = {};
      }
  advance(now);
  return is_used;
}

bool client_state::connection_lost(number order, timestamp now) {
  const auto was_used = watch_.connection_lost(order, now);
  if (was_used)
    fail_all_under_way({errc::unreachable, "the connection to the directory is lost"}, now);
  advance(now);
  return was_used;
}

void client_state::watched(number order, const result<number>& answer, timestamp now) {
  if (watch_.watched(order, answer, now))
    fail_all_under_way({errc::unreachable, "the directory cannot be reached any more"}, now);
  advance(now);
}

void client_state::watch_lost(number watch, timestamp now) {
  watch_.watch_lost(watch, now);
  advance(now);
}

void client_state::fail_all_under_way(const error& why, timestamp now) {
  for (auto& [what, x] : flights_) {
    if (x.fetch == 0)
      continue;
    abandoned_.push_back(x.fetch);
    fetch_over(x);
    back_off(x, why, false, now);
  }
}

void client_state::stop(const error& why) {
  while (!waiters_.empty())
    answer(waiters_.begin()->first, tl::unexpected(why));
  for (const auto& [fetch, what] : std::exchange(under_way_, {}))
    abandoned_.push_back(fetch);
  flights_.clear();
  queue_.clear();
  polls_ = 0;
}

void client_state::advance(timestamp now) {
  if (watch_.advance(now))
    fail_all_under_way({errc::timeout, "the directory did not answer in time"}, now);
  std::vector<number> late;
  for (const auto& [who, x] : waiters_)
    if (x.deadline <= now)
      late.push_back(who);
  std::set<target> touched;
  for (const auto who : late) {
    const auto what = waiters_.at(who).what;
    const auto& last = flights_.at(what).last;
    answer(who, fail(errc::timeout, "not resolved in time: " + last.text));
    touched.insert(what);
  }
  for (const auto& what : touched)
    drop_if_idle(what);
  for (auto& [what, x] : flights_) {
    if (x.fetch != 0 && x.fetch_deadline <= now) {
      abandoned_.push_back(x.fetch);
      fetch_over(x);
      back_off(x, {errc::timeout, "the directory did not answer in time"}, false, now);
    }
    if (x.fetch == 0 && x.not_before <= now)
      queue(what, now);
  }
  std::erase_if(known_, [&](const auto& x) { return x.second.until <= now; });
  launch(now);
}

std::optional<timestamp> client_state::next_deadline() const {
  std::optional<timestamp> out = watch_.next_deadline();
  const auto consider = [&](timestamp x) { out = std::min(out.value_or(x), x); };
  for (const auto& [who, x] : waiters_)
    consider(x.deadline);
  for (const auto& [what, x] : flights_)
    if (x.fetch != 0)
      consider(x.fetch_deadline);
    else if (!x.is_queued)
      consider(x.not_before);
  return out;
}

std::string client_state::find_inconsistency() const {
  std::size_t waiting = 0;
  std::size_t flying = 0;
  std::size_t polls = 0;
  for (const auto& [what, x] : flights_) {
    if (x.waiting.empty())
      return what.engine + " is fetched for no request";
    waiting += x.waiting.size();
    flying += x.fetch != 0 ? 1 : 0;
    polls += x.is_poll ? 1 : 0;
  }
  if (waiting != waiters_.size())
    return "a waiting request is not listed exactly once";
  if (flying != under_way_.size() || polls != polls_ || flying - polls > options_.parallel_max ||
      polls > options_.polls_max)
    return "the number of fetches is wrong";
  std::map<std::string, incarnation_number> starts;
  for (const auto& [what, x] : known_)
    if (starts.emplace(what.engine, x.what->incarnation).first->second != x.what->incarnation)
      return "two incarnations of " + what.engine + " are cached at once";
  return {};
}

} // namespace troupe::handshake
