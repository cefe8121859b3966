#include "base/log.hpp"
#include "tests/cluster_actors/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::cluster_actors;
  log::set_level("off");
  sim_main::program what;
  what.name = "troupe-cluster-actors";
  what.about =
      "Runs seeded simulations of the nodes of a cluster: their cluster actors as they ship, on a network that\n"
      "loses connections, is silent and late, with nodes that end, freeze and come back, and loads that fail\n"
      "in the middle.\n"
      "Checks bytes, answers, leases, attachments and reports.";
  what.steps_text = "turns of actors and events of the world before its faults end";
  what.default_steps = 3000;
  for (const auto& [name, which] : defect_names)
    what.defects.push_back(name);
  what.must_happen = [] {
    return std::vector<std::string_view>{"attached",
                                         "caller ended",
                                         "client closed",
                                         "dialer used again",
                                         "evicted",
                                         "fault: connection lost",
                                         "fault: load stalled",
                                         "fault: lookup refused",
                                         "fault: name not resolved",
                                         "fault: namespace removed",
                                         "fault: network partitioned",
                                         "fault: no dialer",
                                         "fault: no room",
                                         "fault: node killed",
                                         "fault: node paused",
                                         "fault: page damaged",
                                         "fault: session refused",
                                         "fault: silent network",
                                         "fault: silent shard",
                                         "fault: the queue is full",
                                         "fetched all",
                                         "fetched no single page",
                                         "fetched nothing",
                                         "fetched single pages",
                                         "fetched some",
                                         "found all at the end",
                                         "found at a peer",
                                         "found damaged",
                                         "found some at the end",
                                         "here already",
                                         "kept here",
                                         "learned from peers",
                                         "learned that there is nothing",
                                         "lease reduced",
                                         "load ended",
                                         "load failed in the middle",
                                         "load timed out",
                                         "loss noticed",
                                         "name resolved",
                                         "namespace not opened",
                                         "namespace opened",
                                         "node left",
                                         "node started",
                                         "not there any more",
                                         "page saved",
                                         "reported as unreachable",
                                         "request: fetch",
                                         "request: prefix",
                                         "request: search",
                                         "request: stats",
                                         "save timed out",
                                         "search abandoned",
                                         "searched",
                                         "searched in vain",
                                         "session attached again",
                                         "session lost its attachment",
                                         "session not opened",
                                         "session opened"};
  };
  what.run = [](const sim_main::run_options& x) {
    log::set_level(x.verbose ? "debug" : "off");
    return world(x.seed, x.steps, sim_main::find_defect(defect_names, x.defect), x.verbose).run();
  };
  what.failures_max = 5;
  const auto code = sim_main::run(what, {argv + 1, argv + argc});
  log::shutdown();
  return code;
}
