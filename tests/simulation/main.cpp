#include "actors/support/listeners/message_kinds.hpp"
#include "base/log.hpp"
#include "messages/messages.hpp"
#include "tests/simulation/namespace_world.hpp"
#include "tests/simulation/slot_world.hpp"
#include "tests/simulation/world.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::simulation;

/// The events that a range of seeds must have seen to count as covered.
constexpr std::string_view must_happen[] = {
    "attachment",
    "attachment: ends while copies are under way",
    "cancel: blocks hold something else",
    "committed page",
    "committed page of a client",
    "committed page of a transient key",
    "copy: from memory after a kill",
    "copy: into memory after a kill",
    "crash: a page is on disk",
    "crash: a page was in memory only",
    "evicted page",
    "evicted page of a spare key",
    "extent: given back",
    "extent: handed over",
    "extent: kept",
    "extent: assigned",
    "fault: a killed process stays for a while",
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
    "fault: corrupted memory",
    "fault: slow transfer",
    "fault: a client names an unknown pin",
    "fault: a client names another's pin",
    "fault: the host is short of memory",
    "fault: torn write",
    "fault: truncated slab",
    "fault: write error",
    "fault: write outlives the node",
    "fence: of a page that a client has pinned",
    "fence: of a page that is on its way into memory",
    "fence: waits for a transfer",
    "fetch: from disk",
    "fetch: full",
    "fetch: in memory",
    "fetch: io_error",
    "fill: io_error",
    "fill: no_space",
    "fill: ok",
    "fill: stale",
    "frames refused: limit_exceeded",
    "load: cancelled",
    "load: corrupt",
    "load: full",
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
    "other node: finds pages",
    "other node: keeps a page",
    "other node: keeps what its lease does not have",
    "other node: speaks too late",
    "orphaned frame is free",
    "page is dropped",
    "page is dropped before it is committed",
    "page is read ahead",
    "page is read ahead for a lease that has ended",
    "page is read unasked",
    "page is read unasked, and is not what it should be",
    "page is read unasked, and its slot has another one",
    "page left memory",
    "page left memory while it was leased",
    "page was moved",
    "pin: ended with its client",
    "place: full",
    "place: ok",
    "place: slab_damaged",
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
    "spare keys",
    "take: all",
    "take: none",
    "take: some",
};

constexpr std::string_view must_happen_to_slot_clients[] = {
    "allocate: busy",
    "allocate: exists",
    "allocate: full",
    "allocate: ok",
    "clear: of none",
    "clear: of pages",
    "confirm: expired",
    "confirm: not_found",
    "confirm: ok",
    "confirm: stale",
    "erase: not_found",
    "erase: ok",
    "evicted slot",
    "fault: cut line",
    "fault: killed client",
    "fault: killed node",
    "fault: killed while it started",
    "fault: restarted engine with other pages",
    "late write",
    "rank: replaced beside late writers",
    "read: page",
    "reclaim: busy",
    "reclaim: not_found",
    "reclaim: ok",
    "register anew: identity_mismatch",
    "register anew: ok",
    "request: no answer",
    "request: of a rank that is not known",
    "request: repeated",
    "run: with another registration",
    "run: without the index",
    "slot: free at once",
    "slot: rests",
    "store: lost what was not durable",
    "store: refused a batch",
    "store: restored page",
    "take: all",
    "take: none",
    "take: some",
};

constexpr std::string_view must_happen_to_namespaces[] = {
    "attach: busy",
    "attach: identity_mismatch",
    "attach: ok",
    "attach: unknown_namespace",
    "attachment ends with its namespace",
    "commit: ok",
    "copy: after a kill",
    "disk: read",
    "disk: trim",
    "disk: write",
    "extent: came back",
    "extent: assigned",
    "fault: client leaves",
    "fault: killed client",
    "fault: killed node",
    "fault: killed while it started",
    "fault: no room for a slab",
    "fault: read error",
    "fault: write error",
    "fetch from disk: ok",
    "fetch: ok",
    "forced removal: ok",
    "load: ok",
    "locate: ok",
    "page: as it is",
    "page: encoded",
    "page: gets a whole frame",
    "rank is in memory only",
    "removal: busy",
    "removal: ok",
    "removal: unknown_namespace",
    "restored namespace",
    "slab has grown",
    "slab has slots within its space",
    "slab is removed",
    "store: refused a batch",
};

/// Requests of clients that no client here makes. Most of their rules have simulations of their own.
constexpr std::string_view asked_elsewhere[] = {
    // troupe-cluster-simulation
    "cluster_hello",
    "fetch_pages_request",
    "prefix_fetch_request",
    "reuse_request",
    "search_peers_request",
    // troupe-handshake-simulation
    "handshake_fetch_request",
    "handshake_heartbeat_request",
    "handshake_list_request",
    "handshake_publish_request",
    "handshake_seen_request",
    "handshake_withdraw_request",
    "@atom @str handshake_watcher_actor",
    // troupe-events-simulation
    "describe_pages_request",
    // troupe-lmcache-simulation: leases of its lookups
    "renew_request",
    // statistics and the handshake directory: answered at once, and nothing is kept for the caller
    "@atom",
    // the memory of a client on another host: tests/actors/remote_worker_test.cpp
    "@atom remote_offer",
};

/// "asked: NAME" for all other requests that a client may send to a node, from the interfaces of its handles.
std::vector<std::string> requests_of_clients() {
  caf::actor_system_config config;
  register_messages(config);
  caf::actor_system system(config);
  std::vector<std::string> out;
  for (const auto& kind : kinds_of_client_messages(system)) {
    // "@<>+troupe::first+troupe::second" behind some bytes
    std::string name;
    std::istringstream types(kind.substr(kind.find("@<>+") + 4));
    for (std::string type; std::getline(types, type, '+');)
      name += (name.empty() ? "" : " ") + type.substr(type.rfind(':') + 1);
    if (std::ranges::find(asked_elsewhere, name) == std::end(asked_elsewhere))
      out.push_back("asked: " + name);
  }
  return out;
}

std::vector<std::string_view> names_of_defects() {
  std::vector<std::string_view> out;
  for (const auto& [name, which] : defect_names)
    out.push_back(name);
  return out;
}

} // namespace

int main(int argc, char** argv) {
  log::set_level("off");
  bool slot_clients = false;
  bool made_namespaces = false;
  sim_main::program what;
  what.name = "troupe-simulation";
  what.about = "Runs seeded simulations of a node and its clients, made of the actors that ship, over a simulated\n"
               "network and simulated disks, and checks the messages between them.";
  what.steps_text = "turns of actors and events of the world before its faults end";
  what.default_steps = 5000;
  what.defects = names_of_defects();
  what.flags = {
      {"--slot-clients", "worlds of engines that read and write slab files themselves", &slot_clients},
      {"--made-namespaces", "worlds in which namespaces are made and removed all the time", &made_namespaces}};
  what.must_happen = [&] {
    using names = std::vector<std::string_view>;
    if (made_namespaces)
      return names(std::begin(must_happen_to_namespaces), std::end(must_happen_to_namespaces));
    if (slot_clients)
      return names(std::begin(must_happen_to_slot_clients), std::end(must_happen_to_slot_clients));
    names out(std::begin(must_happen), std::end(must_happen));
    static const auto asked = requests_of_clients();
    out.insert(out.end(), asked.begin(), asked.end());
    return out;
  };
  what.run = [&](const sim_main::run_options& x) {
    log::set_level(x.verbose ? "debug" : "off");
    const auto built_in = sim_main::find_defect(defect_names, x.defect);
    if (made_namespaces)
      return namespace_world(x.seed, x.steps, built_in, x.verbose).run();
    return slot_clients ? slot_world(x.seed, x.steps, built_in, x.verbose).run()
                        : world(x.seed, x.steps, built_in, x.verbose).run();
  };
  const auto code = sim_main::run(what, {argv + 1, argv + argc});
  log::shutdown();
  return code;
}
