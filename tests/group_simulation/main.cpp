#include "tests/group_simulation/engine.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::group_simulation;
  std::string_view ignored;
  sim_main::program what;
  what.name = "troupe-group-simulation";
  what.about =
      "Runs seeded simulations of an engine whose layers are in several groups (full attention, windows, chunks and\n"
      "states) with the connector's rules for them, and of a slow and faulty cache.\n"
      "Checks hits, leases, blocks and bytes.";
  what.steps_text = "steps of the engine in which requests and faults come";
  what.default_steps = 150;
  for (const auto& [name, which] : defect_names)
    what.defects.push_back(name);
  what.must_happen = [] {
    return std::vector<std::string_view>{"request",
                                         "ended",
                                         "preempted",
                                         "aborted: waiting",
                                         "aborted: loading",
                                         "aborted: loaded",
                                         "aborted: running",
                                         "aborted during its load",
                                         "lookup",
                                         "lookup failed",
                                         "hit",
                                         "hit not known yet",
                                         "hit with a part of a group",
                                         "served elsewhere",
                                         "search",
                                         "search failed",
                                         "search released",
                                         "found at peers",
                                         "not found at peers",
                                         "fetch",
                                         "fetched",
                                         "fetched in part",
                                         "damaged at a peer",
                                         "load from the start",
                                         "load behind a prefix",
                                         "load: all failed",
                                         "load: node unreachable",
                                         "load: not found",
                                         "load: damaged",
                                         "request: loaded",
                                         "request: load failed",
                                         "draft rejected",
                                         "drafts accepted",
                                         "save ordered",
                                         "save: ok",
                                         "save: exists",
                                         "save: busy",
                                         "save: io_error",
                                         "save: all failed",
                                         "state offered",
                                         "state not offered",
                                         "passed block freed",
                                         "evicted",
                                         "evicted at one rank",
                                         "evicted in one stage",
                                         "damaged",
                                         "damaged in one stage",
                                         "detached"};
  };
  what.choices = {{"--ignore", "do not check these properties, separated by commas", &ignored}};
  what.run = [&ignored](const sim_main::run_options& x) {
    world w(x.seed, sim_main::find_defect(defect_names, x.defect), ignored, x.verbose);
    engine(w).run(x.steps);
    w.out.seed = x.seed;
    w.out.steps = x.steps;
    w.out.description = w.made.describe();
    return w.out;
  };
  what.failures_max = 5;
  return sim_main::run(what, {argv + 1, argv + argc});
}
