#pragma once

#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/client.hpp"
#include "tests/simulation/server.hpp"
#include "tests/simulation/turns.hpp"
#include "tests/simulation/workload.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// A node and its clients with their tasks and faults, all made of the actors that ship. The seed decides which of the
/// actors with work takes the next message, when time passes, and which faults occur. The world runs for a number of
/// steps, then all faults end and everything has to be drained, released, and usable again.
class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose);

  sim_main::outcome run();

private:
  std::vector<process*> processes();

  void add_client();
  void plan_fault();
  void strike();
  client& any_client() { return *clients_[random_.below(env_.p.clients)]; }
  void restart_client(client& which);
  void restart_node();
  void kill_node();

  void restart_those_that_failed();
  void await_answers();
  void await_quiesced();
  void dismiss_clients();
  void use_every_slot();
  std::string held();

  std::uint64_t seed_;
  std::uint64_t steps_;
  environment env_;
  random_source random_;
  server node_;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<std::unique_ptr<workload>> workloads_;
  std::vector<std::function<void()>> faults_;
  turns turns_;
  std::uint64_t restarts_ = 0;
};

} // namespace troupe::simulation
