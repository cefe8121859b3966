#include "offline/played_cluster.hpp"

#include <algorithm>
#include <variant>

namespace troupe::offline {

namespace {

/// How often a lookup asks peers for the next keys.
constexpr int most_rounds = 4;

} // namespace

played_cluster::played_cluster(const options& how) : how_(how), learning_(how.nodes) {
  for (std::size_t i = 0; i < how.nodes; ++i) {
    auto one = how.node;
    one.seed += i;
    nodes_.push_back(std::make_unique<played_cache>(one));
  }
  if (!how.learns)
    return;
  for (std::size_t i = 0; i < how.nodes; ++i) {
    std::vector<cluster::shared_learning::peer_shards> peers;
    for (std::size_t p = 0; p < how.nodes; ++p)
      if (p != i)
        peers.push_back({static_cast<cluster::peer_number>(p), 1, nodes_[p]->shards()});
    learning_[i].follow(nodes_[i]->ns(), nodes_[i]->shards(), peers);
  }
}

std::size_t played_cluster::play(std::size_t node, std::span<const key_digest> keys) {
  auto& here = *nodes_[node];
  const auto lookup = here.begin();
  auto matched = here.match(keys, lookup);
  std::vector<std::size_t> used;
  for (int i = 0; i < most_rounds && matched < keys.size() && wanted_prefix(node, keys, matched, used); ++i)
    matched = here.match(keys, lookup);
  here.load(keys, matched);
  here.save(keys, matched, keys.size());
  here.end(lookup);
  learn(node);
  return matched;
}

bool played_cluster::wanted_prefix(std::size_t node, std::span<const key_digest> keys, std::size_t first,
                                   std::vector<std::size_t>& used) {
  struct offer {
    std::size_t peer = 0;
    ticket lease;
    std::size_t keys = 0;
  };
  std::vector<offer> offers;
  offer best;
  for (std::size_t p = 0; p < nodes_.size(); ++p) {
    if (p == node || std::ranges::find(used, p) != used.end())
      continue;
    offer x{p, nodes_[p]->begin(), 0};
    x.keys = nodes_[p]->match(keys.subspan(first), x.lease, true);
    if (x.keys > best.keys)
      best = x;
    offers.push_back(x);
  }
  for (const auto& x : offers)
    if (best.keys == 0 || x.peer != best.peer)
      nodes_[x.peer]->end(x.lease);
  if (best.keys == 0)
    return false;
  auto& from = *nodes_[best.peer];
  from.load(keys.subspan(first), best.keys);
  const auto made = nodes_[node]->save(keys, first, first + best.keys,
                                       how_.keep_copies ? page_origin::fetched : page_origin::transient);
  fetched_ += made.size();
  from.end(best.lease, how_.keep_copies ? std::span<const key_digest>(made) : std::span<const key_digest>());
  used = {best.peer};
  return true;
}

void played_cluster::learn(std::size_t node) {
  auto& rules = learning_[node];
  rules.on_time(nodes_[node]->now());
  // Each answer may cause another request.
  for (auto effects = rules.take_outbox(); !effects.empty(); effects = rules.take_outbox())
    for (const auto& effect : effects) {
      if (const auto* const ask = std::get_if<cluster::ask_shard>(&effect))
        rules.on_notified(
            ask->call,
            nodes_[ask->who.peer.value_or(static_cast<cluster::peer_number>(node))]->report_reuse(ask->who.shard));
      else if (const auto* const lesson = std::get_if<cluster::teach_shard>(&effect))
        nodes_[node]->learn_reuse(lesson->shard, lesson->counts);
    }
}

} // namespace troupe::offline
