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
    const auto tried = choice.next(count);
    REQUIRE(tried <= count);
    std::size_t encoded = 0;
    for (std::size_t i = 0; i < tried; ++i)
      encoded += one_in == 0 || ++number % one_in != 0 ? 1 : 0;
    choice.note(tried, encoded);
    twice += tried - encoded;
    pages -= count;
  }
  return twice;
}

} // namespace

TEST_CASE("encoding choice: a few pages are tried, then all are encoded", "[client][encoding]") {
  encoding_choice choice;
  CHECK_FALSE(choice.encodes());
  CHECK(choice.next(128) == encoding_choice::pages_tried);
  choice.note(encoding_choice::pages_tried, encoding_choice::pages_tried);
  CHECK(choice.encodes());
  CHECK(choice.next(128) == 128);
}

TEST_CASE("encoding choice: orders of single pages are judged together", "[client][encoding]") {
  encoding_choice choice;
  for (std::size_t i = 0; i < encoding_choice::pages_tried; ++i) {
    CHECK_FALSE(choice.encodes());
    CHECK(choice.next(1) == 1);
    choice.note(1, 1);
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

} // namespace client_encoding_choice_test
