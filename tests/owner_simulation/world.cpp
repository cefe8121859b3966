#include "tests/owner_simulation/world.hpp"

#include <algorithm>

namespace troupe::owner_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t processes_max = 4;
/// One host is a hundredth too fast or too slow.
constexpr std::int64_t drift_max = 10'000;
constexpr std::int64_t million = 1'000'000;
constexpr auto lease_min = seconds(2);
constexpr auto lease_max = seconds(8);
/// The settling time: twice that of a node that waits for an unreadable claim.
constexpr auto patience = minutes(8);

} // namespace

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), weather_(~seed), steps_(steps), defect_(built_in) {
  directories_.resize(random_.number(2, 3));
  for (auto& x : directories_)
    x.slots.resize(4);
}

void world::broken(std::string_view property, std::string what) {
  if (!out_.property.empty())
    return;
  out_.property = property;
  out_.failure = std::move(what);
}

// -- time -------------------------------------------------------------------------------------------------------------

timestamp world::local(const process& x) const {
  const auto passed = now_.time_since_epoch();
  return timestamp(passed + passed / million * x.clock_drift + x.clock_offset - x.lost_time);
}

timestamp world::when(const process& x, timestamp local_time) const {
  const auto left = local_time - local(x);
  return left <= duration::zero() ? now_ : later(now_, left - left / million * x.clock_drift + milliseconds(1));
}

duration world::file_time() {
  if (is_calm_ || !random_.one_in(8))
    return random_.time(std::chrono::microseconds(200), milliseconds(20));
  return random_.skewed_time(milliseconds(20), 2 * lease_max);
}

/// Longer than any look that was begun before it takes, and than the two longest leases together.
void world::plan_outage(timestamp end) {
  if (weather_.one_in(2))
    return;
  away_from_ = later(now_, weather_.time({}, end - now_));
  away_until_ = later(away_from_, weather_.time(3 * lease_max, 8 * lease_max));
}

// -- processes --------------------------------------------------------------------------------------------------------

world::process* world::find(std::uint64_t number) {
  const auto found = processes_.find(number);
  return found == processes_.end() ? nullptr : &found->second;
}

void world::in_turn(std::uint64_t number, action what) {
  auto* const x = find(number);
  if (x == nullptr)
    return;
  if (x->frozen_since)
    x->held_up.push_back(std::move(what));
  else
    what();
}

io::claim_options world::options_for(const contender& x, const process& of) const {
  return {"process " + std::to_string(of.number), x.incarnation, x.kind, x.lease};
}

void world::begin(process& x, std::size_t which) {
  auto& c = x.contenders[which];
  c.incarnation = ++last_incarnation_;
  c.held = false;
  c.index.clear();
  c.rules.emplace(options_for(c, x), local(x));
  after({}, [this, number = x.number, which, life = c.incarnation] { carry_out(number, which, life); });
}

void world::start(std::size_t home) {
  if (processes_.size() >= processes_max)
    return;
  const auto number = ++last_process_;
  auto& x = processes_[number];
  x.number = number;
  x.home = home;
  x.clock_offset = random_.time({}, std::chrono::hours(100));
  x.clock_drift = static_cast<std::int64_t>(random_.below(2 * drift_max)) - drift_max;
  const auto lease = random_.time(lease_min, lease_max);
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    const auto which = (home + i) % directories_.size();
    x.contenders.push_back(
        {which, i == 0 ? io::claim_kind::owner : io::claim_kind::adopter, 0, lease, {}, {}, {}, {}, false, {}, 0});
  }
  count("started");
  begin(x, 0);
  for (std::size_t i = 1; i < directories_.size(); ++i)
    after(random_.time(milliseconds(1), seconds(5)),
          [this, number, i] { in_turn(number, [this, number, i] { begin(*find(number), i); }); });
}

void world::crash(std::uint64_t number) {
  count(find(number)->frozen_since ? "crashed while frozen" : "crashed");
  processes_.erase(number);
}

void world::stop(std::uint64_t number) {
  auto& x = *find(number);
  if (x.frozen_since)
    return;
  count("stopped");
  for (auto& c : x.contenders)
    if (c.rules) {
      if (c.rules->state() == io::claim_state::waiting && has(defect::remove_while_waiting))
        directories_[c.directory].claims.erase(c.rules->number());
      if (const auto last = c.rules->release()) {
        count("given back");
        after(file_time(), [this, where = c.directory, last = *last] { write_claim(where, last.number, last.record); });
      }
    }
  processes_.erase(number);
}

void world::freeze(std::uint64_t number, duration time) {
  auto& x = *find(number);
  if (x.frozen_since)
    return;
  count("frozen");
  x.frozen_since = now_;
  after(time, [this, number] { thaw(number); });
}

void world::thaw(std::uint64_t number) {
  auto* const x = find(number);
  if (x == nullptr || !x->frozen_since)
    return;
  if (has(defect::stop_the_clock))
    x->lost_time += now_ - *x->frozen_since;
  x->frozen_since.reset();
  for (const auto& what : std::exchange(x->held_up, {}))
    in_turn(number, what);
}

// -- the course of it -------------------------------------------------------------------------------------------------

void world::step() {
  if (is_calm_)
    return;
  const auto dice = random_.below(100);
  if (processes_.empty() || dice < 22)
    return start(random_.below(directories_.size()));
  auto one = processes_.begin();
  std::advance(one, random_.below(processes_.size()));
  if (dice < 30)
    crash(one->first);
  else if (dice < 34)
    stop(one->first);
  else if (dice < 50)
    freeze(one->first, random_.skewed_time(milliseconds(10), 6 * lease_max));
  else if (dice < 80)
    in_turn(one->first, [this, number = one->first] { save(number); });
  else
    for (auto& c : one->second.contenders)
      if (!one->second.frozen_since)
        read(one->second, c);
}

/// All frozen processes resume; one node stays dead, and restarts when it has been adopted.
void world::finish() {
  is_calm_ = true;
  while (!processes_.empty())
    crash(processes_.begin()->first);
  const auto dead = random_.below(directories_.size());
  for (std::size_t i = 0; i < directories_.size(); ++i)
    if (i != dead)
      start(i);
  after(patience, [this, dead] {
    check_adopted(dead);
    start(dead);
    after(patience, [this] { check_returned(); });
  });
}

void world::check_adopted(std::size_t dead) {
  if (directories_[dead].claims.empty())
    return; // it never had a node
  std::size_t adopters = 0;
  for (auto& [number, x] : processes_)
    for (auto& c : x.contenders)
      if (c.directory == dead && c.rules && c.rules->state() == io::claim_state::holding) {
        ++adopters;
        read(x, c);
      }
  if (adopters != 1)
    broken("adoption", "a directory whose node is dead has " + std::to_string(adopters) + " adopters");
  count("adopted in the end");
}

void world::check_returned() {
  for (auto& [number, x] : processes_) {
    if (!believes(x, x.contenders.front()))
      broken("return", "process " + std::to_string(number) + " does not get its directory");
    for (const auto& c : x.contenders)
      if (c.kind == io::claim_kind::adopter && c.held)
        broken("return", "process " + std::to_string(number) + " keeps what it has adopted of one that lives");
  }
  count("returned in the end");
}

outcome world::run() {
  auto time = now_;
  for (std::uint64_t i = 0; i < steps_; ++i) {
    time = later(time, random_.skewed_time(milliseconds(5), seconds(6)));
    at(time, [this] { step(); });
  }
  plan_outage(time);
  // Requests of its earlier life have been abandoned by its end.
  time = std::max(time, away_until_);
  at(later(time, seconds(1)), [this] { finish(); });
  const auto end = later(time, 2 * patience + seconds(10));
  while (!agenda_.empty() && agenda_.begin()->first.first <= end && out_.property.empty()) {
    auto next = agenda_.extract(agenda_.begin());
    now_ = next.key().first;
    ++out_.events;
    trace(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    next.mapped()();
    check();
  }
  return out_;
}

} // namespace troupe::owner_simulation
