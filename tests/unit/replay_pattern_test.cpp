#include "codec/page_codec.hpp"
#include "tests/catch.hpp"
#include "workload/replay/pattern.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace replay_pattern_test {

namespace {

using namespace troupe;
using namespace troupe::replay;
using bytes = std::vector<std::byte>;

bytes page_of(const key_digest& key, rank_number rank, std::size_t size) {
  bytes out(size);
  page_pattern(key, rank).fill(out, 0);
  return out;
}

} // namespace

TEST_CASE("replay pattern: words of a page follow the formula", "[replay]") {
  const auto values = GENERATE(page_values::random, page_values::bf16);
  bytes page(4096);
  page_pattern({1, 2}, 3, values).fill(page, 0);
  const auto word = [&](std::size_t i) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < 8; ++b)
      value |= std::to_integer<std::uint64_t>(page[8 * i + b]) << (8 * b);
    return value;
  };
  // Of elements, the lowest ten bits of each word are as in the formula.
  const auto modulus = values == page_values::random ? 0 : std::uint64_t{1024};
  const auto part = [&](std::uint64_t x) { return modulus == 0 ? x : x % modulus; };
  const auto step = part(word(1) - word(0));
  CHECK(step % 2 == 1);
  for (std::size_t i = 0; i < 512; ++i) {
    REQUIRE(part(word(i)) == part(word(0) + i * step));
    for (unsigned lane = 0; modulus != 0 && lane < 64; lane += 16) {
      const auto exponent = word(i) >> (lane + 7) & 0xffU;
      REQUIRE(exponent >= 120);
      REQUIRE(exponent <= 127);
    }
  }
}

TEST_CASE("replay pattern: pages of elements have an encoding, and others have none", "[replay]") {
  for (const auto values : {page_values::random, page_values::bf16}) {
    bytes page(65536);
    page_pattern({5, 6}, 1, values).fill(page, 0);
    bytes encoded(codec::stored_bytes(page_encoding::bf16, page.size()));
    const auto fits = codec::encode(page, encoded);
    REQUIRE(fits);
    CHECK((*fits == codec::outcome::encoded) == (values == page_values::bf16));
  }
}

TEST_CASE("replay pattern: any range of a page is filled and compared alike, at any alignment", "[replay]") {
  const auto seed = GENERATE(range(1, 4));
  INFO("seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const page_pattern pattern({random(), random()}, 1, GENERATE(page_values::random, page_values::bf16));
  bytes page(3000);
  for (std::size_t i = 0; i < page.size(); ++i)
    page[i] = pattern.at(i);
  bytes whole(page.size());
  pattern.fill(whole, 0);
  REQUIRE(whole == page);
  for (int round = 0; round < 2000; ++round) {
    const auto offset = random() % page.size();
    const auto size = random() % std::min<std::size_t>(page.size() - offset + 1, 300);
    const auto shift = random() % 64;
    bytes buffer(size + 128, std::byte{0x77});
    const std::span<std::byte> target(buffer.data() + shift, size);
    pattern.fill(target, offset);
    REQUIRE(std::equal(target.begin(), target.end(), page.begin() + static_cast<std::ptrdiff_t>(offset)));
    REQUIRE(std::count(buffer.begin(), buffer.end(), std::byte{0x77}) >= static_cast<std::ptrdiff_t>(128));
    REQUIRE(buffer[shift + size] == std::byte{0x77});
    REQUIRE(!pattern.compare(target, offset).has_value());
    if (size == 0)
      continue;
    const auto at = random() % size;
    target[at] ^= static_cast<std::byte>(1U << (random() % 8));
    REQUIRE(pattern.compare(target, offset) == offset + at);
  }
}

TEST_CASE("replay pattern: every flipped bit of a page is found at its position", "[replay]") {
  const auto values = GENERATE(page_values::random, page_values::bf16);
  const page_pattern pattern({0x1234, 0x5678}, 0, values);
  bytes page(1031);
  pattern.fill(page, 0);
  REQUIRE(!pattern.compare(page, 0).has_value());
  for (std::size_t i = 0; i < page.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      page[i] ^= static_cast<std::byte>(1U << bit);
      REQUIRE(pattern.compare(page, 0) == i);
      page[i] ^= static_cast<std::byte>(1U << bit);
    }
  }
  // The first of several.
  page[1000] ^= std::byte{1};
  page[77] ^= std::byte{1};
  CHECK(pattern.compare(page, 0) == 77U);
}

TEST_CASE("replay pattern: no other key, rank, position or constant passes, not even for one word", "[replay]") {
  std::vector<std::pair<key_digest, rank_number>> names;
  for (std::uint64_t i = 0; i < 40; ++i)
    for (rank_number rank = 0; rank < 4; ++rank)
      for (const auto& key : {key_digest{i, 0}, key_digest{0, i + 1}, key_digest{i + 1, i + 1}})
        names.emplace_back(key, rank);
  constexpr std::size_t size = 512;
  std::vector<bytes> pages;
  for (const auto& [key, rank] : names)
    pages.push_back(page_of(key, rank, size));
  std::size_t passed = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const page_pattern pattern(names[i].first, names[i].second);
    for (std::size_t j = 0; j < names.size(); ++j)
      for (std::size_t offset = 0; offset < size && i != j; offset += 8)
        passed += !pattern.compare(std::span(pages[j]).subspan(offset, 8), offset).has_value() ? 1 : 0;
    // The right page, shifted.
    for (std::size_t shift = 1; shift + 8 <= size; ++shift)
      passed += !pattern.compare(std::span(pages[i]).subspan(shift, 8), 0).has_value() ? 1 : 0;
    for (const auto constant : {0x00, 0xff, 0xdb, 0xa5})
      passed += !pattern.compare(bytes(64, static_cast<std::byte>(constant)), 0).has_value() ? 1 : 0;
  }
  CHECK(passed == 0);
}

TEST_CASE("replay pattern: an empty range always matches", "[replay]") {
  const page_pattern pattern({1, 1}, 1);
  pattern.fill({}, 12345);
  CHECK(!pattern.compare({}, 12345).has_value());
}

} // namespace replay_pattern_test
