#include "actors/node/io_worker/slot_fences.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <vector>

namespace slot_fences_test {

using namespace troupe;
using ids = std::vector<slot_fences::fence_id>;

slot_fences::fence_id fence(slot_fences& x, const std::vector<slot_ref>& slots) {
  return x.fence(slots);
}

TEST_CASE("slot fences: fenced generations and older ones are rejected, newer ones and other slots are not",
          "[slot_fences]") {
  slot_fences fences(4);
  CHECK(fences.has(3));
  CHECK_FALSE(fences.has(4));
  CHECK_FALSE(fences.rejects({1, 1}));
  fence(fences, {{1, 5}});
  CHECK(fences.rejects({1, 4}));
  CHECK(fences.rejects({1, 5}));
  CHECK_FALSE(fences.rejects({1, 6}));
  CHECK_FALSE(fences.rejects({2, 5}));
  // A late fence of an old generation does not admit what was rejected.
  fence(fences, {{1, 3}});
  CHECK(fences.rejects({1, 5}));
}

TEST_CASE("slot fences: a fence without transfers is complete at once, also one of no slot", "[slot_fences]") {
  slot_fences fences(4);
  fences.begin_transfer(0);
  const auto a = fence(fences, {{1, 1}, {2, 1}});
  const auto b = fence(fences, {});
  const auto c = fence(fences, {{4, 1}});
  CHECK(fences.take_complete() == ids{a, b, c});
  CHECK(fences.take_complete().empty());
}

TEST_CASE("slot fences: a fence waits for every transfer of each of its slots", "[slot_fences]") {
  slot_fences fences(4);
  fences.begin_transfer(0);
  fences.begin_transfer(0);
  fences.begin_transfer(1);
  fences.begin_transfer(2);
  const auto id = fence(fences, {{0, 1}, {1, 1}, {3, 1}});
  fences.end_transfer(0);
  fences.end_transfer(1);
  fences.end_transfer(2);
  CHECK(fences.take_complete().empty());
  fences.end_transfer(0);
  CHECK(fences.take_complete() == ids{id});
}

TEST_CASE("slot fences: fences of one slot complete in their order, and only once", "[slot_fences]") {
  slot_fences fences(4);
  fences.begin_transfer(0);
  fences.begin_transfer(1);
  const auto a = fence(fences, {{0, 1}, {1, 1}});
  const auto b = fence(fences, {{0, 2}});
  const auto c = fence(fences, {{0, 3}, {0, 3}});
  fences.end_transfer(0);
  CHECK(fences.take_complete() == ids{b, c});
  fences.end_transfer(1);
  CHECK(fences.take_complete() == ids{a});
  // What comes later has nothing to wait for.
  fences.begin_transfer(0);
  fences.end_transfer(0);
  CHECK(fences.take_complete().empty());
  CHECK(fence(fences, {{0, 4}}) == c + 1);
  CHECK(fences.take_complete() == ids{c + 1});
}

} // namespace slot_fences_test
