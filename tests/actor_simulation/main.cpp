#include "base/log.hpp"
#include "tests/actor_simulation/actor_world.hpp"

#include <iterator>
#include <string_view>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::simulation;

/// What a range of seeds must have seen to be worth anything.
constexpr std::string_view must_happen[] = {
    "attachment",
    "cancel: blocks hold something else",
    "committed page",
    "evicted page",
    "fault: client leaves",
    "fault: cut line",
    "fault: doubled message",
    "fault: drained node",
    "fault: erased key",
    "fault: flipped bit in a read",
    "fault: flipped bit on disk",
    "fault: killed client",
    "fault: killed node",
    "fault: lost message",
    "fault: lost write",
    "fault: misdirected write",
    "fault: paused client",
    "fault: paused node",
    "fault: read error",
    "fault: slow transfer",
    "fault: torn write",
    "fault: truncated slab",
    "fault: write error",
    "fault: write outlives the node",
    "fence: waits for several transfers",
    "load: cancelled",
    "load: corrupt",
    "load: io_error",
    "load: limit_exceeded",
    "load: not_found",
    "load: ok",
    "load: shutting_down",
    "load: slab_damaged",
    "load: timeout",
    "load: unreachable",
    "lookup: keys found",
    "node has drained",
    "save: busy",
    "save: cancelled",
    "save: exists",
    "save: expired",
    "save: full",
    "save: io_error",
    "save: limit_exceeded",
    "save: no_space",
    "save: ok",
    "save: shutting_down",
    "save: slab_damaged",
    "save: stale",
    "save: timeout",
    "save: unreachable",
    "slab found damaged",
    "take: all",
    "take: none",
    "take: some",
    "transfer: io_error",
    "transfer: no_space",
    "transfer: ok",
    "transfer: slab_damaged",
    "transfer: stale",
    "transfer: timeout",
};

std::vector<std::string_view> names_of_defects() {
  std::vector<std::string_view> out;
  for (const auto& [name, which] : defect_names)
    if (which <= defect::late_links) // the others are those of slot clients
      out.push_back(name);
  return out;
}

} // namespace

int main(int argc, char** argv) {
  log::set_level("off");
  sim_main::program what;
  what.name = "troupe-actor-simulation";
  what.about = "Runs seeded simulations of a node and its clients, made of the actors that ship, over a simulated\n"
               "network and simulated disks, and checks what they say to each other.";
  what.steps_text = "turns of actors and events of the world before it winds down";
  what.default_steps = 5000;
  what.defects = names_of_defects();
  what.must_happen = [] { return std::vector<std::string_view>(std::begin(must_happen), std::end(must_happen)); };
  what.run = [](const sim_main::run_options& x) {
    log::set_level(x.verbose ? "debug" : "off");
    return actor_world(x.seed, x.steps, find_defect(x.defect).value_or(defect::none), x.verbose).run();
  };
  const auto code = sim_main::run(what, {argv + 1, argv + argc});
  log::shutdown();
  return code;
}
