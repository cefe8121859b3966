#pragma once

#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/namespace_client.hpp"
#include "tests/simulation/turns.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// A node on which clients make namespaces, which others remove while these are in use. In the end all of them are
/// removed: nothing may be left of any, and each can be made again.
class namespace_world {
public:
  namespace_world(std::uint64_t seed, std::uint64_t steps, defect built_in, bool verbose);
  ~namespace_world() { node_.kill(); }

  sim_main::outcome run();

private:
  std::vector<process*> processes();
  void plan_removal();
  void plan_fault();
  void strike();
  void kill_node();
  void quiesce();
  void remove_all();
  void use_each();

  std::uint64_t seed_;
  std::uint64_t steps_;
  environment env_;
  namespace_parameters p_;
  random_source random_;
  namespace_node node_;
  std::vector<std::unique_ptr<namespace_client>> clients_;
  turns turns_;
};

} // namespace troupe::simulation
