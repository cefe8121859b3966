#pragma once

#include "tests/simulation/process.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The progress of a world of processes: a step is one turn of one actor, picked at random among all that have work, or
/// the passing of time to the next timer or event.
class turns {
public:
  using process_list = std::function<std::vector<process*>()>;

  /// `running` says which processes there are at the moment; `look` is called after every so many steps.
  turns(environment& world, process_list running, std::function<void()> look)
      : world_(world), random_(world.random.fork()), running_(std::move(running)), look_(std::move(look)) {}

  /// The life of a world: so many steps at most, and no new faults or work afterwards. How many there were.
  std::uint64_t live(std::uint64_t most);
  /// False if nothing can happen any more.
  bool step();
  /// False if something went wrong meanwhile.
  bool run_for(duration time);
  /// Until there is no error, or the limit is reached; returns the last error.
  std::string run_until(const std::function<std::string()>& wrong, duration limit);

  /// The number of steps.
  std::uint64_t steps() const noexcept { return steps_; }

private:
  /// The time of the next event without a message.
  std::optional<timestamp> next_time() const;
  void pass_time(timestamp to);

  environment& world_;
  random_source random_;
  process_list running_;
  std::function<void()> look_;
  std::uint64_t steps_ = 0;
};

} // namespace troupe::simulation
