// The overhead of the actor over the rules: prefix matches of 512 keys against one registry shard of 10 million keys,
// on the state alone and through the actor by one client, alternating in one run. With --events also through an actor
// that reports changes for events, all of whose keys were described.

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/metrics/metrics.hpp"
#include "actors/node/registry/registry.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/request_deadlines.hpp"
#include "actors/support/system_config.hpp"
#include "events/feed.hpp"
#include "workload/replay/keys.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace troupe;
using steady = std::chrono::steady_clock;

constexpr std::size_t batch = 512;
constexpr owner_id owner = 1;
constexpr auto lease_time = std::chrono::seconds(60);

struct settings {
  std::size_t keys = 10'000'000;
  std::size_t matches = 4'000;
  std::size_t rounds = 25;
  std::size_t depth = 4;
  bool events = false;
};

namespace_spec bench_namespace() {
  namespace_spec out;
  out.name = "bench";
  out.model = "bench";
  out.geometry = {1, 1, 1, 1024, 2, 16};
  return out;
}

std::vector<std::vector<key_digest>> make_chains(std::size_t keys) {
  std::vector<std::vector<key_digest>> out(keys / batch);
  std::vector<std::uint64_t> ids(batch);
  std::uint64_t next = 0;
  for (auto& chain : out) {
    for (auto& id : ids)
      id = next++;
    chain = replay::chain_keys(ids);
  }
  return out;
}

reserve_request reserve_of(const std::vector<key_digest>& chain, const namespace_id& ns, std::uint64_t n) {
  return {ns, 0, {owner, n}, lease_time, chain, replay::parents_of(chain)};
}

finish_request commit_of(const reserve_request& reserved, const reserve_reply& reply) {
  finish_request out{reserved.ns, 0, reserved.ticket, {}};
  for (std::size_t i = 0; i < reply.results.size(); ++i)
    out.pages.items.push_back({reserved.keys[i], reply.results[i].where});
  return out;
}

void require(bool ok, const char* what) {
  if (ok)
    return;
  std::fprintf(stderr, "registry_actor: %s\n", what);
  std::exit(1);
}

void fill(registry_state& state, const std::vector<std::vector<key_digest>>& chains, const namespace_id& ns) {
  slot_number next = 0;
  std::uint64_t n = 0;
  for (const auto& chain : chains) {
    const auto request = reserve_of(chain, ns, ++n);
    const auto plan = state.begin_reserve(request, steady::now());
    require(plan && plan->slots_needed == batch, "the state refused a reservation");
    std::vector<slot_ref> slots(batch);
    for (auto& x : slots)
      x = {next++, 1};
    const auto reply = state.finish_reserve(plan->plan, slots, steady::now());
    require(reply && state.commit(commit_of(request, *reply), steady::now()), "the state refused a commit");
    static_cast<void>(state.take_outbox());
  }
}

void fill(caf::scoped_actor& self, const registry_actor& to, const std::vector<std::vector<key_digest>>& chains,
          const namespace_id& ns) {
  std::uint64_t n = 0;
  const auto fail_on = [](const caf::error& e) { require(false, to_string(from_caf(e)).c_str()); };
  for (const auto& chain : chains) {
    const auto request = reserve_of(chain, ns, ++n);
    reserve_reply reply;
    self->request(to, caf::infinite, request).receive([&](reserve_reply& x) { reply = std::move(x); }, fail_on);
    self->request(to, caf::infinite, commit_atom_v, commit_of(request, reply))
        .receive([](const finish_reply&) {}, fail_on);
  }
}

/// A shard with its allocator.
struct shard_of_keys {
  allocator_actor slots;
  registry_actor shard;
};

shard_of_keys spawn_shard(caf::actor_system& system, const registry_options& options, std::size_t keys,
                          const namespace_spec& ns, const metrics_actor& meters) {
  allocator_options slots;
  slots.slots = static_cast<std::uint32_t>(keys + 1);
  shard_of_keys out{spawn_actor<allocator>(system, slots, ns.id(), rank_number{0}, io_worker_actor{}),
                    spawn_actor<registry>(system, options, std::vector{ns}, meters)};
  const registry_peers peers{{out.shard}, {out.slots}, {ns.id()}, {0}};
  caf::anon_send(out.shard, bind_atom_v, peers);
  caf::anon_send(out.slots, bind_atom_v, peers);
  return out;
}

/// Describes all keys, as engines do after they have saved pages. The publisher of events is not part of this.
void describe(caf::scoped_actor& self, const registry_actor& to, const std::vector<std::vector<key_digest>>& chains,
              const namespace_id& ns, events::feed& feed) {
  for (const auto& chain : chains) {
    describe_pages_request request{ns, {}};
    auto& x = request.pages;
    x.block_tokens = 1;
    x.keys.items = chain;
    x.hashes.items.assign(batch, 1);
    x.parents.items.assign(batch, 1);
    x.has_parent.items.assign(batch, 1);
    x.tokens.items.assign(batch, 1);
    self->request(to, caf::infinite, std::move(request))
        .receive([](const result_codes&) {},
                 [](const caf::error& e) { require(false, to_string(from_caf(e)).c_str()); });
    static_cast<void>(feed.take());
  }
}

/// The order of the matched chains, the same for both.
std::vector<std::uint32_t> choose(std::size_t chains, std::size_t matches, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> out(matches);
  for (auto& x : out)
    x = static_cast<std::uint32_t>(random() % chains);
  return out;
}

double keys_per_second(std::size_t matches, steady::duration taken) {
  return static_cast<double>(matches * batch) / std::chrono::duration<double>(taken).count();
}

double run_state(registry_state& state, const std::vector<std::vector<key_digest>>& chains,
                 const std::vector<std::uint32_t>& order, const namespace_id& ns, std::uint64_t& ticket_number) {
  const auto started = steady::now();
  for (const auto i : order) {
    // The keys are copied into the request, as by a client that puts them into a message.
    const ticket lease{owner, ++ticket_number};
    const auto found = state.match({ns, lease, lease_time, chains[i]}, steady::now());
    require(found && found->matched == batch, "the state did not find its keys");
    require(state.release({ns, lease, 0}, steady::now()).has_value(), "the state did not release");
  }
  return keys_per_second(order.size(), steady::now() - started);
}

/// A client that keeps `depth` lookups in progress: match, then release, then the next.
class bench_client : public caf::event_based_actor {
public:
  bench_client(caf::actor_config& config, registry_actor to, const std::vector<std::vector<key_digest>>* chains,
               const std::vector<std::uint32_t>* order, namespace_id ns, std::size_t depth, std::uint64_t first)
      : caf::event_based_actor(config), to_(std::move(to)), chains_(chains), order_(order), ns_(ns), depth_(depth),
        ticket_number_(first) {}

  caf::behavior make_behavior() override {
    return {[this](caf::ok_atom) {
              tick();
              for (std::size_t i = 0; i < depth_; ++i)
                next();
            },
            [this](caf::tick_atom) { tick(); }};
  }

private:
  void tick() {
    deadlines_.expire(*this, clock().now());
    delayed_send(this, std::chrono::milliseconds(100), caf::tick_atom_v);
  }

  void next() {
    if (at_ == order_->size()) {
      if (done_ == order_->size())
        quit();
      return;
    }
    const ticket lease{owner, ++ticket_number_};
    deadlines_
        .watch(request(to_, caf::infinite, match_request{ns_, lease, lease_time, (*chains_)[(*order_)[at_++]]}),
               clock().now())
        .then(
            [this, lease](const match_reply& found) {
              require(found.matched == batch, "the actor did not find its keys");
              deadlines_.watch(request(to_, caf::infinite, release_request{ns_, lease, 0}), clock().now())
                  .then(
                      [this] {
                        ++done_;
                        next();
                      },
                      [](const caf::error&) { require(false, "the actor did not release"); });
            },
            [](const caf::error& e) { require(false, to_string(from_caf(e)).c_str()); });
  }

  registry_actor to_;
  request_deadlines deadlines_{std::chrono::seconds(60)};
  const std::vector<std::vector<key_digest>>* chains_;
  const std::vector<std::uint32_t>* order_;
  namespace_id ns_;
  std::size_t depth_;
  std::uint64_t ticket_number_;
  std::size_t at_ = 0;
  std::size_t done_ = 0;
};

double run_actor(caf::actor_system& system, const registry_actor& to,
                 const std::vector<std::vector<key_digest>>& chains, const std::vector<std::uint32_t>& order,
                 const namespace_id& ns, std::size_t depth, std::uint64_t& ticket_number) {
  caf::scoped_actor self{system};
  const auto client = system.spawn<bench_client>(to, &chains, &order, ns, depth, ticket_number);
  ticket_number += order.size();
  self->monitor(client);
  const auto started = steady::now();
  self->send(client, caf::ok_atom_v);
  self->receive([](const caf::down_msg&) {});
  return keys_per_second(order.size(), steady::now() - started);
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

} // namespace

int main(int argc, char** argv) {
  settings how;
  CLI::App app("Prefix matches through the registry actor, compared with its state alone");
  app.add_option("--keys", how.keys, "Keys in the shard")->capture_default_str();
  app.add_option("--matches", how.matches, "Matches of 512 keys in one round")->capture_default_str();
  app.add_option("--rounds", how.rounds, "Rounds; the median counts")->capture_default_str();
  app.add_option("--depth", how.depth, "Lookups that the client keeps in progress")->capture_default_str();
  app.add_flag("--events", how.events, "Also with events on and all keys described");
  CLI11_PARSE(app, argc, argv);

  const auto chains = make_chains(how.keys);
  const auto ns = bench_namespace();
  registry_options options;
  registry_state state(options);
  require(state.add_namespace(ns).has_value(), "no namespace");
  fill(state, chains, ns.id());

  system_config config{config::caf_config{}};
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  const auto meters = spawn_actor<metrics>(system, "bench");
  std::vector<shard_of_keys> actors{spawn_shard(system, options, how.keys, ns, meters)};
  fill(self, actors.front().shard, chains, ns.id());
  if (how.events) {
    options.events = std::make_shared<events::feed>();
    actors.push_back(spawn_shard(system, options, how.keys, ns, meters));
    fill(self, actors.back().shard, chains, ns.id());
    describe(self, actors.back().shard, chains, ns.id(), *options.events);
  }

  std::uint64_t tickets = 1ULL << 40U;
  std::vector<double> alone;
  std::vector<double> through;
  std::vector<double> with_events;
  // The ratio of adjacent rounds, since the speed of a shared machine changes from second to second.
  std::vector<double> ratios;
  std::vector<double> ratios_with_events;
  for (std::size_t round = 0; round < how.rounds; ++round) {
    const auto order = choose(chains.size(), how.matches, round);
    alone.push_back(run_state(state, chains, order, ns.id(), tickets));
    through.push_back(run_actor(system, actors.front().shard, chains, order, ns.id(), how.depth, tickets));
    ratios.push_back(through.back() / alone.back());
    if (!how.events)
      continue;
    with_events.push_back(run_actor(system, actors.back().shard, chains, order, ns.id(), how.depth, tickets));
    ratios_with_events.push_back(with_events.back() / through.back());
    static_cast<void>(options.events->take());
  }
  std::printf("%zu keys in one shard, %zu matches of %zu keys a round, median of %zu rounds\n", how.keys, how.matches,
              batch, how.rounds);
  std::printf("  %-34s %10s\n", "", "M keys/s");
  std::printf("  %-34s %10.2f\n", "state alone", median(alone) / 1e6);
  std::printf("  %-34s %10.2f\n", "through the actor, one client", median(through) / 1e6);
  std::printf("  %-34s %9.1f%%\n", "actor / state, round by round", 100.0 * median(ratios));
  if (how.events) {
    std::printf("  %-34s %10.2f\n", "the same with events on", median(with_events) / 1e6);
    std::printf("  %-34s %9.1f%%\n", "events on / off, round by round", 100.0 * median(ratios_with_events));
  }
  for (const auto& x : actors) {
    self->send_exit(x.shard, caf::exit_reason::user_shutdown);
    self->send_exit(x.slots, caf::exit_reason::user_shutdown);
  }
  self->send_exit(meters, caf::exit_reason::user_shutdown);
  return 0;
}
