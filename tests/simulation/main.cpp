#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/world.hpp"

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
    "evicted key",
    "fence: waits for several transfers of a slot",
    "fault: client leaves",
    "fault: cut link",
    "fault: drained node",
    "fault: erased key",
    "fault: flipped bit in a read",
    "fault: flipped bit on disk",
    "fault: killed client",
    "fault: killed node",
    "fault: lost write",
    "fault: misdirected write",
    "fault: paused client",
    "fault: paused node",
    "fault: read error",
    "fault: slow process",
    "fault: slow transfer",
    "fault: torn write",
    "fault: truncated slab",
    "fault: write error",
    "fault: write outlives the node",
    "load: cancelled",
    "load: corrupt",
    "load: identity_mismatch",
    "load: io_error",
    "load: not_found",
    "load: ok",
    "load: slab_damaged",
    "load: stale",
    "load: timeout",
    "load: unreachable",
    "lookup: keys found",
    "lost node",
    "save: busy",
    "save: cancelled",
    "save: exists",
    "save: expired",
    "save: full",
    "save: io_error",
    "save: no_space",
    "save: ok",
    "save: timeout",
    "save: unreachable",
    "slab found damaged",
    "take: full",
    "take: limit_exceeded",
    "take: ok",
    "take: timeout",
};

std::vector<std::string_view> names_of_defects() {
  std::vector<std::string_view> out;
  for (const auto& [name, which] : defect_names)
    if (which < defect::late_links) // the others are found in worlds of actors
      out.push_back(name);
  return out;
}

} // namespace

int main(int argc, char** argv) {
  sim_main::program what;
  what.name = "troupe-simulation";
  what.about = "Runs seeded simulations of a node, its clients, network and disks, made of the rules without their\n"
               "actors, and checks the invariants after every step.";
  what.steps_text = "events before the world winds down";
  what.defects = names_of_defects();
  what.must_happen = [] { return std::vector<std::string_view>(std::begin(must_happen), std::end(must_happen)); };
  what.run = [](const sim_main::run_options& x) {
    return world({x.seed, x.steps, find_defect(x.defect).value_or(defect::none), x.verbose}).run();
  };
  return sim_main::run(what, {argv + 1, argv + argc});
}
