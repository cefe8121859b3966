#include "io/page_checksum.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace io_page_checksum_test {

using namespace troupe;
using namespace troupe::io;
using troupe::test::fill_random;

namespace {

using bytes = std::vector<std::byte>;

bytes random_bytes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  bytes out(n);
  fill_random(out, random);
  return out;
}

/// Computes the checksum as it is defined, word by word.
page_checksum sum_of_words(std::span<const std::byte> payload, std::uint64_t first_word = 0) {
  page_checksum sum;
  for (std::size_t at = 0; at < payload.size(); at += checksum_word_bytes) {
    std::array<std::uint64_t, 2> word{};
    std::memcpy(word.data(), payload.data() + at, std::min<std::size_t>(checksum_word_bytes, payload.size() - at));
    sum += checksum_of_word(first_word + at / checksum_word_bytes, word[0], word[1]);
  }
  return sum;
}

/// Contents that pages have, and that are hard on a sum of products: zeroes above all.
std::vector<std::pair<const char*, bytes>> contents(std::size_t n) {
  auto sparse = random_bytes(n, 5);
  for (std::size_t i = 0; i < n; ++i)
    if (i % 8 != 3)
      sparse[i] = {};
  bytes repeated = random_bytes(n, 6);
  for (std::size_t i = checksum_word_bytes; i < n; ++i)
    repeated[i] = repeated[i - checksum_word_bytes];
  return {{"random", random_bytes(n, 4)},
          {"zeroes", bytes(n)},
          {"ones", bytes(n, std::byte{0xff})},
          {"sparse", sparse},
          {"one word again and again", repeated}};
}

bytes of_text(std::string_view text) {
  bytes out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

} // namespace

TEST_CASE("page checksum: the checksum of a page matches its documentation", "[io][checksum]") {
  // Numbers of a program that is not this one, made from docs/page-format.md: pages outlive builds, and a GPU's code is
  // another implementation.
  CHECK(checksum_of({}) == page_checksum{0, 0});
  CHECK(checksum_of(bytes(1)) == page_checksum{0x132db85df545f67e, 0x047fef44c9529e4f});
  CHECK(checksum_of(of_text("troupe")) == page_checksum{0x2259c2fb8974832e, 0x05f0773ad96ea293});
  bytes counted(100);
  for (std::size_t i = 0; i < counted.size(); ++i)
    counted[i] = static_cast<std::byte>(i);
  CHECK(checksum_of(counted) == page_checksum{0x5bba01215feab392, 0x15b8ba2cdf7c7b0b});
  CHECK(checksum_of(bytes(4096)) == page_checksum{0xc6537700bd923c83, 0x90e2a45309d5ea33});
  bytes page(65'536);
  for (std::size_t i = 0; i < page.size(); ++i)
    page[i] = static_cast<std::byte>(i % 251);
  CHECK(checksum_of(page) == page_checksum{0x2b961f35fc1e3793, 0x5b24915f73269e50});
  CHECK(checksum_of(bytes(1000, std::byte{0xff})) == page_checksum{0x1c443e8efe08e2d0, 0xb3ea4b0948c1b681});
}

TEST_CASE("page checksum: a checksum depends on its words only, for any length and alignment", "[io][checksum]") {
  const auto memory = random_bytes(9000, 1);
  for (std::size_t n = 0; n <= 70; ++n)
    for (std::size_t shift = 0; shift < 17; ++shift)
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, ~std::uint64_t{0} - 3}) {
        const auto payload = std::span(memory).subspan(shift, n);
        if (checksum_of(payload, first) != sum_of_words(payload, first))
          FAIL(n << " bytes at " << shift << ", from word " << first);
      }
  for (std::size_t n = 71; n < 8900; n += 1 + n / 16)
    CHECK(checksum_of(std::span(memory).subspan(3, n), n) == sum_of_words(std::span(memory).subspan(3, n), n));
}

TEST_CASE("page checksum: a copy with its checksum is exact, for any length and alignment", "[io][checksum]") {
  const auto memory = random_bytes(300000, 2);
  bytes copied(300200);
  const auto check = [&](std::size_t n, std::size_t from, std::size_t to, std::uint64_t first) {
    std::fill(copied.begin(), copied.end(), std::byte{0x5a});
    const auto payload = std::span(memory).subspan(from, n);
    const bool right =
        copy_with_checksum(copied.data() + to, payload, first) == sum_of_words(payload, first) &&
        std::equal(payload.begin(), payload.end(), copied.data() + to) &&
        std::all_of(copied.data(), copied.data() + to, [](auto x) { return x == std::byte{0x5a}; }) &&
        std::all_of(copied.data() + to + n, copied.data() + copied.size(), [](auto x) { return x == std::byte{0x5a}; });
    if (!right)
      FAIL(n << " bytes from " << from << " to " << to << ", from word " << first);
  };
  for (std::size_t n = 0; n <= 200; n += 1 + n / 20)
    for (const std::size_t to : {0, 1, 16, 33})
      check(n, 3, to, 5);
  // Those that are stored past the caches, and those that just are not.
  for (const std::size_t n : {65535, 65536, 65537, 65552, 131072, 262144 + 48, 262144 + 17})
    for (const std::size_t to : {0, 16, 32, 48, 8, 1})
      check(n, to / 2, to, n);
}

TEST_CASE("page checksum: bytes after the last one do not count", "[io][checksum]") {
  auto memory = random_bytes(200, 2);
  for (std::size_t n = 0; n <= 70; ++n) {
    const auto before = checksum_of(std::span(memory).first(n));
    std::fill(memory.begin() + static_cast<std::ptrdiff_t>(n), memory.end(), static_cast<std::byte>(n));
    CHECK(checksum_of(std::span(memory).first(n)) == before);
    memory = random_bytes(memory.size(), n);
  }
}

TEST_CASE("page checksum: checksums of parts combine to that of the whole page, in any order", "[io][checksum]") {
  const auto seed = GENERATE(range(1U, 20U));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto page = random_bytes(1 + random() % 6000, seed);
  const auto words = (page.size() + checksum_word_bytes - 1) / checksum_word_bytes;
  std::vector<std::size_t> cuts{0, words};
  for (auto n = random() % 30; n > 0; --n)
    cuts.push_back(random() % (words + 1)); // also twice: an empty part
  std::ranges::sort(cuts);
  std::vector<std::size_t> order(cuts.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  page_checksum sum;
  for (const auto i : order) {
    const auto begin = std::min<std::size_t>(cuts[i] * checksum_word_bytes, page.size());
    const auto end = std::min<std::size_t>(cuts[i + 1] * checksum_word_bytes, page.size());
    sum += checksum_of(std::span(page).subspan(begin, end - begin), cuts[i]);
  }
  CHECK(sum == checksum_of(page));
  // Word by word, backwards, as the other end of it.
  page_checksum single;
  for (auto word = words; word-- > 0;) {
    const auto begin = word * checksum_word_bytes;
    single += checksum_of(std::span(page).subspan(begin, std::min<std::size_t>(16, page.size() - begin)), word);
  }
  CHECK(single == sum);
}

TEST_CASE("page checksum: every single bit of a page changes both sums of its checksum", "[io][checksum]") {
  for (auto [name, page] : contents(4099)) {
    INFO(name);
    const auto sound = checksum_of(page);
    std::size_t unseen = 0;
    std::size_t half_seen = 0;
    for (auto& b : page)
      for (unsigned bit = 0; bit < 8; ++bit) {
        b ^= std::byte{1} << bit;
        const auto found = checksum_of(page);
        unseen += found == sound ? 1 : 0;
        half_seen += (found.low == sound.low) != (found.high == sound.high) ? 1 : 0;
        b ^= std::byte{1} << bit;
      }
    CHECK(unseen == 0);
    // Only where a neighbour happens to be zero after mixing: once in 2^32.
    CHECK(half_seen == 0);
    CHECK(checksum_of(page) == sound);
  }
}

TEST_CASE("page checksum: swapped words change the checksum", "[io][checksum]") {
  auto page = random_bytes(4096, 8);
  const auto sound = checksum_of(page);
  const auto count = page.size() / checksum_word_bytes;
  const auto swap_pieces = [&](std::size_t a, std::size_t b, std::size_t n) {
    std::swap_ranges(page.begin() + static_cast<std::ptrdiff_t>(a), page.begin() + static_cast<std::ptrdiff_t>(a + n),
                     page.begin() + static_cast<std::ptrdiff_t>(b));
  };
  std::size_t unseen = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = i + 1; j < count; ++j) {
      swap_pieces(i * 16, j * 16, 16);
      unseen += checksum_of(page) == sound ? 1 : 0;
      swap_pieces(i * 16, j * 16, 16);
    }
  // Quarters and halves of words as well: of one word, and of neighbours.
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{8}})
    for (std::size_t at = 0; at + 2 * n <= page.size(); at += n) {
      if (std::equal(page.begin() + static_cast<std::ptrdiff_t>(at), page.begin() + static_cast<std::ptrdiff_t>(at + n),
                     page.begin() + static_cast<std::ptrdiff_t>(at + n)))
        continue;
      swap_pieces(at, at + n, n);
      unseen += checksum_of(page) == sound ? 1 : 0;
      swap_pieces(at, at + n, n);
    }
  CHECK(unseen == 0);
  CHECK(checksum_of(page) == sound);
}

TEST_CASE("page checksum: typical storage corruption changes the checksum", "[io][checksum]") {
  constexpr std::size_t sector = 512;
  constexpr std::size_t block = 4096;
  for (const auto& [name, page] : contents(16 * block)) {
    INFO(name);
    const auto sound = checksum_of(page);
    const auto span = std::span(page);
    std::size_t unseen = 0;
    const auto look = [&](const bytes& damaged) { unseen += damaged != page && checksum_of(damaged) == sound ? 1 : 0; };
    // The tail was never written: it has zeroes, earlier contents, or is missing.
    const auto older = random_bytes(page.size(), 99);
    for (std::size_t cut = 0; cut < page.size(); cut += sector) {
      auto zeroed = page;
      std::fill(zeroed.begin() + static_cast<std::ptrdiff_t>(cut), zeroed.end(), std::byte{0});
      look(zeroed);
      auto torn = page;
      std::copy(older.begin() + static_cast<std::ptrdiff_t>(cut), older.end(),
                torn.begin() + static_cast<std::ptrdiff_t>(cut));
      look(torn);
      // Shorter by whole words: even zeroes that are missing are seen.
      unseen += checksum_of(span.first(cut)) == sound ? 1 : 0;
    }
    for (std::size_t a = 0; a < page.size(); a += block) {
      auto zeroed = page;
      std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(a), block, std::byte{0});
      look(zeroed);
      for (std::size_t b = 0; b < page.size(); b += block) {
        auto copied = page;
        std::copy_n(page.begin() + static_cast<std::ptrdiff_t>(b), block,
                    copied.begin() + static_cast<std::ptrdiff_t>(a));
        look(copied);
        auto swapped = page;
        std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(a),
                         swapped.begin() + static_cast<std::ptrdiff_t>(a + block),
                         swapped.begin() + static_cast<std::ptrdiff_t>(b));
        look(swapped);
      }
      // All that follows, one block late.
      auto moved = page;
      std::rotate(moved.begin() + static_cast<std::ptrdiff_t>(a), moved.end() - block, moved.end());
      look(moved);
    }
    CHECK(unseen == 0);
  }
}

TEST_CASE("page checksum: words and pieces at another position have another checksum", "[io][checksum]") {
  // Also of zeroes: a page of them cannot be taken for one of another length or place.
  const bytes zeroes(64);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (std::uint64_t word = 0; word < 20'000; ++word) {
    const auto sum = checksum_of(zeroes, word);
    seen.emplace_back(sum.low, sum.high);
  }
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

} // namespace io_page_checksum_test
