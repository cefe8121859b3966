#include "tests/lmcache_transfers/world.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::lmcache_transfers;
  sim_main::program what;
  what.name = "troupe-lmcache-transfers";
  what.about =
      "Runs seeded simulations of stores and retrieves of LMCache's workers: the workers or the node copy, and\n"
      "workers are slow, commit twice or never, register again, reconnect and die in any phase; the node ends\n"
      "attachments, and stops. Some workers have several groups of layers, whose pages are evicted apart.\n"
      "Checks bytes, hits, leases, frames and answers.";
  what.steps_text = "steps with an event";
  what.default_steps = 150;
  what.must_happen = [] {
    return std::vector<std::string_view>{"started",
                                         "died",
                                         "reconnected",
                                         "unregistered",
                                         "sent away",
                                         "jobs of those sent away ended",
                                         "stopped",
                                         "store",
                                         "retrieve",
                                         "store: yes",
                                         "store: no",
                                         "retrieve: yes",
                                         "retrieve: no",
                                         "prepare_store: yes",
                                         "prepare_store: no",
                                         "prepare_retrieve: yes",
                                         "prepare_retrieve: no",
                                         "commit_store: yes",
                                         "commit_store: no",
                                         "commit_retrieve: yes",
                                         "commit_retrieve: no",
                                         "asked to write",
                                         "asked to read",
                                         "never committed",
                                         "sent tensors",
                                         "slow worker",
                                         "prepared twice",
                                         "committed twice",
                                         "published",
                                         "found damaged",
                                         "damaged",
                                         "answer lost",
                                         "work refused",
                                         "cancelled",
                                         "late",
                                         "started with groups",
                                         "looked up",
                                         "no lookup",
                                         "hit",
                                         "hit ignored",
                                         "hit loaded",
                                         "hit not loaded",
                                         "stored groups",
                                         "chunk without some blocks",
                                         "lookup cancelled",
                                         "evicted",
                                         "detached and quiesced",
                                         "left in use"};
  };
  return sim_main::run_worlds<world>(what, defect_names, {argv + 1, argv + argc});
}
