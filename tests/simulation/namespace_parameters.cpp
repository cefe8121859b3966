#include "tests/simulation/namespace_parameters.hpp"

#include "io/page.hpp"
#include "io/slab/disk_budget.hpp"

#include <algorithm>
#include <sstream>

namespace troupe::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

std::vector<namespace_spec> choose_namespaces(random_source& random, const namespace_spec& like, bool encodings) {
  std::vector<namespace_spec> out;
  // Groups of layers of one model have the same keys, and are evicted together.
  const bool of_one_model = random.one_in(2);
  for (auto n = random.number(2, 4); n > 0; --n) {
    auto x = like;
    x.group_of = of_one_model ? "a model" : "";
    x.name = x.model = "made " + std::to_string(n);
    x.world_size = random.number(1, 2);
    // Slots of two or three blocks; of six or nine, of which encoded pages leave one or two.
    x.geometry.block_tokens = random.one_in(2) ? 4 : 40;
    if (encodings)
      x.geometry.block_tokens = x.geometry.block_tokens == 4 ? 160 : 240;
    if (!out.empty() && random.one_in(3)) {
      x.name = out.back().name;
      x.salt = "another";
    }
    out.push_back(x);
  }
  return out;
}

} // namespace

namespace_parameters make_namespace_parameters(random_source random, const namespace_spec& like) {
  namespace_parameters p;
  p.encodings = random.one_in(2);
  p.sparse = p.encodings && !random.one_in(4);
  p.namespaces = choose_namespaces(random, like, p.encodings);
  p.shards = random.number(1, 3);
  p.clients = random.number(1, 4);
  p.sessions = random.number(1, 3);
  p.keys = random.number(4, 40);
  constexpr const char* durabilities[] = {"none", "relaxed", "strict"};
  p.durability = durabilities[random.below(3)];
  p.write_eagerly = p.strict() || random.one_in(2);
  p.second_hit = !p.strict() && random.one_in(3);
  p.prefetch_pages = random.one_in(2) ? random.number(1, 4) : 0;
  std::uint64_t slot = 0;
  for (const auto& x : p.namespaces)
    slot = std::max(slot, io::slot_bytes(x.geometry.page_bytes()));
  p.extents = random.number(2, 8);
  p.extent_bytes = slot * random.number(1, 6);
  switch (random.below(p.strict() ? 2 : 3)) {
  case 0:
    p.disk_bytes = 16 * io::growth_bytes;
    break;
  case 1:
    p.disk_bytes = slot * random.number(2 * io::growth_slots, 8 * io::growth_slots) + 4 * io::slab_tail_bytes;
    break;
  default:
    break; // in memory only
  }
  p.encoding_period = random.skewed_time(milliseconds(100), seconds(10));
  p.io_time = random.skewed_time(microseconds(50), milliseconds(50));
  p.sync_time = random.skewed_time(microseconds(100), milliseconds(100));
  p.copy_time = random.skewed_time(microseconds(10), milliseconds(100));
  p.think_time = random.skewed_time(microseconds(100), milliseconds(20));
  p.lease = random.skewed_time(milliseconds(50), seconds(5));
  p.reservation = random.skewed_time(milliseconds(50), seconds(5));
  p.patience = random.skewed_time(milliseconds(1), seconds(1));
  p.process_hang = random.one_in(2) ? random.skewed_time(milliseconds(1), seconds(4)) : duration::zero();
  p.removal_interval = random.skewed_time(milliseconds(10), milliseconds(500));
  p.nemesis_interval = random.skewed_time(milliseconds(50), seconds(1));
  p.forced = random.one_in(2);
  p.kill_client = random.one_in(2);
  p.kill_node = random.one_in(3);
  p.leave = random.one_in(2);
  p.unknown_processes = random.one_in(6);
  p.disk_full = random.one_in(3) ? 300'000 : 0;
  p.write_error = random.one_in(4) ? 50'000 : 0;
  p.read_error = random.one_in(4) ? 50'000 : 0;
  p.refusing_store = p.durable() && random.one_in(2);
  return p;
}

std::string namespace_parameters::describe() const {
  const auto ms = [](duration x) { return std::chrono::duration<double, std::milli>(x).count(); };
  std::ostringstream out;
  out << "made namespaces: ";
  for (const auto& x : namespaces)
    out << "'" << x.name << (x.salt.empty() ? "" : "' salted '" + x.salt) << "' of " << x.world_size << " ranks and "
        << io::slot_bytes(x.geometry.page_bytes()) << " bytes, ";
  out << shards << " shards, " << clients << " clients of " << sessions << " sessions, " << keys << " keys, "
      << durability << ", " << extents << " extents of " << extent_bytes << " bytes, disk " << disk_bytes
      << " bytes; copies " << ms(copy_time) << " ms, transfers " << ms(io_time) << " ms, leases " << ms(lease)
      << " ms, removals every " << ms(removal_interval) << " ms;";
  const auto flag = [&](const char* name, bool x) {
    if (x)
      out << ' ' << name;
  };
  flag("encodings", encodings);
  flag("sparse", sparse);
  flag("second-hit", second_hit);
  flag("late-writes", !write_eagerly);
  flag("prefetch", prefetch_pages > 0);
  flag("forced", forced);
  flag("kill-client", kill_client);
  flag("kill-node", kill_node);
  flag("leave", leave);
  flag("unknown-processes", unknown_processes);
  flag("refusing-store", refusing_store);
  flag("disk-full", disk_full > 0);
  flag("write-error", write_error > 0);
  flag("read-error", read_error > 0);
  return out.str();
}

} // namespace troupe::simulation
