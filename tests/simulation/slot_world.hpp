#pragma once

#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/slot_client.hpp"
#include "tests/simulation/turns.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// A node with a durable index, engines that read and write slab files themselves, and what befalls them. It lives
/// through a number of steps, then all faults end: everything that is promised has to run out, and every slot to be of
/// use again.
class slot_world {
public:
  slot_world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose);
  /// Pending requests are answered when the node ends, to engines that still exist.
  ~slot_world() { node_.kill(); }

  sim_main::outcome run();

private:
  std::vector<process*> processes();
  void check();

  void plan_fault();
  void strike();
  void kill_client(slot_client& which);
  void restart_with_other_pages(slot_client& which);
  void kill_node();

  void quiesce();
  void use_every_slot();
  void fill();

  std::uint64_t seed_;
  std::uint64_t steps_;
  environment env_;
  slot_parameters p_;
  random_source random_;
  slot_node node_;
  slot_traffic traffic_;
  std::vector<std::unique_ptr<slot_client>> clients_;
  turns turns_;
};

} // namespace troupe::simulation
