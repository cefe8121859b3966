#include "tests/handshake_simulation/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::handshake_simulation;
  sim_main::program what;
  what.name = "troupe-handshake-simulation";
  what.about = "Runs seeded simulations of the handshake directory: engines start in any order, crash, and restart\n"
               "with the same name, packets are lost, repeated and late, and the directory crashes and restarts.\n"
               "Checks all properties after every step.";
  what.steps_text = "steps with an event";
  what.default_steps = 200;
  what.must_happen = [] {
    return std::vector<std::string_view>{"lost",
                                         "repeated",
                                         "directory restarted",
                                         "directory crashed",
                                         "no directory",
                                         "waited",
                                         "waited in vain",
                                         "watch dropped",
                                         "watch asked for",
                                         "watch found ended",
                                         "listener opened",
                                         "listener refused",
                                         "listener lost",
                                         "pushed",
                                         "late publication",
                                         "told",
                                         "engine restarted",
                                         "engine withdrawn",
                                         "engine crashed",
                                         "published again",
                                         "asked",
                                         "asked for peers",
                                         "listed",
                                         "disk stalled",
                                         "refused: too many ranks",
                                         "refused: too long",
                                         "refused: no room",
                                         "no room for an update",
                                         "answered without payloads",
                                         "notified of several dp ranks",
                                         "notified of several pipeline stages",
                                         "abandoned",
                                         "known",
                                         "resolved",
                                         "failed: timeout",
                                         "failed: expired",
                                         "failed: identity_mismatch",
                                         "failed: invalid_argument",
                                         "failed: cancelled"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
