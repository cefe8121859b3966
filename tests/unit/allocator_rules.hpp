#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// What tests of an allocator's rules have in common.

namespace troupe::test::allocator_rules {

using slots_t = std::vector<slot_ref>;

inline timestamp at(std::int64_t milliseconds) {
  return timestamp{std::chrono::seconds(100) + std::chrono::milliseconds(milliseconds)};
}

inline void check_sum(const allocator_state& state) {
  const auto s = state.stats();
  REQUIRE(s.free + s.reserved + s.live + s.quarantined == s.total);
  REQUIRE(state.check_invariants() == "");
}

/// The slots of the only answer.
inline slots_t answer(allocator_state& state) {
  auto out = state.take_outbox();
  REQUIRE(out.answers.size() == 1);
  return out.answers[0].reply.slots.items;
}

/// Removes one to six slots, as far as there are any.
inline slots_t some_of(slots_t& from, std::mt19937& random) {
  std::shuffle(from.begin(), from.end(), random);
  const auto n = std::min<std::size_t>(from.size(), 1 + random() % 6);
  slots_t out(from.end() - static_cast<std::ptrdiff_t>(n), from.end());
  from.resize(from.size() - n);
  return out;
}

} // namespace troupe::test::allocator_rules
