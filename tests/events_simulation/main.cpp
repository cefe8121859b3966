#include "tests/events_simulation/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::events_simulation;
  sim_main::program what;
  what.name = "troupe-events-simulation";
  what.about = "Runs seeded simulations of a node that publishes events: subscribers connect, stall, lose batches and\n"
               "come back, pages come and go, and the node restarts. Compares what subscribers know with the registry.";
  what.steps_text = "steps";
  what.default_steps = 300;
  what.must_happen = [] {
    return std::vector<std::string_view>{"saved",
                                         "described",
                                         "evicted",
                                         "erased",
                                         "damaged",
                                         "dropped",
                                         "moved",
                                         "restarted",
                                         "overflowed",
                                         "requested",
                                         "blocked",
                                         "got a snapshot",
                                         "replay failed",
                                         "compared",
                                         "snapshot",
                                         "missed while disconnected",
                                         "missed because it was slow",
                                         "disconnected while it waited"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
