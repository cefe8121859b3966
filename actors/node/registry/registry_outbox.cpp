#include "actors/node/registry/registry_outbox.hpp"

#include <iterator>

namespace troupe {

outbox_collector::outbox_collector(namespace_id ns, std::uint32_t max_ranks, std::uint32_t shard_count, bool feed,
                                   bool describes)
    : ns_(ns), feed_(feed), described_(describes ? std::make_unique<described_keys>(ns) : nullptr),
      rank_at_(max_ranks, nowhere), shard_at_(shard_count, nowhere), released_(max_ranks, 0) {}

slots_to_allocator& outbox_collector::of_rank(rank_number rank) {
  auto& at = rank_at_[rank];
  if (at == nowhere) {
    at = static_cast<std::uint32_t>(pending_.slots.size());
    auto& added = pending_.slots.emplace_back();
    added.ns = ns_;
    added.rank = rank;
  }
  return pending_.slots[at];
}

void outbox_collector::count_children(std::uint32_t shard, child_delta change) {
  if (!tells_shards_)
    return;
  auto& at = shard_at_[shard];
  if (at == nowhere || pending_.children[at].request.changes.size() >= child_changes_max) {
    at = static_cast<std::uint32_t>(pending_.children.size());
    pending_.children.push_back({shard, {ns_, {}}});
  }
  pending_.children[at].request.changes.items.push_back(change);
}

void outbox_collector::drain_into(registry_outbox& out) {
  for (const auto& x : pending_.slots)
    rank_at_[x.rank] = nowhere;
  for (const auto& x : pending_.children)
    shard_at_[x.shard] = nowhere;
  std::move(pending_.slots.begin(), pending_.slots.end(), std::back_inserter(out.slots));
  std::move(pending_.children.begin(), pending_.children.end(), std::back_inserter(out.children));
  std::move(pending_.workers.begin(), pending_.workers.end(), std::back_inserter(out.workers));
  std::move(pending_.changes.begin(), pending_.changes.end(), std::back_inserter(out.changes));
  if (described_ && described_->has_changes())
    described_->drain_into(out.events);
  pending_.slots.clear();
  pending_.children.clear();
  pending_.workers.clear();
  pending_.changes.clear();
}

} // namespace troupe
