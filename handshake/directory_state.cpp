#include "handshake/directory_state.hpp"

#include "handshake/etag.hpp"

#include <algorithm>

namespace troupe::handshake {

namespace {

constexpr std::uint8_t code_of(errc x) {
  return static_cast<std::uint8_t>(x);
}

/// Far above any number of ranks.
constexpr std::uint32_t size_limit = 1U << 20U;

/// Names are used in paths, logs and metrics.
bool is_name(std::string_view x) {
  return !x.empty() && x.size() <= name_bytes_max &&
         std::ranges::all_of(x, [](char c) { return c > ' ' && c <= '~' && c != '/'; });
}

bool is_hash(std::string_view x) {
  return x.size() <= compat_bytes_max && std::ranges::all_of(x, [](char c) { return c > ' ' && c <= '~'; });
}

/// Bytes of one rank's publication.
template <class Rank>
std::string tag_of(const Rank& x) {
  return etag_of(std::to_string(x.incarnation) + (x.form == handshake_form::json ? "j" : "b"), x.payload);
}

std::string text_of(const handshake_sizes& x) {
  return "dp " + std::to_string(x.dp) + ", pp " + std::to_string(x.pp) + ", tp " + std::to_string(x.tp);
}

} // namespace

// -- engines ----------------------------------------------------------------------------------------------------------

std::optional<std::string> directory_state::what_is_wrong(const handshake_publish_request& x) const {
  if (!is_name(x.engine))
    return "the name of an engine must have 1 to " + std::to_string(name_bytes_max) +
           " printable characters without blanks and slashes";
  if (!is_hash(x.compat))
    return "a compatibility hash can have at most " + std::to_string(compat_bytes_max) +
           " printable characters, no blanks";
  if (x.incarnation == 0)
    return "an incarnation must be a number above 0, and higher with each start of the engine";
  if (x.ttl < duration::zero())
    return "a time to live cannot be negative";
  const auto& sizes = x.sizes;
  if (std::min({sizes.dp, sizes.pp, sizes.tp}) == 0 || std::max({sizes.dp, sizes.pp, sizes.tp}) > size_limit ||
      sizes.count() > options_.ranks_max)
    return "an engine can have 1 to " + std::to_string(options_.ranks_max) + " ranks, this one " + text_of(sizes);
  if (!sizes.contains(x.rank))
    return "there is no rank dp " + std::to_string(x.rank.dp) + ", pp " + std::to_string(x.rank.pp) + ", tp " +
           std::to_string(x.rank.tp) + " in an engine of sizes " + text_of(sizes);
  if (x.form > handshake_form::json)
    return "a payload must be bytes or JSON";
  if (x.payload.size() > options_.payload_bytes_max)
    return "a payload can have at most " + std::to_string(options_.payload_bytes_max) + " bytes, this one " +
           std::to_string(x.payload.size());
  return std::nullopt;
}

duration directory_state::ttl_of(duration wanted, duration before) const {
  return std::min(wanted > duration::zero() ? wanted : before, options_.ttl_max);
}

handshake_reply directory_state::refuse(std::uint64_t& counter, errc code, std::string text, incarnation_number known) {
  ++counter;
  handshake_reply out;
  out.code = code_of(code);
  out.text = std::move(text);
  out.incarnation = known;
  return out;
}

handshake_reply directory_state::describe(const live_engine& x, timestamp now, bool added) const {
  handshake_reply out;
  out.incarnation = x.incarnation;
  out.expires_in = x.deadline - now;
  out.ranks = static_cast<std::uint32_t>(x.ranks.size());
  out.complete = x.complete();
  out.added = added;
  return out;
}

handshake_reply directory_state::publish(const handshake_publish_request& x, timestamp now) {
  advance(now);
  if (auto wrong = what_is_wrong(x))
    return refuse(stats_.refused_malformed, errc::invalid_argument, std::move(*wrong));
  const auto known = engines_.find(x.engine);
  const auto* lives = known == engines_.end() ? nullptr : &known->second;
  if (const auto past = past_.find(x.engine); lives == nullptr && past != past_.end()) {
    const auto& was = past->second;
    if (x.incarnation < was.incarnation || (x.incarnation == was.incarnation && was.over == ending::withdrawn))
      return refuse(stats_.refused_stale, errc::expired,
                    "this incarnation has ended: the last known one is " + std::to_string(was.incarnation),
                    was.incarnation);
  }
  if (lives != nullptr && x.incarnation < lives->incarnation)
    return refuse(stats_.refused_stale, errc::expired,
                  "this incarnation has ended: the engine has started again as " + std::to_string(lives->incarnation),
                  lives->incarnation);

  const bool same_start = lives != nullptr && x.incarnation == lives->incarnation;
  const rank_entry* before = nullptr;
  if (same_start) {
    if (lives->sizes != x.sizes || lives->compat != x.compat)
      return refuse(stats_.refused_conflict, errc::exists,
                    "other ranks of this incarnation have other sizes (" + text_of(lives->sizes) +
                        ") or another compatibility hash",
                    lives->incarnation);
    if (const auto found = lives->ranks.find(x.rank); found != lives->ranks.end())
      before = &found->second;
    if (before != nullptr && (before->payload != x.payload || before->form != x.form))
      return refuse(stats_.refused_conflict, errc::exists,
                    "this rank has published another payload in this live incarnation: start a new incarnation",
                    lives->incarnation);
  }
  const auto freed = lives != nullptr && !same_start ? lives->bytes : 0;
  if (before == nullptr && bytes_ - freed + x.payload.size() > options_.bytes_max)
    return refuse(stats_.refused_bytes, errc::limit_exceeded,
                  "all payloads together can have " + std::to_string(options_.bytes_max) + " bytes");
  if (lives == nullptr && engines_.size() >= options_.engines_max)
    return refuse(stats_.refused_engines, errc::limit_exceeded,
                  "there are " + std::to_string(options_.engines_max) + " engines, which is the limit");

  const auto ttl = ttl_of(x.ttl, same_start ? lives->ttl : options_.ttl_default);
  auto& engine = same_start ? known->second : begin(x, ttl);
  renew(x.engine, engine, ttl, now);
  note(x.engine, engine);
  if (before != nullptr) {
    ++stats_.repeated;
    relist(x.engine);
    return describe(engine, now);
  }
  ++stats_.published;
  const shared_payload payload(x.payload);
  engine.ranks.emplace(x.rank, rank_entry{tag_of(x), x.form, payload});
  engine.bytes += x.payload.size();
  bytes_ += x.payload.size();
  ++ranks_;
  changes_.emplace_back(rank_noted{x.engine, x.rank, x.incarnation, x.form, payload});
  changed(x.engine);
  return describe(engine, now, true);
}

directory_state::live_engine& directory_state::begin(const handshake_publish_request& x, duration ttl) {
  if (const auto old = engines_.find(x.engine); old != engines_.end()) {
    ++stats_.replaced;
    due_.erase({old->second.deadline, due_kind::engine, x.engine, 0});
    bytes_ -= old->second.bytes;
    ranks_ -= old->second.ranks.size();
    engines_.erase(old);
  }
  if (const auto past = past_.find(x.engine); past != past_.end()) {
    due_.erase({past->second.deadline, due_kind::memory, x.engine, 0});
    past_.erase(past);
  }
  changes_.emplace_back(engine_erased{x.engine});
  auto& engine = engines_[x.engine];
  engine.incarnation = x.incarnation;
  engine.sizes = x.sizes;
  engine.compat = x.compat;
  engine.ttl = ttl;
  return engine;
}

void directory_state::renew(const std::string& name, live_engine& x, duration ttl, timestamp now) {
  due_.erase({x.deadline, due_kind::engine, name, 0});
  x.ttl = ttl;
  x.deadline = later(now, ttl);
  due_.insert({x.deadline, due_kind::engine, name, 0});
}

void directory_state::note(const std::string& name, const live_engine& x) {
  changes_.emplace_back(engine_noted{name, x.incarnation, x.sizes, x.compat, x.ttl, ending::none, x.deadline});
}

directory_state::live_engine* directory_state::find(std::string_view name, incarnation_number incarnation,
                                                    handshake_reply& refusal) {
  if (const auto found = engines_.find(name); found != engines_.end()) {
    auto& x = found->second;
    if (incarnation == 0 || incarnation == x.incarnation)
      return &x;
    if (incarnation < x.incarnation) {
      refusal = refuse(stats_.refused_stale, errc::expired,
                       "this incarnation has ended: the engine has started again as " + std::to_string(x.incarnation),
                       x.incarnation);
      return nullptr;
    }
    refusal =
        refuse(stats_.not_found, errc::not_found, "this incarnation is not known: publish it again", x.incarnation);
    return nullptr;
  }
  const auto past = past_.find(name);
  if (past != past_.end() && incarnation != 0 &&
      (incarnation < past->second.incarnation ||
       (incarnation == past->second.incarnation && past->second.over == ending::withdrawn)))
    refusal = refuse(stats_.refused_stale, errc::expired,
                     "this incarnation has ended: the last known one is " + std::to_string(past->second.incarnation),
                     past->second.incarnation);
  else
    refusal = refuse(stats_.not_found, errc::not_found, "this engine is not known: publish it again",
                     past != past_.end() ? past->second.incarnation : 0);
  return nullptr;
}

handshake_reply directory_state::heartbeat(const handshake_heartbeat_request& x, timestamp now) {
  advance(now);
  if (x.ttl < duration::zero())
    return refuse(stats_.refused_malformed, errc::invalid_argument, "a time to live cannot be negative");
  handshake_reply refusal;
  auto* engine = find(x.engine, x.incarnation, refusal);
  if (engine == nullptr)
    return refusal;
  ++stats_.heartbeats;
  renew(x.engine, *engine, ttl_of(x.ttl, engine->ttl), now);
  note(x.engine, *engine);
  relist(x.engine);
  return describe(*engine, now);
}

handshake_reply directory_state::withdraw(const handshake_withdraw_request& x, timestamp now) {
  advance(now);
  // Already removed by deregistration: repeating it is no error.
  if (const auto past = past_.find(x.engine); !engines_.contains(x.engine) && past != past_.end() &&
                                              past->second.over == ending::withdrawn &&
                                              (x.incarnation == 0 || x.incarnation == past->second.incarnation)) {
    handshake_reply out;
    out.incarnation = past->second.incarnation;
    return out;
  }
  handshake_reply refusal;
  if (find(x.engine, x.incarnation, refusal) == nullptr)
    return refusal;
  const auto which = engines_.find(x.engine);
  auto out = describe(which->second, now);
  out.expires_in = duration::zero();
  ++stats_.withdrawn;
  end(which, ending::withdrawn, now);
  return out;
}

void directory_state::end(engine_map::iterator which, ending how, timestamp now) {
  const auto name = which->first;
  const past_engine was{which->second.incarnation, how, later(now, options_.remember)};
  due_.erase({which->second.deadline, due_kind::engine, name, 0});
  bytes_ -= which->second.bytes;
  ranks_ -= which->second.ranks.size();
  engines_.erase(which);
  changes_.emplace_back(engine_erased{name});
  changes_.emplace_back(engine_noted{name, was.incarnation, {}, {}, {}, how, was.deadline});
  remember(name, was);
  changed(name);
}

void directory_state::remember(const std::string& name, const past_engine& x) {
  past_[name] = x;
  due_.insert({x.deadline, due_kind::memory, name, 0});
  if (past_.size() <= options_.remembered_max)
    return;
  const auto oldest = std::ranges::find_if(due_, [](const due& y) { return y.what == due_kind::memory; });
  forget(std::string(oldest->name));
}

void directory_state::forget(const std::string& name) {
  const auto past = past_.find(name);
  due_.erase({past->second.deadline, due_kind::memory, name, 0});
  past_.erase(past);
  changes_.emplace_back(engine_erased{name});
}

// -- lists ------------------------------------------------------------------------------------------------------------

std::optional<directory_state::listed_engine> directory_state::listing_of(const std::string& name) const {
  const auto found = engines_.find(name);
  if (found == engines_.end())
    return std::nullopt;
  const auto& e = found->second;
  return listed_engine{
      {name, e.incarnation, e.sizes, e.compat, static_cast<std::uint32_t>(e.ranks.size()), e.bytes, e.complete(), {}},
      e.deadline};
}

void directory_state::relist(const std::string& name) {
  ++last_change_;
  if (options_.hold_back)
    unwritten_.push_back({last_change_, name, listing_of(name)});
  else
    list_as(name, listing_of(name));
}

void directory_state::list_as(const std::string& name, std::optional<listed_engine> x) {
  if (x)
    listed_[name] = std::move(*x);
  else
    listed_.erase(name);
}

handshake_list_reply directory_state::list(const handshake_list_request& x, timestamp now) {
  advance(now);
  handshake_list_reply out;
  const auto add = [&](const listed_engine& e) {
    // An expired engine is not listed, whether or not its removal is stored already.
    if (e.deadline <= now)
      return;
    out.engines.push_back(e.info);
    out.engines.back().expires_in = e.deadline - now;
  };
  if (x.engine.empty()) {
    out.engines.reserve(listed_.size());
    for (const auto& [name, engine] : listed_)
      add(engine);
  } else if (const auto found = listed_.find(x.engine); found != listed_.end()) {
    add(found->second);
  }
  return out;
}

// -- time -------------------------------------------------------------------------------------------------------------

void directory_state::advance(timestamp now) {
  now_ = now;
  while (!due_.empty() && due_.begin()->at <= now) {
    const auto next = *due_.begin();
    switch (next.what) {
    case due_kind::engine:
      ++stats_.expired;
      end(engines_.find(next.name), ending::expired, now);
      break;
    case due_kind::memory:
      forget(next.name);
      break;
    case due_kind::waiter:
      time_is_up(next.who, now);
      break;
    case due_kind::watch:
      dropped_.push_back(next.who);
      unwatch(next.who);
      break;
    }
  }
}

std::optional<timestamp> directory_state::next_deadline() const {
  if (due_.empty())
    return std::nullopt;
  return due_.begin()->at;
}

void directory_state::restore(const engine_noted& x, timestamp now) {
  if (engines_.contains(x.engine) || past_.contains(x.engine))
    return;
  const bool is_over = x.over != ending::none;
  if (!is_name(x.engine) || x.incarnation == 0 || (is_over && x.deadline <= now) ||
      (!is_over && engines_.size() >= options_.engines_max)) {
    changes_.emplace_back(engine_erased{x.engine});
    return;
  }
  if (is_over || x.deadline <= now) {
    // It expired while no call came: its publication is removed, and its late requests are still refused.
    const past_engine was{x.incarnation, is_over ? x.over : ending::expired,
                          is_over ? std::min(x.deadline, later(now, options_.remember))
                                  : later(now, options_.remember)};
    if (!is_over) {
      changes_.emplace_back(engine_erased{x.engine});
      changes_.emplace_back(engine_noted{x.engine, was.incarnation, {}, {}, {}, was.over, was.deadline});
    }
    return remember(x.engine, was);
  }
  auto& engine = engines_[x.engine];
  engine.incarnation = x.incarnation;
  engine.sizes = x.sizes;
  engine.compat = x.compat;
  engine.ttl = x.ttl;
  // If the clock was set back meanwhile, the stored deadline is far away. No engine lives longer than if it had just
  // sent a heartbeat.
  engine.deadline = std::min(x.deadline, later(now, ttl_of(x.ttl, options_.ttl_max)));
  due_.insert({engine.deadline, due_kind::engine, x.engine, 0});
  list_as(x.engine, listing_of(x.engine));
}

void directory_state::restore(const rank_noted& x, timestamp) {
  const auto found = engines_.find(x.engine);
  if (found == engines_.end() || found->second.incarnation != x.incarnation || !found->second.sizes.contains(x.rank) ||
      bytes_ + x.payload.size() > options_.bytes_max)
    return;
  auto& engine = found->second;
  const auto added = engine.ranks.emplace(x.rank, rank_entry{tag_of(x), x.form, x.payload});
  if (!added.second)
    return;
  engine.bytes += x.payload.size();
  bytes_ += x.payload.size();
  ++ranks_;
  list_as(x.engine, listing_of(x.engine));
}

handshake_stats directory_state::stats() const {
  auto out = stats_;
  out.engines = engines_.size();
  out.ranks = ranks_;
  out.bytes = bytes_;
  out.waiting = waiters_.size();
  out.watches = watchers_.size();
  out.remembered = past_.size();
  return out;
}

std::string directory_state::find_inconsistency() const {
  std::uint64_t ranks = 0;
  std::uint64_t bytes = 0;
  for (const auto& [name, x] : engines_) {
    std::uint64_t own = 0;
    for (const auto& [rank, entry] : x.ranks) {
      own += entry.payload.size();
      if (!x.sizes.contains(rank))
        return name + " has a rank outside its sizes";
    }
    if (own != x.bytes)
      return name + " has another number of bytes than it counts";
    if (past_.contains(name))
      return name + " is live and remembered";
    if (!due_.contains({x.deadline, due_kind::engine, name, 0}))
      return name + " never expires";
    ranks += x.ranks.size();
    bytes += own;
  }
  if (ranks != ranks_ || bytes != bytes_)
    return "the counted ranks and bytes of all engines are wrong";
  if (bytes_ > options_.bytes_max || engines_.size() > options_.engines_max || waiters_.size() > options_.waiting_max ||
      past_.size() > options_.remembered_max)
    return "a limit is exceeded";
  for (const auto& [name, x] : past_)
    if (!due_.contains({x.deadline, due_kind::memory, name, 0}))
      return name + " is remembered without a limit";
  std::size_t listed = 0;
  for (const auto& [name, all] : waiting_for_)
    listed += all.size();
  if (listed != waiters_.size())
    return "a waiting fetch is not listed exactly once";
  for (const auto& [who, x] : waiters_)
    if (!due_.contains({x.deadline, due_kind::waiter, {}, who}))
      return "a fetch waits without a deadline";
  if (!options_.hold_back && (!held_back_.empty() || !unwritten_.empty()))
    return "a change is held back without a record";
  for (const auto& [name, x] : engines_)
    if (const auto notified = listed_.find(name);
        !is_held_back(name) && (notified == listed_.end() || notified->second.info.incarnation != x.incarnation))
      return name + " is not listed in its durable state";
  return {};
}

} // namespace troupe::handshake
