#include "actors/cluster/cluster.hpp"
#include "actors/cluster/peers/seed_names.hpp"

#include <chrono>
#include <utility>

/// Names of seeds that may have several addresses.

namespace troupe::cluster {

namespace {

constexpr auto resolving_pause = std::chrono::seconds(30);

} // namespace

void cluster::resolve_seeds() {
  if (!parts_.resolver || resolving_ || next_resolving_ > now())
    return;
  next_resolving_ = now() + resolving_pause;
  std::vector<config::cluster_seed> names;
  for (const auto& seed : parts_.options->cluster.seeds)
    if (!is_numeric_host(seed.host))
      names.push_back(seed);
  // One task at a time: a resolver that does not answer blocks its thread for seconds.
  const auto posted = parts_.resolver->post(
      [names = std::move(names), post = poster(), by = parts_.resolver.get()] {
        seeds_resolved out;
        for (const auto& x : names) {
          if (by->is_ending())
            return;
          const auto all = resolve_host(x.host, x.port);
          out.found.emplace_back(to_string(node_address{x.host, x.port}),
                                 all ? nodes_of_name(*all, x.port) : std::vector<std::string>{});
        }
        post(std::move(out));
      },
      serial_executor::at_end::drop);
  resolving_ = posted.has_value();
}

void cluster::on(const seeds_resolved& x) {
  resolving_ = false;
  for (const auto& [name, addresses] : x.found)
    members_.on_resolved(name, addresses, now());
  members_.on_time(now());
}

} // namespace troupe::cluster
