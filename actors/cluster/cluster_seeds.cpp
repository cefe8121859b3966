#include "actors/cluster/cluster.hpp"
#include "base/tcp_connect.hpp"

#include <chrono>
#include <utility>

/// Names of seeds that may have several addresses.

namespace troupe::cluster {

namespace {

constexpr auto resolving_pause = std::chrono::seconds(30);

} // namespace

void cluster::resolve_seeds() {
  if (!parts_.network->has_resolver() || resolving_ || next_resolving_ > now())
    return;
  next_resolving_ = now() + resolving_pause;
  std::vector<config::cluster_seed> names;
  for (const auto& seed : parts_.options->cluster.seeds)
    if (!is_numeric_host(seed.host))
      names.push_back(seed);
  // One task at a time: a resolver that does not answer blocks its thread for seconds.
  const auto accepted =
      parts_.network->resolve(std::move(names), [post = poster()](seeds_resolved found) { post(std::move(found)); });
  resolving_ = accepted.has_value();
}

void cluster::on(const seeds_resolved& x) {
  resolving_ = false;
  for (const auto& [name, addresses] : x.found)
    members_.on_resolved(name, addresses, now());
  members_.on_time(now());
}

} // namespace troupe::cluster
