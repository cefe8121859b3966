#include "tests/lmcache_simulation/world.hpp"

#include <algorithm>

namespace troupe::lmcache_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t workers_max = 4;
/// Longer than the rules allow for preparing.
constexpr auto longest_preparation = minutes(3);
constexpr auto patience = minutes(10);

constexpr std::string_view registers = "register";
constexpr std::string_view unregisters = "unregister";
constexpr std::string_view pings = "ping";

} // namespace

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), steps_(steps), defect_(built_in) {}

void world::broken(std::string_view property, std::string what) {
  if (!out_.property.empty())
    return;
  out_.property = property;
  out_.failure = std::move(what);
}

// -- workers ----------------------------------------------------------------------------------------------------------

void world::start() {
  auto& x = workers_[++last_worker_];
  x.number = last_worker_;
  x.process = static_cast<std::int32_t>(1000 + last_worker_);
  x.sometimes_unknown = random_.one_in(2);
  x.instance = x.sometimes_unknown && random_.one_in(2) ? 1 : x.process;
  new_memory(x);
  connect(x);
  count("started");
  enroll(x, false);
}

void world::new_memory(worker& x) {
  if (random_.one_in(6)) {
    x.memory = nullptr;
    return;
  }
  auto out = std::make_shared<remote_layout>();
  out->memories.emplace_back(shared_memory_handle{"memory " + std::to_string(++last_memory_), 4096});
  x.memory = out;
}

void world::connect(worker& x) {
  x.client = ++last_client_;
  x.notified_process = x.sometimes_unknown && random_.one_in(2) ? 0 : x.process;
  x.last_change = 0;
  x.last_ping.reset();
}

void world::disconnect(const worker& x) {
  if (random_.one_in(4))
    ping_at_the_end(x);
  requests_.abandon_if([&](const auto& request) {
    const auto sent = changes_.find(request.second);
    return request.first == pings || (sent != changes_.end() && sent->second.name.first == x.client);
  });
  after(random_.skewed_time(milliseconds(1), seconds(20)), [this, client = x.client] {
    if (has(defect::forget_the_disconnected))
      for (auto& [number, y] : made_)
        if (changes_.at(number).name.first == client)
          for (auto i = y.work; i > 0; --i)
            rules_.end_work(number, now_);
    rules_.client_disconnected(client, now_);
    flush();
  });
}

void world::ping_at_the_end(const worker& x) {
  requests_.asked({pings, ++last_ping_}, pings);
  after(duration::zero(), [this, name = instance_name(x.client, x.instance)] {
    if (!has(defect::ping_always_true))
      rules_.answer_ping(name);
    flush();
  });
}

void world::reconnect(worker& x) {
  count("reconnected");
  disconnect(x);
  if (rules_.current({x.client, x.instance}) != 0)
    count("reconnected before the end was noticed");
  connect(x);
  if (random_.one_in(3))
    new_memory(x);
}

void world::die(worker& x) {
  count("died");
  disconnect(x);
  x.dead = true;
}

std::int32_t world::notified(const worker& x) const {
  return has(defect::take_reconnects_for_strangers) ? static_cast<std::int32_t>(500'000 + x.client)
                                                    : x.notified_process;
}

void world::enroll(worker& x, bool anew) {
  const instance_name name(x.client, x.instance);
  const auto* const last = x.last_change == 0 ? nullptr : &changes_.at(x.last_change);
  const bool under_way = last != nullptr && !last->settled;
  if (anew)
    new_memory(x);
  else if (last != nullptr && last->settled)
    count("registered again as it was");
  count("registered");
  if (under_way)
    count("registered while another one is under way");
  if (lanes_work_for(x.number))
    count("registered under copies");
  server_rules::registration wanted;
  wanted.name = name;
  wanted.process = notified(x);
  wanted.memory = x.memory;
  wanted.invalid = !is_calm_ && random_.one_in(20);
  if (wanted.invalid) {
    count("invalid");
    wanted.memory = nullptr;
  }
  const bool invalid = wanted.invalid;
  const auto memory = wanted.memory;
  const bool swallowed = has(defect::keep_the_first) && under_way && last->registers;
  if (swallowed) {
    // As if it were the one before.
    changes_.at(x.last_change).sent = x.memory;
    return;
  }
  const auto number = rules_.enroll(std::move(wanted), now_);
  x.last_change = number;
  changes_[number] = {x.number, name, memory, memory, true, invalid, false, lanes_work_for(x.number)};
  requests_.asked({registers, number}, registers);
  if (has(defect::answer_at_once))
    check_settled(number, false);
  flush();
}

void world::unregister(worker& x) {
  if (lanes_work_for(x.number))
    count("unregistered under copies");
  const instance_name name(x.client, x.instance);
  const auto number = rules_.unregister(name, notified(x), now_);
  x.last_change = number;
  changes_[number] = {x.number, name, nullptr, nullptr, false, false, false, lanes_work_for(x.number)};
  requests_.asked({unregisters, number}, unregisters);
  flush();
}

void world::copy(const worker& x) {
  const auto of = rules_.current({x.client, x.instance});
  if (of == 0 || !rules_.begin_copy(of))
    return count("copy refused");
  count("copy begun");
  ++made_.at(of).copies;
  // Pages are fetched first, and then copied in pieces.
  after(random_.skewed_time(milliseconds(1), seconds(5)), [this, of, pieces = random_.number(1, 3)] {
    begin_work(of, pieces);
    flush();
  });
}

void world::begin_work(change_number of, unsigned pieces) {
  auto& x = made_.at(of);
  const bool may = rules_.begin_work(of);
  if (!may)
    count("work refused");
  if (!may && !has(defect::copy_after_end)) {
    --x.copies;
    return rules_.end_copy(of, now_);
  }
  if (x.ended)
    broken("ended", "a lane works for registration " + std::to_string(of) + ", which has ended");
  if (const auto& sent = workers_.at(x.of);
      !sent.dead && changes_.at(of).name == instance_name(sent.client, sent.instance) && sent.last_change != of &&
      changes_.at(sent.last_change).memory != changes_.at(of).memory)
    broken("memory",
           "a lane works on memory that its worker has replaced by change " + std::to_string(sent.last_change));
  if (const auto& sent = workers_.at(x.of); !sent.dead && changes_.at(of).memory &&
                                            changes_.at(of).name.first != sent.client &&
                                            changes_.at(of).name.second == sent.instance && !sent.sometimes_unknown &&
                                            rules_.current({sent.client, sent.instance}) != 0)
    broken("ended", "a lane works for a connection that its worker has replaced");
  ++x.work;
  after(random_.skewed_time(milliseconds(1), seconds(70)), [this, of, pieces] {
    auto& y = made_.at(of);
    --y.work;
    rules_.end_work(of, now_);
    flush();
    if (pieces > 1) {
      begin_work(of, pieces - 1);
    } else {
      --y.copies;
      rules_.end_copy(of, now_);
    }
    flush();
  });
}

bool world::lanes_work_for(worker_number x) const {
  return std::ranges::any_of(made_, [&](const auto& y) { return y.second.of == x && y.second.work > 0; });
}

void world::ping(worker& x) {
  requests_.asked({pings, ++last_ping_}, pings);
  requests_.answered({pings, last_ping_});
  const bool was_known = rules_.current({x.client, x.instance}) != 0;
  const bool answer = has(defect::ping_always_true) || rules_.answer_ping({x.client, x.instance});
  count(answer ? "ping true" : "ping false");
  if (was_known && !answer && !stopped_)
    broken("pings", "a registered worker is answered that it is not registered");
  const bool registers = answer && x.last_ping == false;
  x.last_ping = answer;
  if (registers)
    enroll(x, false);
}

// -- the server -------------------------------------------------------------------------------------------------------

void world::flush() {
  for (auto effects = rules_.take_outbox(); !effects.empty(); effects = rules_.take_outbox())
    for (const auto& effect : effects)
      std::visit([this](const auto& x) { perform(x); }, effect);
  plan_tick();
}

void world::plan_tick() {
  const auto next = rules_.next_deadline();
  if (next >= tick_at_)
    return;
  tick_at_ = std::max(next, now_);
  at(tick_at_, [this] {
    tick_at_ = timestamp::max();
    rules_.tick(now_);
    flush();
  });
}

void world::perform(const server_rules::prepare& x) {
  const auto number = x.change;
  if (!is_calm_ && random_.one_in(5)) {
    const auto why = random_.one_in(2) ? errc::busy : random_.one_in(2) ? errc::unsupported : errc::limit_exceeded;
    count(why == errc::busy ? "namespace busy" : "opening failed");
    after(random_.skewed_time(milliseconds(1), seconds(2)), [this, number, why] {
      rules_.failed(number, why, now_);
      flush();
    });
    return;
  }
  const auto time = !is_calm_ && random_.one_in(10) ? random_.time(seconds(1), longest_preparation)
                                                    : random_.skewed_time(milliseconds(1), seconds(2));
  after(time, [this, number] {
    if (changes_.at(number).settled)
      count("prepared too late");
    made_[number] = {changes_.at(number).of, false, false, false, 0, 0};
    rules_.prepared(number, now_);
    flush();
  });
}

void world::perform(const server_rules::settle& x) {
  const auto number = x.change;
  if (has(defect::answer_at_once) && changes_.at(number).registers)
    return;
  const auto& y = changes_.at(number);
  if (x.accepted && y.registers && !made_.contains(number))
    count("accepted as it was");
  if (has(defect::answer_the_last_only) && workers_.at(y.of).last_change != number)
    return;
  check_settled(number, x.accepted);
}

void world::check_settled(change_number number, bool accepted) {
  auto& y = changes_.at(number);
  if (std::exchange(y.settled, true))
    return broken("answers", "change " + std::to_string(number) + " is answered twice");
  requests_.answered({y.registers ? registers : unregisters, number});
  count(accepted ? "accepted" : "rejected");
  if (y.under_work)
    count("waited for a lane");
  const auto& of = workers_.at(y.of);
  // Answers on a connection that has ended are not read.
  if (of.dead || of.client != y.name.first)
    return;
  for (const auto& [other, z] : made_)
    if (z.of == y.of && z.work > 0 && changes_.at(other).memory)
      broken("writes", "change " + std::to_string(number) + " is answered while a lane works for registration " +
                           std::to_string(other) + " of the same process");
  if (!accepted || !y.registers || of.last_change != number)
    return;
  const auto current = rules_.current(y.name);
  if (current != 0 && changes_.at(current).memory != y.sent)
    broken("memory", "change " + std::to_string(number) + " is accepted, and copies go to other memory");
}

void world::perform(const server_rules::end& x) {
  auto& y = made_.at(x.change);
  if (std::exchange(y.ended, true))
    broken("released", "registration " + std::to_string(x.change) + " ends twice");
  if (x.why == server_rules::end_reason::sent_away && !changes_.at(x.change).settled)
    count("sent away before its answer");
}

void world::perform(const server_rules::release& x) {
  auto& y = made_.at(x.change);
  if (has(defect::keep_the_released))
    return;
  if (y.copies > 0 || y.work > 0)
    broken("released", "registration " + std::to_string(x.change) + " is released under a copy");
  y.ended = true;
  y.released = true;
}

void world::send_away() {
  std::vector<change_number> there;
  for (const auto& [number, x] : made_)
    if (!x.ended)
      there.push_back(number);
  if (there.empty())
    return;
  count("sent away");
  const auto which = random_.pick(there);
  made_.at(which).lost = true;
  if (has(defect::forget_lost_attachments))
    return;
  rules_.sent_away(which, now_);
  flush();
}

// -- the course of it -------------------------------------------------------------------------------------------------

world::worker* world::pick() {
  std::vector<worker*> there;
  for (auto& [number, x] : workers_)
    if (!x.dead)
      there.push_back(&x);
  return there.empty() ? nullptr : random_.pick(there);
}

void world::step() {
  if (is_calm_)
    return;
  auto* const x = pick();
  const auto alive = std::ranges::count_if(workers_, [](const auto& y) { return !y.second.dead; });
  const auto dice = random_.below(100);
  if (x == nullptr || (dice < 6 && alive < static_cast<std::ptrdiff_t>(workers_max)))
    return start();
  if (dice < 9)
    die(*x);
  else if (dice < 17)
    reconnect(*x);
  else if (dice < 23)
    enroll(*x, false);
  else if (dice < 30)
    enroll(*x, true);
  else if (dice < 34)
    unregister(*x);
  else if (dice < 38)
    send_away();
  else if (dice < 55)
    ping(*x);
  else
    copy(*x);
}

void world::finish() {
  is_calm_ = true;
  if (random_.one_in(4)) {
    count("stopped");
    if (std::ranges::any_of(made_, [](const auto& x) { return x.second.work > 0; }))
      count("stopped under copies");
    stopped_ = true;
    rules_.stop(now_);
    flush();
    after(seconds(1), [this] {
      if (auto* const x = pick())
        enroll(*x, false);
    });
  } else {
    for (unsigned i = 1; i <= 20; ++i)
      after(i * seconds(10), [this] {
        for (auto& [number, x] : workers_)
          if (!x.dead)
            ping(x);
      });
  }
  after(patience, [this] { check_in_the_end(); });
}

void world::check_in_the_end() {
  for (const auto& [number, x] : changes_)
    if (!x.settled)
      broken("answers", "change " + std::to_string(number) + " is not answered");
  for (const auto& [number, x] : made_)
    if (x.ended && !x.released)
      broken("released", "registration " + std::to_string(number) + " has ended and is not released");
  if (!rules_.drained())
    broken("drained", "something is left");
  for (const auto& [number, x] : workers_) {
    const auto known = rules_.current({x.client, x.instance});
    if (stopped_ ? known != 0 : x.dead && known != 0)
      broken("released", "worker " + std::to_string(number) + " is registered after its end");
    if (!stopped_ && !x.dead && known == 0 && x.last_ping != false)
      broken("registered", "worker " + std::to_string(number) + " is not registered, and its pings do not say so");
    if (known != 0 && made_.at(known).lost)
      broken("registered", "worker " + std::to_string(number) + " is registered, and its attachment has ended");
    if (known != 0 && changes_.at(known).memory != x.memory)
      broken("memory", "worker " + std::to_string(number) + " is registered with memory that it has replaced");
  }
}

outcome world::run() {
  auto time = now_;
  for (std::uint64_t i = 0; i < steps_; ++i) {
    time = later(time, random_.skewed_time(milliseconds(1), seconds(8)));
    at(time, [this] { step(); });
  }
  at(later(time, seconds(1)), [this] { finish(); });
  while (!agenda_.empty() && out_.property.empty()) {
    auto next = agenda_.extract(agenda_.begin());
    now_ = next.key().first;
    ++out_.events;
    trace(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    next.mapped()();
  }
  return out_;
}

} // namespace troupe::lmcache_simulation
