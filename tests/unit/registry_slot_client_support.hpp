#pragma once

#include "tests/unit/registry_support.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

using codes_t = std::vector<errc>;
using slots_t = std::vector<slot_number>;

inline codes_t codes(const result_codes& reply) {
  codes_t out;
  for (const auto code : reply.results)
    out.push_back(static_cast<errc>(code));
  return out;
}

/// Half a second is two ticks of coarse time; all times of these tests are whole ticks.
inline timestamp at_ms(std::int64_t ms) {
  return timestamp{std::chrono::seconds(1000) + std::chrono::milliseconds(ms)};
}

/// A registry with one namespace as slot clients use it: ranks come at run time, slots are known by number.
struct slot_client_registry {
  explicit slot_client_registry(std::uint32_t ranks = 1, registry_options options = {},
                                namespace_options how = {true, true, 4}, std::uint32_t slots = 1000)
      : spec(namespace_of(how.automatic ? 0 : ranks)), ns(spec.id()), state(options), granted(how.max_ranks, 0) {
    must(state.add_namespace(spec, how));
    for (rank_number rank = 0; rank < ranks; ++rank)
      must(state.add_rank(ns, rank, slots));
  }

  std::vector<slot_ref> fresh_slots(std::size_t n, rank_number rank = 0) {
    std::vector<slot_ref> slots;
    for (std::size_t i = 0; i < n; ++i)
      slots.push_back({granted[rank]++, 7});
    return slots;
  }

  result<reserve_plan> begin(const keys_t& keys, rank_number rank = 0, std::int64_t now = 0, std::int64_t seconds = 10,
                             bool may_wait = true, keys_t parents = {}) {
    return state.begin_allocate({ns, rank, std::chrono::seconds(seconds), keys, std::move(parents)}, at(now), may_wait);
  }

  packed<location> allocate(const keys_t& keys, rank_number rank = 0, std::int64_t now = 0, std::int64_t seconds = 10,
                            keys_t parents = {}) {
    auto plan = begin(keys, rank, now, seconds, true, std::move(parents)).value();
    if (plan.what == reserve_plan::kind::answered)
      return plan.reply.results;
    REQUIRE(plan.what == reserve_plan::kind::needs_slots);
    return state.finish_reserve(plan.plan, fresh_slots(plan.slots_needed, rank), at(now)).value().results;
  }

  codes_t confirm(const std::vector<std::pair<key_digest, slot_number>>& pages, rank_number rank = 0,
                  std::int64_t now = 0) {
    confirm_request request{ns, rank, {}};
    for (const auto& [key, slot] : pages)
      request.pages.items.push_back({key, {slot, 0}});
    return codes(state.confirm(request, at(now)).value());
  }

  /// Allocates and confirms; the slots.
  slots_t save(const keys_t& keys, rank_number rank = 0, std::int64_t now = 0, keys_t parents = {}) {
    const auto given = allocate(keys, rank, now, 10, std::move(parents));
    std::vector<std::pair<key_digest, slot_number>> pages;
    slots_t slots;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      pages.emplace_back(keys[i], given[i].where.slot);
      slots.push_back(given[i].where.slot);
    }
    REQUIRE(confirm(pages, rank, now) == codes_t(keys.size(), errc::ok));
    return slots;
  }

  codes_t reclaim(const slots_t& slots, rank_number rank = 0, std::int64_t now = 0) {
    return codes(state.reclaim({ns, rank, slots}, at(now)).value());
  }

  codes_t exists(const keys_t& keys, rank_number rank = all_ranks) {
    return codes(state.exists({ns, rank, keys}).value());
  }

  packed<location> protect(const keys_t& keys, std::int64_t now = 0, std::int64_t ms = 10'000, rank_number rank = 0,
                           bool complete_only = false) {
    return state.protect({ns, rank, complete_only, std::chrono::milliseconds(ms), keys}, at(now)).value().locations;
  }

  codes_t erase(const keys_t& keys, rank_number rank = all_ranks, std::int64_t now = 0) {
    return codes(state.erase({ns, rank, keys}, at(now)).value());
  }

  std::uint32_t evict(std::uint32_t wanted, std::int64_t now = 0, rank_number rank = 0) {
    return state.evict({ns, rank, wanted}, at(now)).value().slots;
  }

  /// Slots that were given back since the last call: aborted ones, then released ones.
  slots_t given_back(rank_number rank = 0) {
    const auto out = one_registry::for_rank(state.take_outbox(), rank);
    slots_t slots;
    for (const auto* part : {&out.abort, &out.unused, &out.release, &out.suspect})
      for (const auto& where : part->slots)
        slots.push_back(where.slot);
    return slots;
  }

  /// The same, as those that have to rest, and those that need not.
  std::pair<slots_t, slots_t> rest_and_free(rank_number rank = 0) {
    const auto out = one_registry::for_rank(state.take_outbox(), rank);
    std::pair<slots_t, slots_t> slots;
    for (const auto* part : {&out.abort, &out.unused, &out.release, &out.suspect})
      for (const auto& where : part->slots)
        (part->rest ? slots.first : slots.second).push_back(where.slot);
    return slots;
  }

  void tick(std::int64_t now) {
    while (state.tick(at(now))) {
    }
  }

  key_reply look_up(const key_digest& key, std::int64_t now = 0) { return state.look_up({ns, key}, at(now)).value(); }
  bool knows(const key_digest& key) { return state.look_up({ns, key}, at(0)).has_value(); }

  namespace_info info() { return state.describe({ns}).value().namespaces.at(0); }

  namespace_spec spec;
  namespace_id ns;
  registry_state state;
  std::vector<slot_number> granted;
};

} // namespace troupe::test
