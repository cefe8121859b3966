#include "tests/cluster_simulation/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::cluster_simulation;
  sim_main::program what;
  what.name = "troupe-cluster-simulation";
  what.about =
      "Runs seeded simulations of the nodes of a cluster: they join, leave, crash, restart and freeze, find each\n"
      "other by seeds or etcd, and fetch pages over a network that is slow, lossy and partitioned at times.\n"
      "Checks all properties after every step.";
  what.steps_text = "steps with an event";
  what.default_steps = 200;
  what.must_happen = [] {
    return std::vector<std::string_view>{"lost",
                                         "cut",
                                         "paused",
                                         "silent",
                                         "slow",
                                         "node killed",
                                         "node left",
                                         "node started",
                                         "node started again",
                                         "namespace made",
                                         "namespace removed",
                                         "namespace opened",
                                         "namespace not opened",
                                         "namespace left",
                                         "late hello",
                                         "found a peer",
                                         "begun anew",
                                         "bad news",
                                         "news",
                                         "attached",
                                         "not attached",
                                         "attached again",
                                         "refused for good",
                                         "tie lost",
                                         "tie left",
                                         "asked",
                                         "ask timed out",
                                         "late answer",
                                         "late",
                                         "load timed out",
                                         "landed nowhere",
                                         "damaged",
                                         "not there any more",
                                         "not attached to who is asked",
                                         "save failed",
                                         "sent away",
                                         "brought nothing",
                                         "brought some",
                                         "brought all",
                                         "evicted",
                                         "here already",
                                         "spare",
                                         "notified too late",
                                         "an etcd",
                                         "an etcd beside seeds",
                                         "etcd away",
                                         "etcd lost for good",
                                         "etcd stood still",
                                         "etcd full",
                                         "etcd slow",
                                         "etcd lost all",
                                         "etcd set back",
                                         "etcd compacted",
                                         "cut off from etcd",
                                         "watch begun",
                                         "watch ended",
                                         "watch compacted",
                                         "watch stopped without an error",
                                         "news of the list",
                                         "etcd not in time",
                                         "answered late by etcd",
                                         "answered twice by etcd",
                                         "lease ran out",
                                         "entry removed",
                                         "entry of an unknown node",
                                         "entry of another one",
                                         "nonsense for an entry",
                                         "two of one name",
                                         "two say one address",
                                         "in the list",
                                         "taken out",
                                         "left out",
                                         "gone for good",
                                         "read from a file",
                                         "sound in a file",
                                         "stale in a file",
                                         "damaged in a file",
                                         "file refused",
                                         "file stood still",
                                         "file made anew",
                                         "landed by streams",
                                         "landed from a failed stream",
                                         "stream stalled",
                                         "stream failed",
                                         "stream ended",
                                         "stream opened again",
                                         "streams lost"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
