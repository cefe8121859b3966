#include "actors/node/supervisor/node_children.hpp"

#include <algorithm>

namespace troupe {

void node_children::add_shard(const registry_actor& x) {
  add({"registry shard " + std::to_string(shards_.size()), caf::actor_cast<caf::actor>(x), "its keys are lost", true,
       false});
  shards_.push_back(x);
}

void node_children::add_rank(const node_rank& x) {
  const auto where = " of rank " + std::to_string(x.rank) + " of namespace '" + served.at(x.ns).name + "'";
  add({"the allocator" + where, caf::actor_cast<caf::actor>(x.allocator), "the record of free slots is lost", false,
       false});
  add({"the io worker" + where, caf::actor_cast<caf::actor>(x.worker), "its pages cannot be reached", true, true});
  ranks_.push_back(x);
}

void node_children::add_made(const served_namespace& x, std::size_t at) {
  served.resize(std::max(served.size(), at + 1));
  served[at] = x.spec;
  for (const auto& rank : x.ranks)
    add_rank({at, rank.rank, rank.slots, rank.worker, rank.allocator, false, rank.slab});
}

void node_children::remove_ranks(std::size_t ns) {
  for (const auto& x : ranks_)
    if (x.ns == ns)
      std::erase_if(all_, [&](const node_child& child) {
        return child.handle.address() == x.allocator.address() || child.handle.address() == x.worker.address();
      });
  std::erase_if(ranks_, [&](const node_rank& x) { return x.ns == ns; });
}

void node_children::add_metrics(const metrics_actor& x) {
  add({"the metrics actor", caf::actor_cast<caf::actor>(x), "its counters are lost", false, false});
  metrics_ = x;
}

const node_child* node_children::find(const caf::actor_addr& who) const {
  const auto found = std::ranges::find_if(all_, [&](const node_child& x) { return x.handle.address() == who; });
  return found == all_.end() ? nullptr : &*found;
}

} // namespace troupe
