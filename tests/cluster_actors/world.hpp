#pragma once

#include "tests/cluster_actors/caller.hpp"
#include "tests/cluster_actors/fabric.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/turns.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::cluster_actors {

/// The nodes of a cluster, each with its `cluster` actor as it ships and an engine beside it. The seed decides which
/// actor takes the next message, when time passes, and which faults occur. After a number of steps all faults end:
/// then every node has to find every other one, everything has to be released, and pages of all have to be found.
class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose);
  ~world();

  sim_main::outcome run();

private:
  std::vector<simulation::process*> processes();
  void start(std::size_t which);
  void kill(std::size_t which);
  void restart(std::size_t which);
  void plan_work(std::size_t which);
  void plan_fault();
  void strike();
  void strike_host(host& x);
  void strike_line(std::size_t a, std::size_t b);

  // -- judged while it runs
  void look();
  void judge_stats(const host& of, const cluster_stats& x);
  void judge_leases(const host& x);
  bool is_known_to_be_dead(const host& of, const host& by) const;

  // -- judged at the end
  std::string away();
  std::string held();
  bool are_friends(std::size_t a, std::size_t b) const;
  void await_all();
  void await_quiesced();
  /// Has all nodes fetch a new chain from the first one.
  void fetch_everything(std::uint32_t chain, bool must_find);
  void dismiss();

  std::uint64_t seed_;
  std::uint64_t steps_;
  fabric fabric_;
  simulation::environment& env_;
  simulation::random_source random_;
  std::vector<std::unique_ptr<caller>> callers_;
  /// The last statistics of each node.
  std::vector<cluster_stats> stats_;
  simulation::turns turns_;
};

} // namespace troupe::cluster_actors
