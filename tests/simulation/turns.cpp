#include "tests/simulation/turns.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::simulation {

namespace {

constexpr std::uint64_t look_interval = 256;

} // namespace

std::optional<timestamp> turns::next_time() const {
  std::optional<timestamp> out;
  const auto consider = [&out](timestamp x) { out = std::min(out.value_or(x), x); };
  if (!world_.schedule.empty())
    consider(world_.schedule.next_time());
  for (const auto* x : running_())
    if (const auto timer = x->next_timer())
      consider(*timer);
  return out;
}

void turns::pass_time(timestamp to) {
  if (!world_.schedule.empty() && world_.schedule.next_time() == to)
    world_.schedule.run_next();
  else
    world_.schedule.wait_until(to);
  for (auto* x : running_())
    x->wind();
}

bool turns::step() {
  ++world_.turn;
  auto able = running_();
  std::erase_if(able, [](const auto* x) { return !x->has_work(); });
  const auto next = next_time();
  // Messages inside of a process take their time as well.
  const bool wait = !able.empty() && next && *next <= world_.now() + 4 * world_.p.local_delay && random_.one_in(4);
  if (!able.empty() && !wait) {
    auto& chosen = *able[random_.below(able.size())];
    world_.trace("turn", {chosen.name().size(), chosen.turn(random_)});
  } else if (next)
    pass_time(*next);
  else
    return false;
  if (++steps_ % look_interval == 0)
    look_();
  return true;
}

std::uint64_t turns::live(std::uint64_t most) {
  while (!world_.failed() && steps_ < most && step()) {
  }
  world_.winding_down = true;
  world_.trace("winding down");
  return steps_;
}

bool turns::run_for(duration time) {
  bool over = false;
  world_.schedule.after(time, [&over] { over = true; });
  while (!over && !world_.failed() && step()) {
  }
  return !world_.failed();
}

std::string turns::run_until(const std::function<std::string()>& wrong, duration limit) {
  const auto until = world_.now() + limit;
  for (;;) {
    auto text = wrong();
    if (text.empty() || world_.now() >= until || !run_for(std::chrono::milliseconds(200)))
      return text;
  }
}

} // namespace troupe::simulation
