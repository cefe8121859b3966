#include "actors/client/copy_engine/encoding_choice.hpp"
#include "tests/catch.hpp"

#include <random>

namespace client_encoding_choice_test {

using namespace troupe;

namespace {

/// Saves `pages` in orders of at most `order`, of which one in `one_in` has no encoding (0: all have one). Returns how
/// many were copied twice.
std::size_t save(encoding_choice& choice, std::size_t pages, std::size_t order, std::size_t one_in) {
  std::size_t twice = 0;
  std::size_t number = 0;
  while (pages > 0) {
    const auto count = std::min(order, pages);
    const auto plan = choice.next(count);
    REQUIRE(plan.pages <= count);
    std::size_t encoded = 0;
    for (std::size_t i = 0; i < plan.pages; ++i)
      encoded += one_in == 0 || ++number % one_in != 0 ? 1 : 0;
    choice.note(plan, plan.pages, encoded);
    twice += plan.pages - encoded;
    pages -= count;
  }
  return twice;
}

} // namespace

TEST_CASE("encoding choice: a few pages are tried, then all are encoded", "[client][encoding]") {
  encoding_choice choice;
  CHECK_FALSE(choice.encodes());
  const auto first = choice.next(128);
  CHECK(first.pages == encoding_choice::pages_tried);
  choice.note(first, first.pages, first.pages);
  CHECK(choice.encodes());
  CHECK(choice.next(128).pages == 128);
}

TEST_CASE("encoding choice: orders of single pages are judged together", "[client][encoding]") {
  encoding_choice choice;
  for (std::size_t i = 0; i < encoding_choice::pages_tried; ++i) {
    CHECK_FALSE(choice.encodes());
    const auto plan = choice.next(1);
    CHECK(plan.pages == 1);
    choice.note(plan, 1, 1);
  }
  CHECK(choice.encodes());
}

TEST_CASE("encoding choice: bytes that have no encoding cost next to nothing", "[client][encoding]") {
  encoding_choice choice;
  const std::size_t order = GENERATE(1, 7, 128, 4096);
  constexpr std::size_t pages = 1'000'000;
  // The goal is 2 %; a page that is copied twice costs 1.77 as much at most.
  CHECK(save(choice, pages, order, 1) * 1000 < pages * 2);
}

TEST_CASE("encoding choice: a page now and then without an encoding does not end it", "[client][encoding]") {
  encoding_choice choice;
  CHECK(save(choice, 100'000, 128, 10) > 9'000);
  CHECK(choice.encodes());
  // One of three does not pay off.
  CHECK(save(choice, 100'000, 128, 3) < 1'000);
  CHECK_FALSE(choice.encodes());
}

TEST_CASE("encoding choice: after the longest rest, values that have an encoding are found", "[client][encoding]") {
  encoding_choice choice;
  save(choice, 1'000'000, 128, 1);
  REQUIRE_FALSE(choice.encodes());
  save(choice, encoding_choice::longest_rest + 128, 128, 0);
  CHECK(choice.encodes());
  // And the next rest is a short one again.
  save(choice, 2 * encoding_choice::pages_judged, 128, 1);
  REQUIRE_FALSE(choice.encodes());
  save(choice, encoding_choice::first_rest + 128, 128, 0);
  CHECK(choice.encodes());
}

TEST_CASE("encoding choice: orders side by side are not judged twice", "[client][encoding]") {
  encoding_choice choice;
  const auto first = choice.next(128);
  const auto second = choice.next(128);
  choice.note(first, first.pages, 0);
  // Begun before that judgement: the rest is not made longer by it, nor ended.
  choice.note(second, second.pages, GENERATE(0U, 8U));
  CHECK_FALSE(choice.encodes());
  CHECK(choice.next(encoding_choice::first_rest - 1).pages == 0);
  const auto third = choice.next(128);
  CHECK(third.pages == encoding_choice::pages_tried);
  choice.note(third, third.pages, third.pages);
  CHECK(choice.encodes());
}

TEST_CASE("encoding choice: pages that were not stored say nothing", "[client][encoding]") {
  encoding_choice choice;
  for (int i = 0; i < 100; ++i)
    choice.note(choice.next(8), 0, 0);
  CHECK_FALSE(choice.encodes());
  CHECK(choice.next(8).pages == 8);
}

} // namespace client_encoding_choice_test
