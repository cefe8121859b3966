#pragma once

#include "actors/node/eviction/eviction_policies.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

using keys_t = std::vector<key_digest>;

inline key_digest key_of(std::uint64_t n) {
  return {n, n * 7919 + 1};
}

/// The keys first … first + n - 1.
inline keys_t some_keys(std::uint64_t first, std::uint64_t n) {
  keys_t keys;
  for (std::uint64_t i = 0; i < n; ++i)
    keys.push_back(key_of(first + i));
  return keys;
}

/// The parents of a chain that begins with the first key.
inline keys_t chain_parents(const keys_t& keys) {
  keys_t parents(keys.size());
  for (std::size_t i = 1; i < keys.size(); ++i)
    parents[i] = keys[i - 1];
  return parents;
}

inline timestamp at(std::int64_t seconds) {
  return timestamp{std::chrono::seconds(1000 + seconds)};
}

inline namespace_spec namespace_of(std::uint32_t world_size, std::string name = "test") {
  namespace_spec spec;
  spec.model = name;
  spec.name = std::move(name);
  spec.world_size = world_size;
  return spec;
}

inline std::vector<errc> codes(const finish_reply& reply) {
  std::vector<errc> out;
  for (const auto code : reply.results)
    out.push_back(static_cast<errc>(code));
  return out;
}

inline std::vector<errc> codes(const packed<location>& locations) {
  std::vector<errc> out;
  for (const auto& x : locations)
    out.push_back(x.code());
  return out;
}

/// Each policy that a registry can have.
inline std::vector<eviction_factory> policies() {
  std::vector<eviction_factory> out;
  for (const auto& x : eviction_policies)
    out.push_back(x.make);
  return out;
}

inline registry_options options_with(eviction_factory policy, std::uint32_t shard_count = 1) {
  registry_options out;
  out.eviction = policy;
  out.shard_count = shard_count;
  return out;
}

/// Ends the test if the call failed.
inline void must(const result<void>& done) {
  INFO((done ? std::string{} : to_string(done.error())));
  REQUIRE(done.has_value());
}

/// A registry with one namespace, and a source of slots that never runs dry.
struct one_registry {
  explicit one_registry(std::uint32_t world_size = 1, registry_options options = {})
      : spec(namespace_of(world_size)), ns(spec.id()), state(options) {
    must(state.add_namespace(spec));
  }

  std::vector<slot_ref> fresh_slots(std::size_t n) {
    std::vector<slot_ref> slots;
    for (std::size_t i = 0; i < n; ++i)
      slots.push_back({next_slot++, 1});
    return slots;
  }

  result<reserve_plan> begin(ticket by, const keys_t& keys, rank_number rank = 0, keys_t parents = {},
                             std::int64_t now = 0, std::int64_t seconds = 10) {
    return state.begin_reserve({ns, rank, by, std::chrono::seconds(seconds), keys, std::move(parents)}, at(now));
  }

  /// Begins and finishes.
  reserve_reply reserve(ticket by, const keys_t& keys, rank_number rank = 0, keys_t parents = {}, std::int64_t now = 0,
                        std::int64_t seconds = 10) {
    auto plan = begin(by, keys, rank, std::move(parents), now, seconds).value();
    if (plan.what == reserve_plan::kind::answered)
      return plan.reply;
    return state.finish_reserve(plan.plan, fresh_slots(plan.slots_needed), at(now)).value();
  }

  static std::vector<page_ref> pages(const keys_t& keys, const reserve_reply& reply) {
    std::vector<page_ref> out;
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (reply.results[i].code() == errc::ok)
        out.push_back({keys[i], reply.results[i].where});
    return out;
  }

  std::vector<errc> commit(ticket by, std::vector<page_ref> what, rank_number rank = 0, std::int64_t now = 0) {
    return codes(state.commit({ns, rank, by, std::move(what)}, at(now)).value());
  }

  std::vector<errc> abort(ticket by, std::vector<page_ref> what, rank_number rank = 0, std::int64_t now = 0) {
    return codes(state.abort({ns, rank, by, std::move(what)}, at(now)).value());
  }

  /// Reserves and commits on one rank; returns the pages.
  std::vector<page_ref> save(const keys_t& keys, rank_number rank = 0, keys_t parents = {}, std::int64_t now = 0,
                             page_origin origin = page_origin::client) {
    const auto by = next_ticket();
    finish_request x{ns, rank, by, pages(keys, reserve(by, keys, rank, std::move(parents), now))};
    x.origin = origin;
    state.commit(x, at(now)).value();
    return x.pages.items;
  }

  std::uint32_t match(ticket lease, const keys_t& keys, std::int64_t now = 0, std::int64_t seconds = 10) {
    return state.match({ns, lease, std::chrono::seconds(seconds), keys}, at(now)).value().matched;
  }

  /// Matches without leaving a lease behind.
  std::uint32_t count(const keys_t& keys, std::int64_t now = 0) {
    const auto lease = next_ticket();
    const auto n = match(lease, keys, now);
    release(lease, 0, now);
    return n;
  }

  void release(ticket lease, std::uint32_t keep = 0, std::int64_t now = 0) {
    must(state.release({ns, lease, keep}, at(now)));
  }

  packed<location> locate(ticket lease, const keys_t& keys, rank_number rank = 0, std::int64_t now = 0) {
    return state.locate({ns, rank, lease, std::chrono::seconds(10), keys}, at(now)).value().locations;
  }

  evict_reply evict(std::uint32_t wanted, rank_number rank = 0, std::int64_t now = 0) {
    return state.evict({ns, rank, wanted}, at(now)).value();
  }

  std::optional<key_info> info(const key_digest& key) const {
    std::optional<key_info> out;
    state.for_each_key(ns, [&](const key_info& x) {
      if (x.key == key)
        out = x;
    });
    return out;
  }

  /// Whether it is there, and no ghost.
  bool has(const key_digest& key) const {
    const auto found = info(key);
    return found && !found->ghost;
  }
  std::size_t count_of(const keys_t& keys) const {
    return static_cast<std::size_t>(std::ranges::count_if(keys, [&](const auto& key) { return has(key); }));
  }

  ticket next_ticket() { return {99, ++sequence}; }

  /// The part of the outbox that is for one rank; empty if there is none.
  static slots_to_allocator for_rank(const registry_outbox& out, rank_number rank) {
    for (const auto& x : out.slots)
      if (x.rank == rank)
        return x;
    return {};
  }

  namespace_spec spec;
  namespace_id ns;
  registry_state state;
  slot_number next_slot = 0;
  std::uint64_t sequence = 0;
};

} // namespace troupe::test
