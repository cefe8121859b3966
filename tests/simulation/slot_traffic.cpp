#include "tests/simulation/slot_traffic.hpp"

#include <utility>

namespace troupe::simulation {

void slot_traffic::write(const slot_page& what, timestamp begin, timestamp end, bool well,
                         std::function<void(bool)> done) {
  plan({what, true, false, well, 0, std::move(done)}, begin, end);
}

void slot_traffic::read(const slot_page& what, timestamp begin, timestamp end) {
  plan({what, false, false, true, 0, {}}, begin, end);
}

void slot_traffic::plan(transfer x, timestamp begin_at, timestamp end_at) {
  const auto number = ++last_;
  under_way_.emplace(number, std::move(x));
  world_.schedule.at(begin_at, [this, number] { begin(number); });
  world_.schedule.at(end_at, [this, number] { end(number); });
}

void slot_traffic::begin(std::uint64_t number) {
  const auto found = under_way_.find(number);
  if (found == under_way_.end())
    return world_.schedule.idle();
  auto& x = found->second;
  auto& disk = node_.disk(x.what.rank);
  x.begun = true;
  world_.trace(x.writes ? "write begins" : "read begins", {x.what.rank, x.what.slot, x.what.key.hi});
  if (x.writes)
    disk.begin_write(number, x.what.slot, x.what.key);
  else
    x.changes = disk.changes(x.what.slot);
}

void slot_traffic::end(std::uint64_t number) {
  auto node = under_way_.extract(number);
  if (node.empty())
    return world_.schedule.idle();
  const auto& x = node.mapped();
  auto& disk = node_.disk(x.what.rank);
  world_.trace(x.writes ? "write ends" : "read ends", {x.what.rank, x.what.slot, x.what.key.hi});
  if (x.writes) {
    disk.end_write(number, x.what.slot, x.well);
    x.done(x.well);
    return;
  }
  world_.count("read: page");
  if (disk.content(x.what.slot) != x.what.key || disk.changes(x.what.slot) != x.changes)
    world_.fail("pages", "rank " + std::to_string(x.what.rank) + ", slot " + std::to_string(x.what.slot) +
                             ": a reader that got key " + to_string(x.what.key) + " does not find its bytes");
}

void slot_traffic::node_restarted() {
  for (auto i = under_way_.begin(); i != under_way_.end();) {
    const auto& x = i->second;
    if (node_.is_live(x.what)) {
      ++i;
      continue;
    }
    if (x.writes && x.begun)
      node_.disk(x.what.rank).end_write(i->first, x.what.slot, false);
    const auto done = x.done;
    i = under_way_.erase(i);
    if (done)
      done(false);
  }
}

} // namespace troupe::simulation
