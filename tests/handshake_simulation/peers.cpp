#include "tests/handshake_simulation/world.hpp"

#include <algorithm>

/// Engines and clients, as far as they talk to the directory.

namespace troupe::handshake_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto engine_turn = milliseconds(400);
constexpr auto beat = seconds(2);

} // namespace

// -- engines ----------------------------------------------------------------------------------------------------------

void world::start_engine(std::size_t which) {
  auto& x = engines_[which];
  if (x.lives)
    return;
  count(x.incarnation > 0 ? "engine restarted" : "engine started");
  ++x.incarnation;
  x.sizes = {random_.number(1, 2), random_.number(1, 2), random_.number(1, 4)};
  x.lives = true;
  x.published.clear();
  live(which, ++x.life);
}

void world::end_engine(std::size_t which, bool gracefully) {
  auto& x = engines_[which];
  if (!x.lives)
    return;
  count(gracefully ? "engine withdrawn" : "engine crashed");
  x.lives = false;
  requests_.abandon_if([which](const auto& request) { return request.first == std::pair(waiter::engine, which); });
  // It does not wait for the answer.
  if (gracefully)
    carry(clients_.size() + which, [this, which, life = x.life, request = ++last_request_,
                                    what = handshake_withdraw_request{x.name, x.incarnation}] {
      reaches(which, life, request, "withdraw");
      withdraw(what, [](const handshake_reply&) {});
    });
  ++x.life;
}

void world::reaches(std::size_t which, std::uint64_t life, number request, std::string_view name) {
  if (!directory_.state)
    return;
  const call made(std::pair(waiter::engine, which), request);
  note_request(made, name);
  if (life != engines_[which].life)
    requests_.abandoned(made);
}

void world::live(std::size_t which, std::uint64_t life) {
  auto& x = engines_[which];
  if (life != x.life)
    return;
  const auto side = clients_.size() + which;
  for (const auto& rank : ranks_of(x.sizes))
    if (!x.published.contains(rank))
      publish_rank(which, life, rank);
  if (x.published.size() == x.sizes.count() && later(x.beat_at, beat) <= now_) {
    x.beat_at = now_;
    const auto request = ++last_request_;
    carry(side, [this, which, side, life, request, what = handshake_heartbeat_request{x.name, x.incarnation, {}}] {
      reaches(which, life, request, "heartbeat");
      heartbeat(what, [this, which, side, life, request](const handshake_reply& reply) {
        carry(side, [this, which, life, request, code = static_cast<errc>(reply.code), complete = reply.complete] {
          requests_.answered({{waiter::engine, which}, request});
          auto& e = engines_[which];
          if (life != e.life)
            return;
          // A part may have been restored alone: by a packet that was late.
          if (code == errc::not_found || (code == errc::ok && !complete)) {
            count("published again");
            e.published.clear();
          } else if (code != errc::ok) {
            broken("latest", e.name + " lives, and its sign of life is refused");
          }
        });
      });
    });
  }
  after(engine_turn, [this, which, life] { live(which, life); });
}

void world::publish_rank(std::size_t which, std::uint64_t life, const handshake_rank& rank) {
  const auto& x = engines_[which];
  const auto side = clients_.size() + which;
  handshake_publish_request what;
  what.engine = x.name;
  what.rank = rank;
  what.incarnation = x.incarnation;
  what.sizes = x.sizes;
  what.compat = x.compat;
  what.payload = payload_of(x.name, x.incarnation, rank);
  const auto request = ++last_request_;
  carry(side, [this, which, side, life, rank, request, length = what.payload.size(), what = std::move(what)] {
    reaches(which, life, request, "publish");
    publish(what, [this, which, side, life, rank, request, length](const handshake_reply& reply) {
      carry(side, [this, which, life, rank, request, length, code = static_cast<errc>(reply.code)] {
        requests_.answered({{waiter::engine, which}, request});
        auto& e = engines_[which];
        if (life != e.life)
          return;
        if (code == errc::ok)
          e.published.insert(rank);
        else if (code == errc::limit_exceeded)
          count("refused: no room");
        else if (code == errc::invalid_argument && e.sizes.count() > options_.ranks_max)
          count("refused: too many ranks");
        else if (code == errc::invalid_argument && length > options_.payload_bytes_max)
          count("refused: too long");
        else if (!(code == errc::invalid_argument && is_calm_)) // a request that was refused before its ranks grew
          broken("latest", e.name + " is the latest start, and what it publishes is refused");
      });
    });
  });
}

// -- clients ----------------------------------------------------------------------------------------------------------

handshake::wanted_ranks world::some_ranks() {
  const auto below = [this](std::uint32_t n) { return static_cast<std::uint32_t>(random_.below(n)); };
  switch (random_.below(4)) {
  case 0:
    return handshake::wanted_ranks::row(below(2));
  case 1:
    return handshake::wanted_ranks::one({below(2), below(2), below(3)});
  case 2: {
    count("asked for peers");
    const auto size = std::uint32_t{1} << random_.below(3);
    return handshake::wanted_ranks::peers_of(below(size), size, below(2));
  }
  default:
    return {};
  }
}

void world::ask(std::size_t who, bool must_succeed) {
  auto& c = clients_[who];
  const auto which = random_.below(engines_.size());
  const auto& e = engines_[which];
  asked what;
  what.engine = which;
  what.must_succeed = must_succeed;
  what.ranks = some_ranks();
  // As a router reports it, or unknown.
  if (random_.one_in(2) && e.incarnation > 0)
    what.wanted = must_succeed ? e.incarnation : e.incarnation - random_.below(2);
  what.at_least = c.noted[e.name];
  const auto patience = must_succeed ? duration(seconds(20)) : random_.skewed_time(milliseconds(50), seconds(20));
  what.deadline = later(now_, patience);
  const auto ticket = ++c.last;
  c.open.emplace(ticket, what);
  count("asked");
  const auto wanted = has(defect::stale_cache) ? 0 : what.wanted;
  if (auto found = c.state->resolve({e.name, wanted, patience, what.ranks}, ticket, now_)) {
    c.open.erase(ticket);
    count("known");
    check_resolution(c, what, *found);
  } else if (!must_succeed && random_.one_in(12)) {
    after(random_.time(milliseconds(1), patience), [this, who, ticket] {
      clients_[who].state->cancel(ticket, now_);
      settle(who);
    });
  }
  settle(who);
}

void world::settle(std::size_t who) {
  auto& c = clients_[who];
  for (auto& [ticket, found] : c.state->take_answers()) {
    const auto open = c.open.find(ticket);
    if (open == c.open.end()) {
      broken("ends", "a client has answered twice");
      continue;
    }
    const auto what = open->second;
    c.open.erase(open);
    check_resolution(c, what, found);
    // Cancelled requests do not count as in progress.
    const auto same = [&](const auto& x) { return x.second.engine == what.engine && x.second.ranks == what.ranks; };
    if (std::ranges::none_of(c.open, same))
      c.flying.erase({engines_[what.engine].name, what.ranks});
  }
  for (const auto gone : c.state->take_abandoned()) {
    requests_.abandoned({{waiter::fetcher, who}, gone});
    for (auto& [place, flying] : c.flying)
      flying.erase(gone);
  }
  for (const auto& order : c.state->take_orders())
    for (int times = has(defect::fetch_twice) ? 2 : 1; times > 0; --times)
      send(who, order);
  keep_way(who);
  if (const auto wrong = c.state->find_inconsistency(); !wrong.empty())
    broken("consistent", "a client: " + wrong);
  const auto next = c.state->next_deadline();
  if (!next || has(defect::forget_client_time) || (c.wakes && *c.wakes <= *next))
    return;
  c.wakes = std::max(*next, now_);
  at(*c.wakes, [this, who] { wake(who); });
}

void world::send(std::size_t who, const handshake::client_state::fetch_order& order) {
  auto& c = clients_[who];
  const std::pair place(order.what.engine,
                        handshake::wanted_ranks{order.what.scope, order.what.rank, order.what.own_tp_size});
  auto& flying = c.flying[place];
  std::erase_if(flying, [&](const auto& x) { return x.second <= now_; });
  if (!flying.empty())
    broken("single flight", "a client has two fetches of " + order.what.engine + " under way");
  flying.emplace(order.fetch, order.deadline);
  const auto answered = [this, who, place, fetch = order.fetch](const handshake_fetch_reply& reply) {
    requests_.answered({{waiter::fetcher, who}, fetch});
    auto& x = clients_[who];
    if (const auto flights = x.flying.find(place); flights != x.flying.end())
      flights->second.erase(fetch);
    x.state->answered(fetch, reply, now_);
    settle(who);
  };
  if (c.connection == 0) {
    after(milliseconds(1), [answered] {
      handshake_fetch_reply no_answer;
      no_answer.code = static_cast<std::uint8_t>(errc::unreachable);
      answered(no_answer);
    });
    return;
  }
  carry(who, [this, who, answered, connection = c.connection, id = order.fetch, what = order.what] {
    serve_behind(connection, [&] {
      note_request({{waiter::fetcher, who}, id}, "fetch");
      fetch(what, [this, who, answered](const handshake_fetch_reply& reply) {
        carry(who, [answered, reply] { answered(reply); });
      });
    });
  });
}

// -- their way to the directory ---------------------------------------------------------------------------------------

void world::keep_way(std::size_t who) {
  auto& c = clients_[who];
  const auto order = c.state->take_watch_order();
  if (!order)
    return;
  // It has waited for an earlier one in vain.
  requests_.abandon_if([who](const auto& request) { return request.first == std::pair(waiter::watcher, who); });
  const bool is_connection = order->what == handshake::watch_state::step::open;
  if (is_connection && !(has(defect::keep_the_connection) && c.connection != 0))
    open_connection(who, order->id);
  else if (!is_connection && !(has(defect::watch_once) && std::exchange(c.has_watched, true)))
    ask_for_watch(who, order->id);
}

void world::open_connection(std::size_t who, number order) {
  carry(who, [this, who, order] {
    const auto life = directory_.state ? directory_.life : 0;
    carry(who, [this, who, order, life] {
      auto& c = clients_[who];
      count(life != 0 ? "listener opened" : "listener refused");
      if (c.state->connection_opened(order, life != 0, now_) && life != 0)
        c.connection = life;
      settle(who);
    });
  });
}

void world::ask_for_watch(std::size_t who, number order) {
  carry(who, [this, who, order, connection = clients_[who].connection] {
    serve_behind(connection, [this, who, order] {
      note_request({{waiter::watcher, who}, order}, "watch");
      carry(who, [this, who, order, begun = watch(who)] {
        requests_.answered({{waiter::watcher, who}, order});
        count(begun ? "watch asked for" : "watch refused");
        clients_[who].state->watched(order, begun, now_);
        settle(who);
      });
    });
  });
}

void world::hear(std::size_t who, number watch, const handshake_update& update) {
  count("pushed");
  auto& c = clients_[who];
  for (const auto& x : update.changes) {
    auto& noted = c.noted[x.engine];
    noted = std::max(noted, x.now.incarnation);
    if (!has(defect::stale_cache))
      c.state->note(x.engine, x.now.incarnation, is_there(x.now), now_);
  }
  settle(who);
  carry_once(who, [this, who, watch, connection = c.connection] {
    serve_behind(connection, [this, who, watch] {
      if (directory_.state->seen(watch))
        return;
      carry(who, [this, who, watch] {
        count("watch found ended");
        if (!has(defect::watch_once))
          clients_[who].state->watch_lost(watch, now_);
        settle(who);
      });
    });
  });
}

/// When all has been well for a while, each client has been notified of all live engines.
void world::check_pushed() {
  for (const auto& c : clients_)
    for (const auto& e : engines_)
      if (const auto known = c.noted.find(e.name); known == c.noted.end() || known->second != e.incarnation)
        broken("pushed", "a client was never notified of " + e.name + " as " + std::to_string(e.incarnation));
}

void world::wake(std::size_t who) {
  clients_[who].wakes.reset();
  clients_[who].state->advance(now_);
  settle(who);
}

void world::check_resolution(const client& c, const asked& what, const result<handshake::resolution>& found) {
  const auto& e = engines_[what.engine];
  if (later(what.deadline, milliseconds(1)) < now_)
    broken("ends", "a client has answered too late");
  if (!found) {
    const auto code = found.error().code;
    count(std::string("failed: ").append(to_string(code)));
    const bool hashes_differ = !c.compat.empty() && c.compat != e.compat;
    const auto expected = hashes_differ ? errc::identity_mismatch : end_of(what.ranks, e.sizes);
    if (what.must_succeed && code != expected)
      broken("found", e.name + " was not found when all was well: " + found.error().text);
    return;
  }
  count("resolved");
  const auto& x = **found;
  if (what.wanted != 0 && x.incarnation != what.wanted)
    broken("cache", "a client gives " + e.name + " as " + std::to_string(x.incarnation) + " to one who means " +
                        std::to_string(what.wanted));
  if (x.incarnation < what.at_least)
    broken("cache", "a client gives " + e.name + " as " + std::to_string(x.incarnation) +
                        " although it was notified of " + std::to_string(what.at_least));
  check_ranks(e.name, what.ranks, x);
  for (const auto& entry : x.entries)
    if (entry.payload != payload_of(e.name, x.incarnation, entry.rank))
      broken("cache", e.name + " is given with what is of another start");
}

} // namespace troupe::handshake_simulation
