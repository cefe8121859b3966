#include "tests/handshake_simulation/world.hpp"

#include <algorithm>

namespace troupe::handshake_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The latency of the disk. At the directory, requests for an engine with pending changes wait so much longer, and
/// again for changes that come meanwhile.
constexpr auto disk_time = milliseconds(150);
constexpr std::size_t engine_count = 3;
constexpr std::size_t client_count = 3;

handshake_fetch_reply lost() {
  handshake_fetch_reply out;
  out.code = static_cast<std::uint8_t>(errc::unreachable);
  return out;
}

} // namespace

void world::records::apply(const handshake::directory_change& x) {
  if (const auto* engine = std::get_if<handshake::engine_noted>(&x)) {
    engines[engine->engine] = *engine;
  } else if (const auto* rank = std::get_if<handshake::rank_noted>(&x)) {
    ranks[{rank->engine, rank->rank}] = *rank;
  } else {
    const auto& name = std::get<handshake::engine_erased>(x).engine;
    engines.erase(name);
    std::erase_if(ranks, [&](const auto& y) { return y.first.first == name; });
  }
}

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), steps_(steps), defect_(built_in) {
  options_.wait_max = seconds(5);
  options_.watch_patience = seconds(3);
  options_.hold_back = !has(defect::report_before_durable);
  options_.ttl_default = time_to_live;
  options_.waiting_max = random_.number(1, 50);
  options_.disk_patience = seconds(3);
  options_.ranks_max = random_.number(4, 16);
  options_.engines_max = random_.number(1, engine_count);
  options_.payload_bytes_max = random_.number(200, 400);
  options_.bytes_max = random_.number(500, 6000);
  update_bytes_max_ = random_.number(1500, 8000);
  for (std::size_t i = 0; i < engine_count; ++i) {
    engine x;
    x.name = "engine-" + std::to_string(i);
    x.compat = i == 0 ? "other" : "same";
    engines_.push_back(std::move(x));
  }
  clients_.resize(client_count);
  for (std::size_t i = 0; i < client_count; ++i) {
    handshake::client_options how;
    how.compat = clients_[i].compat = random_.one_in(3) ? "" : "same";
    how.parallel_max = random_.number(1, 3);
    how.poll = random_.time(milliseconds(100), seconds(8));
    how.grace = seconds(1);
    how.watch_renew = random_.time(seconds(1), seconds(6));
    clients_[i].state.emplace(std::move(how));
  }
}

void world::broken(std::string_view property, std::string what) {
  if (!out_.property.empty())
    return;
  out_.property = property;
  out_.failure = std::move(what);
}

// -- the network ------------------------------------------------------------------------------------------------------

void world::carry(std::size_t side, action deliver) {
  if (is_cut_off(side) || (!is_calm_ && random_.chance(80'000))) {
    count("lost");
    return;
  }
  const auto twice = !is_calm_ && random_.chance(150'000);
  if (twice) {
    count("repeated");
    after(random_.skewed_time(milliseconds(10), seconds(20)), [this, side, deliver] {
      if (!is_cut_off(side))
        deliver();
    });
  }
  after(random_.skewed_time(milliseconds(1), is_calm_ ? milliseconds(20) : milliseconds(700)),
        [this, side, deliver = std::move(deliver)] {
          if (!is_cut_off(side))
            deliver();
        });
}

void world::carry_once(std::size_t side, const action& deliver) {
  carry(side, [deliver, came = std::make_shared<bool>(false)] {
    if (!std::exchange(*came, true))
      deliver();
  });
}

// -- the directory ----------------------------------------------------------------------------------------------------

void world::start_directory() {
  if (directory_.state)
    return;
  ++directory_.life;
  auto how = options_;
  if (has(defect::ignore_limits))
    how.engines_max = how.ranks_max = 1'000'000;
  if (has(defect::ignore_limits))
    how.bytes_max = how.payload_bytes_max = 1'000'000;
  if (has(defect::refuse_with_room) && how.engines_max > 1)
    --how.engines_max;
  if (has(defect::wait_for_the_disk))
    how.disk_patience = std::chrono::hours(1);
  directory_.state.emplace(how);
  auto& state = *directory_.state;
  for (auto [name, x] : directory_.disk.engines) {
    if (has(defect::forget_the_withdrawn) && x.over != handshake::ending::none)
      continue;
    if (has(defect::restart_deadlines) && x.over == handshake::ending::none)
      x.deadline = later(now_, time_to_live);
    state.restore(x, now_);
  }
  for (const auto& [name, x] : directory_.disk.ranks)
    state.restore(x, now_);
  count(directory_.life > 1 ? "directory restarted" : "directory started");
  settle();
}

void world::crash_directory() {
  if (!directory_.state)
    return;
  count("directory crashed");
  directory_.state.reset();
  directory_.wakes.reset();
  directory_.watches.clear();
  for (auto& [who, x] : std::exchange(directory_.waiting, {}))
    x.then(lost());
  // Their connections end; a client that was cut off is not notified.
  if (!has(defect::keep_the_connection))
    for (std::size_t who = 0; who < clients_.size(); ++who)
      carry(who, [this, who, connection = directory_.life] {
        auto& c = clients_[who];
        if (c.connection == connection && c.state->connection_lost(c.state->connection(), now_)) {
          count("listener lost");
          c.connection = 0;
        }
        settle(who);
      });
  ++directory_.life;
  // It is restarted soon, automatically or by an operator.
  if (random_.one_in(2))
    after(random_.time(milliseconds(1), seconds(1)), [this] { start_directory(); });
  // Changes that were not durable are lost, so no reader may have received them.
  for (auto& x : engines_)
    x.taken = std::max(x.taken_for_good, x.notified);
}

void world::serve(action f) {
  if (!directory_.state) {
    count("no directory");
    return;
  }
  f();
  settle();
}

void world::serve_behind(std::uint64_t connection, action f) {
  if (connection == directory_.life)
    serve(std::move(f));
  else
    count("no directory");
}

void world::note_request(const call& which, std::string_view name) {
  if (reached_.insert(which).second)
    requests_.asked(which, name);
}

void world::settle() {
  auto& state = *directory_.state;
  if (auto changes = state.take_changes(); !changes.empty()) {
    auto takes = random_.time(milliseconds(0), disk_time);
    if (!is_calm_ && random_.chance(5'000)) {
      count("disk stalled");
      takes = random_.time(seconds(1), seconds(15));
    }
    directory_.durable_at = std::max(directory_.durable_at, later(now_, takes));
    at(directory_.durable_at, [this, changes = std::move(changes), last = state.last_change(), life = directory_.life] {
      if (life != directory_.life)
        return;
      for (const auto& x : changes)
        directory_.disk.apply(x);
      serve([this, last] { directory_.state->durable(last, now_); });
    });
  }
  for (auto& [who, reply] : state.take_answers()) {
    const auto waiting = directory_.waiting.find(who);
    if (waiting == directory_.waiting.end()) {
      broken("ends", "a request is answered twice");
      continue;
    }
    const bool timed_out = reply.code == static_cast<std::uint8_t>(errc::not_found);
    if (has(defect::lose_wakeups) && !timed_out && random_.one_in(4))
      continue;
    count(timed_out ? "waited in vain" : "waited");
    check_answer(waiting->second.what, reply);
    auto then = std::move(waiting->second.then);
    directory_.waiting.erase(waiting);
    then(std::move(reply));
  }
  if (state.stats().waiting != directory_.waiting.size())
    broken("ends", "the directory keeps places for others than those who wait");
  notify_watchers();
  check_limits();
  if (const auto wrong = state.find_inconsistency(); !wrong.empty())
    broken("consistent", wrong);
  const auto next = state.next_deadline();
  if (!next || has(defect::forget_directory_time) || (directory_.wakes && *directory_.wakes <= *next))
    return;
  directory_.wakes = std::max(*next, now_);
  at(*directory_.wakes, [this, life = directory_.life] {
    if (life == directory_.life)
      wake_directory();
  });
}

void world::wake_directory() {
  directory_.wakes.reset();
  serve([this] { directory_.state->advance(now_); });
}

/// One number for each watch; a repeated request gets the existing one.
result<world::number> world::watch(std::size_t who) {
  auto& mine = directory_.watches[who];
  if (directory_.state->is_watching(mine, ""))
    return mine;
  const auto watch = ++directory_.last * client_count + who;
  const auto most = has(defect::ignore_update_bounds) ? handshake::directory_state::no_bound : update_bytes_max_;
  if (auto begun = directory_.state->watch("", watch, now_, most); !begun)
    return tl::unexpected(begun.error());
  return mine = watch;
}

void world::notify_watchers() {
  auto news = directory_.state->take_updates(now_);
  for (std::size_t i = 0; i < news.dropped.size(); ++i)
    count("watch dropped");
  for (auto& [watch, update] : news.notified) {
    // As where there is no room on the way to it; the next change, or the next moment, brings it.
    if ((!is_calm_ || has(defect::lose_updates)) && random_.one_in(8)) {
      count("no room for an update");
      if (has(defect::lose_updates))
        directory_.state->seen(watch);
      else
        directory_.state->put_back(watch, update);
      after(milliseconds(50), [this, life = directory_.life] {
        if (life == directory_.life)
          serve([] {});
      });
      continue;
    }
    std::uint64_t bytes = 0;
    for (const auto& x : update.changes) {
      bytes += handshake::message_bytes(x.now) + x.engine.size();
      if (x.now.code == static_cast<std::uint8_t>(errc::out_of_range))
        count("answered without payloads");
      auto& notified = find(x.engine).notified;
      notified = std::max(notified, x.now.incarnation);
    }
    if (bytes > update_bytes_max_)
      broken("limits", "an update has " + std::to_string(bytes) + " bytes");
    const auto who = watch % client_count;
    carry_once(who, [this, who, watch = watch, update = std::move(update)] { hear(who, watch, update); });
  }
}

void world::answer_change(const handshake_reply& reply, std::function<void(handshake_reply)> then) {
  settle();
  if (has(defect::answer_before_durable))
    return then(reply);
  at(std::max(directory_.durable_at, now_), [this, reply, then = std::move(then), life = directory_.life] {
    if (life == directory_.life)
      then(reply);
  });
}

void world::publish(handshake_publish_request x, std::function<void(handshake_reply)> then) {
  serve([&] {
    auto& e = find(x.engine);
    if (x.incarnation < e.taken) {
      count("late publication");
      if (has(defect::take_late_publications)) {
        x.incarnation = e.taken;
        x.sizes = e.sizes;
      }
    }
    // An incarnation that no client has seen before, and that may not be on disk yet.
    if (!is_calm_ && x.incarnation > e.taken && random_.one_in(4))
      after(random_.time(milliseconds(1), disk_time), [this] {
        if (!is_calm_)
          crash_directory();
      });
    const auto limit = limit_of(x);
    const auto reply = directory_.state->publish(x, now_);
    if (reply.code == static_cast<std::uint8_t>(errc::limit_exceeded) && limit != errc::limit_exceeded)
      broken("room", x.engine + " is refused, and there is room");
    if (reply.code == 0) {
      e.taken = std::max(e.taken, x.incarnation);
      e.alive_at[x.incarnation] = now_;
    }
    answer_change(reply, [this, &e, incarnation = x.incarnation, then = std::move(then)](const handshake_reply& y) {
      if (y.code == 0)
        e.taken_for_good = std::max(e.taken_for_good, incarnation);
      then(y);
    });
  });
}

void world::heartbeat(const handshake_heartbeat_request& x, std::function<void(handshake_reply)> then) {
  serve([&] {
    const auto reply = directory_.state->heartbeat(x, now_);
    if (reply.code == 0)
      find(x.engine).alive_at[x.incarnation] = now_;
    answer_change(reply, std::move(then));
  });
}

void world::withdraw(const handshake_withdraw_request& x, std::function<void(handshake_reply)> then) {
  serve([&] {
    const auto reply = directory_.state->withdraw(x, now_);
    answer_change(reply, [this, x, then = std::move(then)](const handshake_reply& y) {
      auto& withdrawn = find(x.engine).withdrawn;
      if (y.code == 0)
        withdrawn = std::max(withdrawn, x.incarnation);
      then(y);
    });
  });
}

void world::fetch(handshake_fetch_request x, std::function<void(handshake_fetch_reply)> then) {
  serve([&] {
    const auto who = ++directory_.last;
    const auto asked_for = x;
    if (has(defect::ignore_hashes))
      x.compat.clear();
    if (has(defect::ignore_scopes))
      x.scope = handshake_scope::all;
    if (auto reply = directory_.state->fetch(x, who, now_)) {
      check_answer(asked_for, *reply);
      return then(std::move(*reply));
    }
    const auto wait = std::min(x.wait, options_.wait_max);
    directory_.waiting.emplace(who, waiting_one{later(now_, wait), asked_for, std::move(then)});
    if (random_.one_in(10))
      after(random_.time(milliseconds(1), wait), [this, who, life = directory_.life] {
        if (life == directory_.life)
          serve([this, who] { cancel(who); });
      });
  });
}

/// The requester has disconnected and does not receive the answer.
void world::cancel(number who) {
  if (directory_.waiting.erase(who) == 0)
    return;
  count("abandoned");
  if (!has(defect::keep_the_gone))
    directory_.state->cancel(who);
}

// -- the course of it -------------------------------------------------------------------------------------------------

world::engine& world::find(const std::string& name) {
  return *std::ranges::find(engines_, name, &engine::name);
}

void world::step() {
  if (is_calm_)
    return;
  if (directory_.state && random_.one_in(3))
    serve([this] { check_list(); });
  const auto dice = random_.below(100);
  const auto which = random_.below(engines_.size());
  if (dice < 62)
    ask(random_.below(clients_.size()));
  else if (dice < 76)
    start_engine(which);
  else if (dice < 84)
    end_engine(which, random_.one_in(2));
  else if (dice < 88)
    crash_directory();
  else if (dice < 93)
    start_directory();
  else if (dice < 96)
    cut_off_.insert(random_.below(clients_.size() + engines_.size()));
  else
    cut_off_.clear();
}

void world::finish() {
  is_calm_ = true;
  cut_off_.clear();
  // It is given what all of them need.
  crash_directory();
  options_.engines_max = engine_count;
  options_.ranks_max = 16;
  options_.payload_bytes_max = 1000;
  options_.bytes_max = 100'000;
  start_directory();
  for (std::size_t i = 0; i < engines_.size(); ++i)
    start_engine(i);
  // Until all that is on its way has come, and engines have said that they live.
  after(seconds(30), [this] {
    check_pushed();
    for (int i = 0; i < 6; ++i)
      for (std::size_t who = 0; who < clients_.size(); ++who)
        ask(who, true);
  });
}

outcome world::run() {
  timestamp when = now_;
  at(when, [this] { start_directory(); });
  for (std::uint64_t i = 0; i < steps_; ++i) {
    when = later(when, random_.skewed_time(milliseconds(1), milliseconds(1500)));
    at(when, [this] { step(); });
  }
  at(later(when, seconds(1)), [this] { finish(); });
  const auto end = later(when, seconds(90));
  while (!agenda_.empty() && agenda_.begin()->first.first <= end && out_.property.empty()) {
    auto next = agenda_.extract(agenda_.begin());
    now_ = next.key().first;
    check_waits();
    ++out_.events;
    trace(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    next.mapped()();
  }
  for (const auto& c : clients_)
    if (!c.open.empty())
      broken("ends", "a request was never answered");
  return out_;
}

} // namespace troupe::handshake_simulation
