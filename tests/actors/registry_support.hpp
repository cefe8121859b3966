#pragma once

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/registry/registry.hpp"
#include "tests/actors/sim.hpp"
#include "tests/unit/transfer_support.hpp"

/// Registry shards and allocators as a node has them, with a probe as io worker that ends I/O when the test says.

namespace troupe::test {

inline namespace_spec small_namespace(std::uint32_t world_size = 1) {
  namespace_spec out;
  out.name = "small";
  out.model = "model";
  out.dtype = "bf16";
  out.world_size = world_size;
  out.geometry = {2, 2, 2, 8, 2, 4};
  return out;
}

struct registry_world : sim {
  explicit registry_world(std::uint32_t slots = 8, std::uint32_t shard_count = 1, std::uint32_t world_size = 1)
      : ns(small_namespace(world_size)), ns_id(ns.id()) {
    registry_peers peers;
    for (std::uint32_t shard = 0; shard < shard_count; ++shard) {
      registry_options how;
      how.shard = shard;
      how.shard_count = shard_count;
      how.tick_work = 16;
      peers.shards.push_back(spawn<registry>(how, std::vector{ns}, metrics.as<metrics_actor>()));
    }
    for (rank_number rank = 0; rank < world_size; ++rank) {
      allocator_options how;
      how.slots = slots;
      how.low_watermark = 1;
      how.high_watermark = 2;
      how.first_generation = 100;
      peers.allocators.push_back(spawn<allocator>(how, ns_id, rank, worker.as<io_worker_actor>()));
      peers.namespaces.push_back(ns_id);
      peers.ranks.push_back(rank);
    }
    for (const auto& x : peers.shards)
      REQUIRE(ask(x, bind_atom_v, peers).code() == errc::ok);
    for (const auto& x : peers.allocators)
      REQUIRE(ask(x, bind_atom_v, peers).code() == errc::ok);
    shards = peers.shards;
    allocators = peers.allocators;
  }

  /// Shards like those of this world that are not bound to peers.
  registry_actor unbound_shard() { return spawn<registry>(registry_options{}, std::vector{ns}, metrics_actor{}); }
  allocator_actor unbound_allocator() {
    allocator_options how;
    how.slots = 8;
    return spawn<allocator>(how, ns_id, rank_number{0}, worker.as<io_worker_actor>());
  }

  static ticket ticket_of(std::uint64_t n, owner_id owner = 7) { return {owner, n}; }

  reserve_request reservation(std::uint64_t number, std::uint64_t first_key, std::uint32_t count, rank_number rank = 0,
                              owner_id owner = 7) const {
    return {ns_id, rank, ticket_of(number, owner), std::chrono::seconds(30), test_task(count, first_key).keys, {}};
  }

  static std::vector<errc> codes_of(const reserve_reply& x) {
    std::vector<errc> out;
    for (const auto& y : x.results)
      out.push_back(y.code());
    return out;
  }
  static std::vector<errc> codes_of(const finish_reply& x) {
    std::vector<errc> out;
    for (const auto y : x.results)
      out.push_back(static_cast<errc>(y));
    return out;
  }

  /// The pages that a reservation may write.
  static finish_request pages(const reserve_request& wanted, const reserve_reply& granted) {
    finish_request out{wanted.ns, wanted.rank, wanted.ticket, {}};
    for (std::size_t i = 0; i < granted.results.size(); ++i)
      if (granted.results[i].code() == errc::ok)
        out.pages.items.push_back({wanted.keys[i], granted.results[i].where});
    return out;
  }

  /// Reserves and commits all of it.
  finish_request store(std::uint64_t number, std::uint64_t first_key, std::uint32_t count, rank_number rank = 0) {
    const auto wanted = reservation(number, first_key, count, rank);
    const auto written = pages(wanted, ask(shards[0], wanted).value<reserve_reply>());
    REQUIRE(written.pages.size() == count);
    REQUIRE(codes_of(ask(shards[0], commit_atom_v, written).value<finish_reply>()) == std::vector(count, errc::ok));
    return written;
  }

  std::uint32_t matched(std::uint64_t first_key, std::uint32_t count, std::uint64_t lease = 900) {
    return ask(shards[0],
               match_request{ns_id, ticket_of(lease), std::chrono::seconds(5), test_task(count, first_key).keys})
        .value<match_reply>()
        .matched;
  }

  allocator_stats slots(rank_number rank = 0) { return ask(allocators[rank], stats_atom_v).value<allocator_stats>(); }
  registry_stats counts(std::size_t shard = 0) { return ask(shards[shard], stats_atom_v).value<registry_stats>(); }

  /// Ends all I/O on the slots that are being fenced; how many.
  std::size_t answer_fences() {
    std::size_t out = 0;
    for (const auto& x : worker.take<fence_atom, slot_batch>()) {
      out += x.get<slot_batch>(1).slots.size();
      worker.reply(x, caf::make_message());
    }
    run();
    return out;
  }

  /// The four states add up, at a quiet moment.
  void check_conservation(rank_number rank = 0) {
    const auto x = slots(rank);
    CHECK(x.free + x.reserved + x.live + x.quarantined == x.total);
  }

  namespace_spec ns;
  namespace_id ns_id;
  probe worker{system()};
  probe metrics{system()};
  std::vector<registry_actor> shards;
  std::vector<allocator_actor> allocators;
};

} // namespace troupe::test
