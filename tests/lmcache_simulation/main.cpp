#include "tests/lmcache_simulation/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::lmcache_simulation;
  sim_main::program what;
  what.name = "troupe-lmcache-simulation";
  what.about = "Runs seeded simulations of LMCache's workers at a node: they register, register again with other\n"
               "memory, reconnect, unregister and die while the node copies for them.\n"
               "Checks all properties after every step.";
  what.steps_text = "steps with an event";
  what.default_steps = 150;
  what.must_happen = [] {
    return std::vector<std::string_view>{"started",
                                         "died",
                                         "reconnected",
                                         "reconnected before the end was noticed",
                                         "registered",
                                         "registered while another one is under way",
                                         "registered again as it was",
                                         "registered under copies",
                                         "unregistered under copies",
                                         "invalid",
                                         "accepted",
                                         "accepted as it was",
                                         "rejected",
                                         "waited for a lane",
                                         "prepared too late",
                                         "namespace busy",
                                         "opening failed",
                                         "sent away",
                                         "sent away before its answer",
                                         "copy begun",
                                         "copy refused",
                                         "work refused",
                                         "ping false",
                                         "ping true",
                                         "stopped",
                                         "stopped under copies"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
