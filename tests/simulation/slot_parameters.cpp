#include "tests/simulation/slot_parameters.hpp"

#include <sstream>

namespace troupe::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

slot_parameters make_slot_parameters(random_source random) {
  slot_parameters p;
  p.ns.name = p.ns.model = "slots";
  p.ns.layout = "slots";
  p.ns.world_size = 0;
  p.ranks = random.number(1, 2);
  p.shards = random.number(1, 3);
  p.clients = random.number(1, 3);
  p.sessions = random.number(1, 3);
  p.slots = random.number(3, 16);
  if (random.one_in(3)) {
    p.high_watermark = random.number(1, p.slots / 2 + 1);
    p.low_watermark = random.number(0, p.high_watermark);
  }
  p.branches = random.number(1, 3);
  p.depth = random.number(2, 6);
  p.protect = random.skewed_time(milliseconds(100), seconds(2));
  p.reservation = random.skewed_time(milliseconds(100), seconds(2));
  p.rest = random.skewed_time(milliseconds(100), seconds(2));
  p.children_hold = random.skewed_time(milliseconds(500), seconds(8));
  p.sync_time = random.skewed_time(microseconds(100), milliseconds(400));
  p.io_time = random.skewed_time(milliseconds(1), milliseconds(100));
  p.think_time = random.skewed_time(milliseconds(1), milliseconds(50));
  // Mostly longer than a shard waits for slots.
  p.request_timeout = random.skewed_time(milliseconds(500), seconds(4));
  p.nemesis_interval = random.skewed_time(milliseconds(50), seconds(1));
  p.untrue_parents = random.one_in(2);
  p.late_writers = random.one_in(2);
  p.failing_writes = random.one_in(2);
  p.erasing = random.one_in(3);
  p.cut = random.one_in(2);
  p.kill_client = random.one_in(3);
  p.kill_node = random.one_in(2);
  p.other_runs = random.one_in(2);
  p.new_sizes = random.one_in(3);
  p.refusing_store = random.one_in(2);
  return p;
}

std::string slot_parameters::describe() const {
  const auto ms = [](duration x) { return std::chrono::duration<double, std::milli>(x).count(); };
  std::ostringstream out;
  out << "slot clients: " << ranks << " ranks, " << shards << " shards, " << clients << " clients of " << sessions
      << " sessions, " << slots << " slots (low " << low_watermark << ", high " << high_watermark << "), tree of depth "
      << depth << " and " << branches << " branches; protect " << ms(protect) << " ms, reservations " << ms(reservation)
      << " ms, rest " << ms(rest) << " ms, children " << ms(children_hold) << " ms;";
  const auto flag = [&](const char* name, bool x) {
    if (x)
      out << ' ' << name;
  };
  flag("untrue-parents", untrue_parents);
  flag("late-writers", late_writers);
  flag("failing-writes", failing_writes);
  flag("erasing", erasing);
  flag("cut", cut);
  flag("kill-client", kill_client);
  flag("kill-node", kill_node);
  flag("other-runs", other_runs);
  flag("new-sizes", new_sizes);
  flag("refusing-store", refusing_store);
  return out.str();
}

} // namespace troupe::simulation
