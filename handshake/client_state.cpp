#include "handshake/client_state.hpp"

#include <algorithm>

namespace troupe::handshake {

namespace {

/// What another attempt may change.
bool may_pass(errc code) {
  return code == errc::not_found || code == errc::timeout || code == errc::unreachable ||
         code == errc::limit_exceeded || code == errc::shutting_down || code == errc::io_error;
}

bool suits(incarnation_number wanted, const resolution& found) {
  return wanted == 0 || wanted == found->incarnation;
}

} // namespace

std::optional<result<resolution>> client_state::resolve(const resolve_request& x, number who, timestamp now) {
  advance(now);
  if (const auto known = known_.find(x.engine); known != known_.end()) {
    if (suits(x.incarnation, known->second.what))
      return result<resolution>(known->second.what);
    if (x.incarnation < known->second.what->incarnation)
      return result<resolution>(fail(errc::expired, "the engine has started again since"));
    known_.erase(known);
  }
  if (waiters_.size() >= options_.waiting_max)
    return result<resolution>(
        fail(errc::limit_exceeded, std::to_string(options_.waiting_max) + " wait for engines, as many as may"));
  const auto deadline = later(now, x.deadline > duration::zero() ? x.deadline : options_.deadline);
  waiters_.emplace(who, waiter{x.engine, x.incarnation, deadline});
  auto& one = flights_[x.engine];
  one.waiting.insert(who);
  if (one.fetch == 0 && one.not_before <= now)
    queue(x.engine);
  launch(now);
  return std::nullopt;
}

void client_state::queue(const std::string& engine) {
  auto& x = flights_.at(engine);
  if (std::exchange(x.is_queued, true))
    return;
  queue_.push_back(engine);
}

void client_state::launch(timestamp now) {
  while (under_way_.size() < options_.parallel_max && !queue_.empty()) {
    const auto engine = std::move(queue_.front());
    queue_.pop_front();
    const auto x = flights_.find(engine);
    if (x == flights_.end() || !x->second.is_queued)
      continue; // nobody waits any more
    x->second.is_queued = false;
    launch_one(engine, x->second, now);
  }
}

void client_state::launch_one(const std::string& engine, flight& x, timestamp now) {
  timestamp last = now;
  incarnation_number wanted = 0;
  for (const auto who : x.waiting) {
    last = std::max(last, waiters_.at(who).deadline);
    wanted = std::max(wanted, waiters_.at(who).incarnation);
  }
  fetch_order order;
  order.fetch = ++last_fetch_;
  order.what.engine = engine;
  order.what.compat = options_.compat;
  order.what.complete = true;
  order.what.incarnation = wanted;
  order.what.wait = std::min(options_.poll, last - now);
  order.deadline = later(now, order.what.wait + options_.grace);
  x.fetch = order.fetch;
  x.fetch_deadline = order.deadline;
  under_way_.emplace(order.fetch, engine);
  orders_.push_back(std::move(order));
}

void client_state::fetch_over(flight& x) {
  under_way_.erase(x.fetch);
  x.fetch = 0;
}

void client_state::answered(number fetch, result<handshake_fetch_reply> answer, timestamp now) {
  advance(now);
  const auto which = under_way_.find(fetch);
  if (which == under_way_.end())
    return;
  const auto engine = which->second;
  auto& x = flights_.at(engine);
  fetch_over(x);
  if (answer && answer->code != 0)
    answer = tl::unexpected(error{static_cast<errc>(answer->code), answer->text});
  if (const auto noted = noted_.find(engine); answer && noted != noted_.end() && answer->incarnation < noted->second)
    answer = fail(errc::not_found, "only an earlier start of the engine is known");
  if (answer) {
    const auto found = std::make_shared<const handshake_fetch_reply>(std::move(*answer));
    remember(engine, found, now);
    deliver(engine, found);
    // Those who mean a later start wait for it.
    if (!x.waiting.empty())
      back_off(x, {errc::not_found, "only an earlier start of the engine is known"}, now);
  } else if (may_pass(answer.error().code)) {
    back_off(x, answer.error(), now);
  } else {
    for (const auto who : std::set<number>(x.waiting))
      this->answer(who, tl::unexpected(answer.error()));
  }
  drop_if_idle(engine);
  launch(now);
}

void client_state::back_off(flight& x, error why, timestamp now) const {
  x.last = std::move(why);
  // A fetch that has waited its time in vain is no failure of the directory.
  const bool has_waited = x.last.code == errc::not_found;
  x.pause = has_waited ? options_.backoff_min : std::clamp(x.pause * 2, options_.backoff_min, options_.backoff_max);
  x.not_before = later(now, x.pause);
}

void client_state::remember(const std::string& engine, const resolution& found, timestamp now) {
  if (known_.size() >= options_.cached_max && !known_.contains(engine)) {
    const auto first = std::ranges::min_element(known_, {}, [](const auto& y) { return y.second.until; });
    known_.erase(first);
  }
  known_[engine] = {found, later(now, options_.cache_for)};
}

void client_state::deliver(const std::string& engine, const resolution& found) {
  auto& x = flights_.at(engine);
  for (const auto who : std::set<number>(x.waiting)) {
    const auto wanted = waiters_.at(who).incarnation;
    if (suits(wanted, found))
      answer(who, found);
    else if (wanted < found->incarnation)
      answer(who, fail(errc::expired, "the engine has started again since"));
  }
}

void client_state::answer(number who, result<resolution> what) {
  const auto x = waiters_.find(who);
  flights_.at(x->second.engine).waiting.erase(who);
  waiters_.erase(x);
  answers_.emplace_back(who, std::move(what));
}

void client_state::drop_if_idle(const std::string& engine) {
  const auto x = flights_.find(engine);
  if (x == flights_.end() || !x->second.waiting.empty())
    return;
  // What is under way is not waited for: its answer is nobody's.
  if (x->second.fetch != 0)
    under_way_.erase(x->second.fetch);
  flights_.erase(x);
}

void client_state::cancel(number who, timestamp now) {
  advance(now);
  const auto x = waiters_.find(who);
  if (x == waiters_.end())
    return;
  const auto engine = x->second.engine;
  answer(who, fail(errc::cancelled, "nobody wants to know any more"));
  drop_if_idle(engine);
  launch(now);
}

void client_state::note(const std::string& engine, incarnation_number incarnation, bool lives, timestamp now) {
  advance(now);
  if (noted_.size() >= options_.cached_max && !noted_.contains(engine))
    noted_.erase(noted_.begin());
  auto& latest = noted_[engine];
  latest = std::max(latest, incarnation);
  const auto known = known_.find(engine);
  if (known == known_.end())
    return;
  const auto mine = known->second.what->incarnation;
  // That the directory has lost sight of an engine is no reason to forget it: those who have met go on.
  if (incarnation > mine || (!lives && incarnation == mine))
    known_.erase(known);
}

void client_state::stop(const error& why) {
  while (!waiters_.empty())
    answer(waiters_.begin()->first, tl::unexpected(why));
  flights_.clear();
  under_way_.clear();
  queue_.clear();
}

void client_state::advance(timestamp now) {
  std::vector<number> late;
  for (const auto& [who, x] : waiters_)
    if (x.deadline <= now)
      late.push_back(who);
  std::set<std::string> touched;
  for (const auto who : late) {
    const auto engine = waiters_.at(who).engine;
    const auto& last = flights_.at(engine).last;
    answer(who, fail(errc::timeout, "not resolved in time: " + last.text));
    touched.insert(engine);
  }
  for (const auto& engine : touched)
    drop_if_idle(engine);
  for (auto& [engine, x] : flights_) {
    if (x.fetch != 0 && x.fetch_deadline <= now) {
      fetch_over(x);
      back_off(x, {errc::timeout, "the directory has not answered in time"}, now);
    }
    if (x.fetch == 0 && x.not_before <= now)
      queue(engine);
  }
  std::erase_if(known_, [&](const auto& x) { return x.second.until <= now; });
  launch(now);
}

std::optional<timestamp> client_state::next_deadline() const {
  std::optional<timestamp> out;
  const auto consider = [&](timestamp x) { out = std::min(out.value_or(x), x); };
  for (const auto& [who, x] : waiters_)
    consider(x.deadline);
  for (const auto& [engine, x] : flights_)
    if (x.fetch != 0)
      consider(x.fetch_deadline);
    else if (!x.is_queued)
      consider(x.not_before);
  return out;
}

std::string client_state::find_inconsistency() const {
  std::size_t waiting = 0;
  std::size_t flying = 0;
  for (const auto& [engine, x] : flights_) {
    if (x.waiting.empty())
      return engine + " is fetched for nobody";
    waiting += x.waiting.size();
    flying += x.fetch != 0 ? 1 : 0;
  }
  if (waiting != waiters_.size())
    return "who waits is not listed once";
  if (flying != under_way_.size() || flying > options_.parallel_max)
    return "fetches are not counted as they are";
  return {};
}

} // namespace troupe::handshake
