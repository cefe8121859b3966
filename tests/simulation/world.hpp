#pragma once

#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/nemesis.hpp"
#include "tests/simulation/workload.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

using sim_main::outcome;

struct run_options {
  std::uint64_t seed = 0;
  std::uint64_t steps = 1000;
  defect built_in = defect::none;
  bool verbose = false;
};

/// One simulated world: a node, its clients, what they want and what befalls them. It lives through a number of steps,
/// then all faults end and everything has to come to rest, be given back, and be usable again.
class world {
public:
  explicit world(const run_options& options);

  outcome run();

private:
  /// Runs the next event and checks.
  void step();
  void check_often();
  void check_rarely();
  bool run_for(duration time);
  /// Until nothing is wrong, or the time is over; what it said last.
  std::string run_until(const std::function<std::string()>& wrong, duration limit);
  void run_steps();
  /// Everybody has got an answer.
  void await_answers();
  /// Nothing is held any more, though all clients are still there.
  void await_rest();
  /// The clients go; what was theirs goes with them.
  void dismiss_clients();
  /// A new client can use every slot.
  void use_every_slot();
  std::string still_waiting() const;
  std::string still_held() const;
  duration longest_hold() const;
  void add_client();

  run_options options_;
  environment env_;
  network net_;
  node node_;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<std::unique_ptr<workload>> workloads_;
  std::vector<client*> victims_;
  std::unique_ptr<nemesis> nemesis_;
  std::uint64_t events_ = 0;
};

} // namespace troupe::simulation
