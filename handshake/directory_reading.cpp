#include "handshake/directory_state.hpp"
#include "handshake/etag.hpp"
#include "handshake/rank_scope.hpp"

#include <algorithm>

/// The reading side of the directory: fetching, waiting, watching.

namespace troupe::handshake {

namespace {

constexpr auto found = static_cast<std::uint8_t>(errc::ok);

/// Whether a tag is in a list that is separated by commas; `*` matches any tag.
bool is_among(std::string_view tag, std::string_view all) {
  while (!all.empty()) {
    const auto one = all.substr(0, all.find(','));
    if (one == tag || one == "*")
      return true;
    all.remove_prefix(std::min(all.size(), one.size() + 1));
  }
  return false;
}

handshake_fetch_reply failure(errc code, std::string text) {
  handshake_fetch_reply out;
  out.code = static_cast<std::uint8_t>(code);
  out.text = std::move(text);
  return out;
}

} // namespace

std::uint64_t message_bytes(const handshake_fetch_reply& x) {
  // Numbers, lengths, and the envelope of a message.
  std::uint64_t out = x.text.size() + x.compat.size() + x.etag.size() + 512;
  for (const auto& entry : x.entries)
    out += entry.payload.size() + entry.etag.size() + sizeof(entry);
  return out;
}

std::optional<handshake_fetch_reply> directory_state::fetch(const handshake_fetch_request& x, number who,
                                                            timestamp now) {
  advance(now);
  if (x.scope == handshake_scope::peers && x.rank.tp >= x.own_tp_size) {
    ++stats_.refused_malformed;
    return failure(errc::invalid_argument, "the requester is tp rank " + std::to_string(x.rank.tp) + " of " +
                                               std::to_string(x.own_tp_size) + ", which is invalid");
  }
  const auto wait = std::clamp(x.wait, duration::zero(), options_.wait_max);
  const bool may_wait = wait > duration::zero();
  const bool is_held = is_held_back(x.engine);
  if (auto answer = is_held ? std::nullopt : look(x, now, !may_wait)) {
    count(*answer);
    return answer;
  }
  if (stopped_)
    return failure(stopped_->code, stopped_->text);
  if (waiters_.size() >= options_.waiting_max || x.engine.size() > name_bytes_max || x.etag.size() > etag_bytes_max ||
      x.compat.size() > compat_bytes_max) {
    ++stats_.refused_waiting;
    return failure(errc::limit_exceeded,
                   "there are " + std::to_string(waiters_.size()) + " fetches that wait, or this one is too long");
  }
  stats_.waits += may_wait ? 1 : 0;
  const auto deadline = later(now, may_wait ? wait : options_.disk_patience);
  waiters_.emplace(who, waiter{x, deadline, !may_wait});
  waiting_for_[x.engine].insert(who);
  due_.insert({deadline, due_kind::waiter, {}, who});
  return std::nullopt;
}

handshake_fetch_reply directory_state::known_of(std::string_view name, const live_engine& x, timestamp now) const {
  handshake_fetch_reply out;
  out.incarnation = x.incarnation;
  out.sizes = x.sizes;
  out.compat = x.compat;
  // A heartbeat that is not durable may be lost.
  const auto listed = listed_.find(name);
  const auto deadline = listed == listed_.end() ? x.deadline : std::min(x.deadline, listed->second.deadline);
  out.expires_in = std::max(deadline - now, duration::zero());
  return out;
}

std::optional<handshake_fetch_reply> directory_state::look(const handshake_fetch_request& x, timestamp now, bool last) {
  if (const auto engine = engines_.find(x.engine); engine != engines_.end())
    return look_at(x, engine->second, now, last);
  const auto past = past_.find(x.engine);
  if (past == past_.end())
    return last ? std::optional(failure(errc::not_found, "there is no engine of this name")) : std::nullopt;
  const auto& was = past->second;
  if (x.incarnation != 0 &&
      (x.incarnation < was.incarnation || (x.incarnation == was.incarnation && was.over == ending::withdrawn))) {
    auto out = failure(errc::expired, "this incarnation of the engine has ended");
    out.incarnation = was.incarnation;
    return out;
  }
  if (!last)
    return std::nullopt;
  auto out = failure(errc::not_found, was.over == ending::withdrawn
                                          ? "the engine has deregistered"
                                          : "the engine's time to live has expired without a heartbeat");
  out.incarnation = was.incarnation;
  return out;
}

std::optional<handshake_fetch_reply>
directory_state::look_at(const handshake_fetch_request& x, const live_engine& engine, timestamp now, bool last) const {
  auto out = known_of(x.engine, engine, now);
  const auto refuse = [&](errc code, std::string text) {
    out.code = static_cast<std::uint8_t>(code);
    out.text = std::move(text);
    return out;
  };
  if (x.incarnation != 0 && x.incarnation < engine.incarnation)
    return refuse(errc::expired, "the engine has started again");
  if (x.incarnation > engine.incarnation) {
    if (!last)
      return std::nullopt;
    return refuse(errc::not_found, "only an earlier incarnation of the engine is known");
  }
  // Before anything of the payload is revealed.
  if (!x.compat.empty() && x.compat != engine.compat)
    return refuse(errc::identity_mismatch, "the engine's compatibility hash is \"" + engine.compat + "\"");
  const auto scope = rank_scope::make(x, engine.sizes);
  if (!scope)
    return refuse(scope.error().code, scope.error().text);
  if (!scope->exists())
    return refuse(errc::not_found, "there is no " + rank_scope::describe(x) + ": the sizes are dp " +
                                       std::to_string(engine.sizes.dp) + ", pp " + std::to_string(engine.sizes.pp) +
                                       ", tp " + std::to_string(engine.sizes.tp));
  std::vector<const std::pair<const handshake_rank, rank_entry>*> all;
  std::string tags;
  for (const auto& each : engine.ranks)
    if (scope->contains(each.first)) {
      all.push_back(&each);
      tags += std::to_string(each.first.dp) + '.' + std::to_string(each.first.pp) + '.' +
              std::to_string(each.first.tp) + each.second.etag;
    }
  out.complete = all.size() == scope->count();
  if (all.empty() || (x.complete && !out.complete)) {
    if (!last)
      return std::nullopt;
    return refuse(errc::not_found, rank_scope::describe(x) + ": " + std::to_string(all.size()) + " of " +
                                       std::to_string(scope->count()) + " published; of the engine " +
                                       std::to_string(engine.ranks.size()) + " of " +
                                       std::to_string(engine.sizes.count()));
  }
  out.etag =
      x.scope == handshake_scope::rank ? all.front()->second.etag : etag_of(std::to_string(engine.incarnation), tags);
  if (is_among(out.etag, x.etag)) {
    if (!last)
      return std::nullopt;
    out.not_modified = true;
    return out;
  }
  out.entries.reserve(all.size());
  for (const auto* each : all)
    out.entries.push_back({each->first, each->second.etag, each->second.form, each->second.payload});
  return out;
}

void directory_state::count(const handshake_fetch_reply& x) {
  switch (errc_from_wire(x.code)) {
  case errc::ok:
    ++(x.not_modified ? stats_.not_modified : stats_.found);
    break;
  case errc::expired:
    ++stats_.gone;
    break;
  case errc::identity_mismatch:
    ++stats_.incompatible;
    break;
  case errc::invalid_argument:
    ++stats_.refused_malformed;
    break;
  default:
    ++stats_.not_found;
    break;
  }
}

// -- waiting ----------------------------------------------------------------------------------------------------------

void directory_state::changed(const std::string& name) {
  relist(name);
  if (options_.hold_back)
    held_back_[name] = last_change_;
  look_again(name);
  for (auto& [who, x] : watchers_)
    if (x.engine.empty() || x.engine == name)
      x.changed.insert(name);
}

void directory_state::look_again(std::string_view name) {
  if (const auto waiting = waiting_for_.find(name); waiting != waiting_for_.end())
    ready_.insert(waiting->second.begin(), waiting->second.end());
}

void directory_state::durable(number change, timestamp now) {
  advance(now);
  for (; !unwritten_.empty() && unwritten_.front().change <= change; unwritten_.pop_front())
    list_as(unwritten_.front().engine, std::move(unwritten_.front().then));
  std::erase_if(held_back_, [&](const auto& x) {
    if (x.second > change)
      return false;
    look_again(x.first);
    return true;
  });
}

void directory_state::time_is_up(number who, timestamp now) {
  auto& x = waiters_.at(who);
  if (x.is_late) {
    ++stats_.refused_disk;
    answers_.emplace_back(
        who, failure(errc::limit_exceeded,
                     "the changes of this engine are not on the disk of the index yet; try again in a moment"));
    return forget_waiter(who);
  }
  ++stats_.waits_timed_out;
  due_.erase({x.deadline, due_kind::waiter, {}, who});
  x.is_late = true;
  x.deadline = later(now, options_.disk_patience);
  due_.insert({x.deadline, due_kind::waiter, {}, who});
  ready_.insert(who);
}

std::optional<std::pair<directory_state::number, handshake_fetch_reply>> directory_state::next_answer() {
  if (!answers_.empty()) {
    auto out = std::move(answers_.front());
    answers_.pop_front();
    return out;
  }
  while (!ready_.empty()) {
    const auto who = ready_.extract(ready_.begin()).value();
    const auto& x = waiters_.at(who);
    if (is_held_back(x.what.engine))
      continue; // comes back when that is durable
    if (auto reply = look(x.what, now_, x.is_late)) {
      count(*reply);
      forget_waiter(who);
      return std::pair(who, std::move(*reply));
    }
  }
  return std::nullopt;
}

std::vector<std::pair<directory_state::number, handshake_fetch_reply>> directory_state::take_answers() {
  std::vector<std::pair<number, handshake_fetch_reply>> out;
  while (auto next = next_answer())
    out.push_back(std::move(*next));
  return out;
}

void directory_state::cancel(number who) {
  if (!waiters_.contains(who))
    return;
  ++stats_.waits_cancelled;
  forget_waiter(who);
}

void directory_state::forget_waiter(number who) {
  const auto which = waiters_.find(who);
  due_.erase({which->second.deadline, due_kind::waiter, {}, who});
  const auto list = waiting_for_.find(which->second.what.engine);
  list->second.erase(who);
  if (list->second.empty())
    waiting_for_.erase(list);
  ready_.erase(who);
  waiters_.erase(which);
}

void directory_state::stop_waiting(const error& why) {
  stopped_ = why;
  std::vector<number> all;
  for (const auto& [who, x] : waiters_)
    all.push_back(who);
  for (const auto who : all) {
    forget_waiter(who);
    answers_.emplace_back(who, failure(why.code, why.text));
  }
}

// -- watching ---------------------------------------------------------------------------------------------------------

result<void> directory_state::watch(std::string engine, number who, timestamp now, std::uint64_t bytes_max) {
  advance(now);
  if (watchers_.size() >= options_.watches_max || engine.size() > name_bytes_max) {
    ++stats_.refused_watches;
    return fail(errc::limit_exceeded,
                "there are " + std::to_string(watchers_.size()) + " watchers, or the name of the engine is too long");
  }
  auto& x = watchers_[who];
  x.engine = std::move(engine);
  x.bytes_max = bytes_max;
  if (!x.engine.empty()) {
    x.changed.insert(x.engine);
  } else {
    for (const auto& [name, unused] : engines_)
      x.changed.insert(name);
  }
  return {};
}

bool directory_state::seen(number who) {
  const auto x = watchers_.find(who);
  if (x == watchers_.end())
    return false;
  if (std::exchange(x->second.is_notified, false))
    due_.erase({later(x->second.notified_at, options_.watch_patience), due_kind::watch, {}, who});
  return true;
}

bool directory_state::is_watching(number who, std::string_view engine) const {
  const auto x = watchers_.find(who);
  return x != watchers_.end() && x->second.engine == engine;
}

void directory_state::unwatch(number who) {
  seen(who);
  watchers_.erase(who);
}

handshake_fetch_reply directory_state::everything_of(std::string_view name, timestamp now) const {
  const auto engine = engines_.find(name);
  if (engine == engines_.end()) {
    auto out = failure(errc::not_found, "the engine was removed");
    if (const auto past = past_.find(name); past != past_.end())
      out.incarnation = past->second.incarnation;
    return out;
  }
  handshake_fetch_request all;
  all.engine = name;
  return *look_at(all, engine->second, now, true);
}

directory_state::updates directory_state::take_updates(timestamp now, const std::function<bool(number)>& has_room) {
  updates out;
  out.dropped = std::exchange(dropped_, {});
  for (auto& [who, x] : watchers_) {
    if (x.is_notified || x.changed.empty() || (has_room && !has_room(who)))
      continue;
    handshake_update news;
    news.watch = who;
    std::uint64_t payloads = 0;
    std::uint64_t bytes = 0;
    for (auto next = x.changed.begin(); next != x.changed.end() && payloads <= options_.update_bytes;) {
      if (is_held_back(*next)) {
        ++next;
        continue;
      }
      auto all = everything_of(*next, now);
      if (message_bytes(all) + next->size() > x.bytes_max) {
        all.entries.clear();
        all.code = static_cast<std::uint8_t>(errc::out_of_range);
        all.text = "its payloads do not fit into one message: fetch them rank by rank";
      }
      bytes += message_bytes(all) + next->size();
      if (bytes > x.bytes_max && !news.changes.empty())
        break;
      for (const auto& entry : all.entries)
        payloads += entry.payload.size();
      news.changes.push_back({*next, std::move(all)});
      next = x.changed.erase(next);
    }
    if (news.changes.empty())
      continue;
    x.is_notified = true;
    x.notified_at = now;
    due_.insert({later(now, options_.watch_patience), due_kind::watch, {}, who});
    out.notified.emplace_back(who, std::move(news));
  }
  return out;
}

void directory_state::put_back(number who, const handshake_update& x) {
  if (!seen(who))
    return;
  for (const auto& each : x.changes)
    watchers_.at(who).changed.insert(each.engine);
}

} // namespace troupe::handshake
