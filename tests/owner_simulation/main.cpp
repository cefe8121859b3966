#include "tests/owner_simulation/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::owner_simulation;
  sim_main::program what;
  what.name = "troupe-owner-simulation";
  what.about = "Runs seeded simulations of the ownership of data directories that several hosts can reach: nodes\n"
               "crash, freeze and restart, clocks drift apart, and files are slow, late and unreliable.\n"
               "Checks all properties after every step.";
  what.steps_text = "steps with an event";
  what.default_steps = 150;
  what.must_happen = [] {
    return std::vector<std::string_view>{"started",
                                         "crashed",
                                         "crashed while frozen",
                                         "stopped",
                                         "frozen",
                                         "given back",
                                         "failed",
                                         "unreachable",
                                         "another node was faster",
                                         "taken of one that gave it back",
                                         "taken back from an adopter",
                                         "followed an adopter",
                                         "taken over",
                                         "owner holds",
                                         "adopted",
                                         "owner lost",
                                         "adopter lost",
                                         "refused",
                                         "refused to write",
                                         "refused to commit",
                                         "not open yet",
                                         "saved",
                                         "page read",
                                         "page missed",
                                         "adopted page read",
                                         "adopted page missed",
                                         "adopted in the end",
                                         "returned in the end"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
