#pragma once

#include "tests/simulation/foreign_client.hpp"
#include "tests/simulation/world.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// One simulated world of clients without tokens: a durable node, engines with slab files of their own, and what
/// befalls them. In the end all promises run out, and every slot can be used again, whatever clients have said.
class foreign_world {
public:
  explicit foreign_world(const run_options& options);

  outcome run();

private:
  void step();
  void check_rarely();
  std::string run_until(const std::function<std::string()>& wrong, duration limit);
  void plan_nemesis();
  void strike();
  void kill_node();
  void kill_client(foreign_client& which);
  foreign_client& any_client() { return *clients_[random_.below(clients_.size())]; }
  void come_to_rest();
  void pass_time(duration time);
  void fill();
  void use_every_slot();

  run_options options_;
  environment env_;
  foreign_parameters p_;
  network net_;
  foreign_node node_;
  foreign_traffic traffic_;
  std::vector<std::unique_ptr<foreign_client>> clients_;
  random_source random_;
  std::uint64_t events_ = 0;
};

} // namespace troupe::simulation
