#pragma once

#include "tests/simulation/client.hpp"

#include <array>
#include <functional>
#include <vector>

namespace troupe::simulation {

/// What a nemesis acts on. A client that starts, starts its workload with it.
struct victims {
  network& net;
  node& serving;
  const std::vector<client*>& clients;
  std::function<void(client&)> start_client;
};

/// Lets happen to processes, links and slabs what the seed has switched on, now and then, until the world winds down.
/// Whoever is killed comes back some time later.
class nemesis {
public:
  nemesis(environment& world, victims on);

  void start();

private:
  void plan_next();
  void strike();
  client& any_client() { return *victims_.clients[random_.below(victims_.clients.size())]; }
  void cut();
  void erase();
  void slow();
  void pause(process_number which);
  void kill_client();
  void restart_client(client& which, duration after);
  void kill_node();
  void drain_node();
  void restart_node(duration after);

  environment& world_;
  victims victims_;
  random_source random_;
  std::vector<std::function<void()>> faults_;
  std::uint64_t restarts_ = 0;
  std::array<timestamp, processes_max> rested_at_{};
};

} // namespace troupe::simulation
