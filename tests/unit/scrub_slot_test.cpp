#include "actors/node/io_worker/scrub_slot.hpp"
#include "tests/catch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

namespace scrub_slot_test {

using namespace troupe;

constexpr timestamp t0{std::chrono::hours(1)};
const page_ref page_a{key_digest{1, 1}, {5, 2}};
const page_ref page_b{key_digest{2, 2}, {6, 3}};

TEST_CASE("scrub slot: a page is read into the memory of the scrub", "[scrub_slot]") {
  std::array<std::byte, 64> memory{};
  scrub_slot slot;
  slot.set_memory(memory, 9);
  const auto request = slot.read(page_a, 17, t0);
  CHECK(request.op == io::operation::read);
  CHECK(request.where == page_a.where);
  CHECK(request.data == memory.data());
  CHECK(request.length == memory.size());
  CHECK(request.buffer == 9);
  CHECK(request.tag == 17);
  CHECK(request.deadline == t0);
  CHECK(slot.page() == page_a);
}

TEST_CASE("scrub slot: a page is offered once, when its own read has succeeded", "[scrub_slot]") {
  scrub_slot slot;
  // No read is in progress, whatever the tag.
  CHECK_FALSE(slot.ended(0, errc::ok));
  CHECK(slot.take_check() == std::nullopt);
  slot.read(page_a, 17, t0);
  CHECK_FALSE(slot.ended(16, errc::ok));
  CHECK(slot.take_check() == std::nullopt);
  CHECK(slot.ended(17, errc::ok));
  CHECK(slot.take_check() == page_a);
  CHECK(slot.take_check() == std::nullopt);
  CHECK_FALSE(slot.ended(17, errc::ok));
  CHECK(slot.take_check() == std::nullopt);
}

TEST_CASE("scrub slot: a page whose read has failed is not verified", "[scrub_slot]") {
  scrub_slot slot;
  slot.read(page_a, 17, t0);
  CHECK(slot.ended(17, errc::io_error));
  CHECK(slot.take_check() == std::nullopt);
  CHECK(slot.page() == page_a);
  slot.read(page_b, 18, t0);
  CHECK(slot.ended(18, errc::ok));
  CHECK(slot.take_check() == page_b);
}

} // namespace scrub_slot_test
