#include "codec/page_codec.hpp"
#include "io/page_checksum.hpp"
#include "tests/catch.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>

namespace codec_page_test {

using namespace troupe;
using namespace troupe::codec;
using workload::make_values;
using workload::value_kind;

namespace {

using bytes = std::vector<std::byte>;

/// A buffer of exactly so many bytes, at an odd address if asked for: a sanitizer sees an access beyond it.
class exact {
public:
  explicit exact(std::size_t size, std::size_t shift = 0)
      : memory_(std::make_unique<std::byte[]>(size + shift)), size_(size), shift_(shift) {}
  explicit exact(const bytes& from, std::size_t shift = 0) : exact(from.size(), shift) {
    std::ranges::copy(from, span().begin());
  }

  std::span<std::byte> span() const { return {memory_.get() + shift_, size_}; }

private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_;
  std::size_t shift_;
};

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

page_header header_of(std::span<const std::byte> encoded) {
  page_header out;
  std::memcpy(&out, encoded.data(), sizeof out);
  return out;
}

/// The encoding, by the plain implementation; empty if the payload does not fit.
bytes encoded(const bytes& payload) {
  bytes out(encoded_bytes(payload.size()).value());
  if (encode(payload, out, instructions::plain).value() == outcome::does_not_fit)
    return {};
  return out;
}

/// All implementations write the bytes of the plain one, and read them back.
void check_all(const bytes& payload, std::size_t shift = 0) {
  const auto expected = encoded(payload);
  const exact from(payload, shift);
  for (const auto with : available_instructions()) {
    INFO(to_string(with));
    const exact page(encoded_bytes(payload.size()).value(), shift);
    std::ranges::fill(page.span(), std::byte{0xa5});
    const auto done = encode(from.span(), page.span(), with);
    REQUIRE(done);
    REQUIRE((*done == outcome::encoded) == !expected.empty());
    if (expected.empty())
      continue;
    REQUIRE(equal(page.span(), expected));
    const exact back(payload.size(), shift);
    REQUIRE(decode(page.span(), back.span(), with));
    REQUIRE(equal(back.span(), payload));
  }
}

/// A payload whose exponents are all 120, but for so many of the first elements, which are 60 below.
bytes with_escapes(std::size_t elements, std::size_t escapes, std::size_t from = 0) {
  bytes out(elements * 2);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto exponent = i >= from && i < from + escapes ? 60U : 120U;
    const auto element = static_cast<std::uint16_t>(exponent << 7U | (i & 0x7fU));
    std::memcpy(out.data() + i * 2, &element, 2);
  }
  return out;
}

std::uint32_t record_at(const bytes& page, std::uint64_t payload_bytes, std::size_t tile) {
  std::uint32_t out = 0;
  std::memcpy(&out, page.data() + layout_of(payload_bytes).records + tile * record_bytes, sizeof out);
  return out;
}

void set_record(bytes& page, std::uint64_t payload_bytes, std::size_t tile, std::uint32_t record) {
  std::memcpy(page.data() + layout_of(payload_bytes).records + tile * record_bytes, &record, sizeof record);
}

/// All implementations agree on whether a page can be decoded, and on the payload. Returns whether it can.
bool decodes(const bytes& page, std::size_t payload_bytes) {
  const exact from(page);
  const exact plain(payload_bytes);
  const auto sound = decode(from.span(), plain.span(), instructions::plain);
  if (!sound) {
    REQUIRE(sound.error().code == errc::corrupt);
    REQUIRE_FALSE(sound.error().text.empty());
  }
  for (const auto with : available_instructions()) {
    INFO(to_string(with));
    const exact back(payload_bytes);
    REQUIRE(decode(from.span(), back.span(), with).has_value() == sound.has_value());
    if (sound)
      REQUIRE(equal(back.span(), plain.span()));
  }
  return sound.has_value();
}

/// Gives a page of random bytes records with as many escapes as there are among its codes, which become fewer.
void make_decodable(bytes& page, std::uint64_t payload_bytes, std::mt19937_64& random) {
  const auto layout = layout_of(payload_bytes);
  std::uint32_t end = 0;
  for (std::size_t tile = 0; tile < layout.tiles; ++tile) {
    for (std::size_t i = 0; i < tile_code_bytes; ++i) {
      auto& pair = page[layout.codes + tile * tile_code_bytes + i];
      for (const auto code : {std::byte{0x0f}, std::byte{0xf0}})
        if ((pair & code) == code) {
          if (random() % 4 == 0)
            ++end;
          else
            pair ^= code & std::byte{0x66};
        }
    }
    set_record(page, payload_bytes, tile, (static_cast<std::uint32_t>(random()) & 0x1ffU) | end << 9U);
  }
  page_header header;
  header.payload_bytes = payload_bytes;
  header.escapes = end;
  std::memcpy(page.data(), &header, sizeof header);
}

} // namespace

TEST_CASE("codec: an encoded payload is 0.767 of the payload, whatever is in it", "[codec]") {
  CHECK(encoded_bytes(2U << 20U).value() == 1'608'768);
  CHECK(encoded_bytes(2U << 20U).value() <= 393 * 4096);
  CHECK(encoded_bytes(256U << 10U).value() == 201'152);
  CHECK(encoded_bytes(64U << 10U).value() == 50'368);
  CHECK(encoded_bytes(18'432).value() == 14'208);
  // Tiles are whole: short payloads and tails cost more.
  CHECK(encoded_bytes(2048).value() == 1664);
  CHECK(encoded_bytes(2 * 2048).value() == 3264);
  CHECK_FALSE(encoded_bytes(2048 + 2));
  CHECK(encoded_bytes(max_payload_bytes));
  for (const std::uint64_t refused : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2049}, std::uint64_t{2},
                                      std::uint64_t{1664}, max_payload_bytes + 2, ~std::uint64_t{1}}) {
    INFO(refused);
    REQUIRE_FALSE(encoded_bytes(refused));
    CHECK(encoded_bytes(refused).error().code == errc::invalid_argument);
  }
}

TEST_CASE("codec: every kind of values comes back bit by bit, from every implementation", "[codec]") {
  const auto seed = GENERATE(1U, 2U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (const auto kind : workload::all_value_kinds()) {
    INFO(to_string(kind));
    const auto payload = make_values(kind, 64 * tile_elements, random);
    CHECK(encoded(payload).empty() == (kind == value_kind::random_bits));
    check_all(payload);
  }
}

TEST_CASE("codec: payloads of any length come back, at any address", "[codec]") {
  const auto seed = GENERATE(3U, 4U, 5U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  const auto kinds = workload::all_value_kinds();
  for (int i = 0; i < 40; ++i) {
    const auto kind = kinds[random() % kinds.size()];
    const auto elements = 3000 + random() % 8000;
    INFO(to_string(kind) << ", " << elements << " elements");
    if (encoded_bytes(elements * 2))
      check_all(make_values(kind, elements, random), random() % 64);
  }
}

TEST_CASE("codec: all values of BF16 come back", "[codec]") {
  // Each tile has the 1024 elements of four exponents of one sign, so all patterns are in some tile.
  bytes payload(65'536 * 2);
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    const auto element = static_cast<std::uint16_t>((i & 0x8000U) | (i & 0x7fffU));
    std::memcpy(payload.data() + i * 2, &element, 2);
  }
  CHECK_FALSE(encoded(payload).empty());
  check_all(payload);
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    const auto element = static_cast<std::uint16_t>(i * 40'503U);
    std::memcpy(payload.data() + i * 2, &element, 2);
  }
  CHECK(encoded(payload).empty());
}

TEST_CASE("codec: the format does not change", "[codec]") {
  bytes payload(9 * tile_bytes + 6);
  for (std::uint32_t i = 0; i < payload.size() / 2; ++i) {
    const auto x = i * 2'654'435'761U >> 8U;
    const auto exponent = i % 5000 > 4000 && i % 3 == 0 ? 0 : i % 61 == 0 ? 200 - i % 128 : 126 - i / 1024 - x % 11;
    const auto element = static_cast<std::uint16_t>((x & 0x807fU) | exponent << 7U);
    std::memcpy(payload.data() + i * 2, &element, 2);
  }
  const auto page = encoded(payload);
  REQUIRE_FALSE(page.empty());
  const auto sum = io::checksum_of(page);
  INFO("0x" << std::hex << sum.low << " 0x" << sum.high);
  CHECK(sum.low == 0x26a3337292a5f4a3);
  CHECK(sum.high == 0x2ca44156d1e82212);
  check_all(payload);
}

TEST_CASE("codec: nothing that a buffer held before remains in an encoded page", "[codec]") {
  std::mt19937_64 random{6};
  const auto payload = make_values(value_kind::spread_1, 5 * tile_elements + 10, random);
  const auto expected = encoded(payload);
  for (const auto with : available_instructions())
    for (const auto poison : {std::byte{0xff}, std::byte{0x11}}) {
      bytes page(expected.size(), poison);
      REQUIRE(encode(payload, page, with).value() == outcome::encoded);
      CHECK(page == expected);
    }
  const auto layout = layout_of(payload.size());
  const auto unused = static_cast<std::ptrdiff_t>(layout.escapes + header_of(expected).escapes);
  CHECK(std::all_of(expected.begin() + unused, expected.end(), [](std::byte x) { return x == std::byte{0}; }));
}

TEST_CASE("codec: a page fits as long as its list of escapes has room", "[codec]") {
  constexpr std::size_t tiles = 8;
  constexpr std::size_t room = tiles * escapes_per_tile;
  bytes full;
  for (std::size_t i = 0; i < tiles; ++i) {
    // Two tiles use up the list, one of them with as many as a tile may have.
    const auto tile = with_escapes(tile_elements, i == 1   ? max_tile_escapes
                                                  : i == 5 ? room - max_tile_escapes
                                                           : std::size_t{0});
    full.insert(full.end(), tile.begin(), tile.end());
  }
  REQUIRE(header_of(encoded(full)).escapes == room);
  check_all(full);
  // Escapes of the last tile that are neither recorded nor in the list, which ends there.
  auto more_codes = encoded(full);
  const auto last = layout_of(full.size()).codes + (tiles - 1) * tile_code_bytes;
  std::fill_n(more_codes.begin() + static_cast<std::ptrdiff_t>(last), tile_code_bytes, std::byte{0xff});
  CHECK_FALSE(decodes(more_codes, full.size()));
  auto one_more = full;
  const auto tile = with_escapes(tile_elements, 1, 900);
  std::ranges::copy(tile, one_more.begin() + 7 * tile_bytes);
  CHECK(encoded(one_more).empty());
  check_all(one_more);
}

TEST_CASE("codec: a tile has at most 128 escapes", "[codec]") {
  for (const std::size_t escapes : {8U, 9U, 127U, 128U, 129U, 511U, 512U}) {
    INFO(escapes);
    for (const std::size_t from : {std::size_t{0}, std::size_t{500}, tile_elements - escapes}) {
      auto payload = with_escapes(8 * tile_elements, escapes, 3 * tile_elements + from);
      CHECK(encoded(payload).empty() == escapes > max_tile_escapes);
      check_all(payload);
    }
  }
}

TEST_CASE("codec: the base is the best of those that are tried", "[codec]") {
  const auto seed = GENERATE(7U, 8U, 9U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (const auto kind : {value_kind::spread_2, value_kind::outlier_channels, value_kind::infinities,
                          value_kind::half_zeroes, value_kind::extremes}) {
    INFO(to_string(kind));
    const auto payload = make_values(kind, 16 * tile_elements, random);
    const auto page = encoded(payload);
    REQUIRE_FALSE(page.empty());
    for (std::size_t tile = 0; tile < 16; ++tile) {
      std::array<std::uint32_t, 256> counts{};
      for (std::size_t i = 0; i < tile_elements; ++i) {
        std::uint16_t element = 0;
        std::memcpy(&element, payload.data() + (tile * tile_elements + i) * 2, 2);
        ++counts[element >> 7U & 0xffU];
      }
      const auto escapes_of = [&](std::uint32_t base) {
        const auto window = window_at(base, counts[0] != 0);
        auto inside = window.has_zero_code ? counts[0] : 0;
        for (auto e = window.lowest(); e <= base; ++e)
          inside += counts[e];
        return tile_elements - inside;
      };
      std::uint32_t best = tile_elements;
      for (std::uint32_t base = 0; base < 256; ++base)
        best = std::min(best, escapes_of(base));
      const auto record = record_at(page, payload.size(), tile);
      const auto chosen = escapes_of(window_of(record).base);
      CHECK(chosen <= std::max(best, few_escapes));
      const auto begin = tile == 0 ? 0 : escapes_end_of(record_at(page, payload.size(), tile - 1));
      CHECK(escapes_end_of(record) - begin == chosen);
      CHECK(window_of(record) == window_at(window_of(record).base, counts[0] != 0));
    }
  }
}

TEST_CASE("codec: the base is chosen by the format's rules", "[codec]") {
  using counted = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  const auto choose = [](const counted& exponents) {
    // One tile of the kind; the others are zero and leave it the room of the list.
    bytes payload(8 * tile_bytes);
    std::size_t at = 0;
    for (const auto& [exponent, count] : exponents)
      for (std::uint32_t i = 0; i < count; ++i, ++at) {
        const auto element = static_cast<std::uint16_t>(exponent << 7U);
        std::memcpy(payload.data() + at * 2, &element, 2);
      }
    REQUIRE(at == tile_elements);
    check_all(payload);
    const auto page = encoded(payload);
    const auto record = page.empty() ? 0 : record_at(page, payload.size(), 0);
    return std::pair{window_of(record), escapes_end_of(record)};
  };
  const auto is = [](std::uint32_t base, bool has_zero_code, std::uint32_t escapes) {
    return std::pair{tile_window{base, has_zero_code}, escapes};
  };
  // The largest exponent, though another base has fewer escapes: 8 are few.
  CHECK(choose({{140, 1}, {130, 1015}, {120, 8}}) == is(140, false, 8));
  CHECK(choose({{140, 1}, {130, 1014}, {120, 9}}) == is(130, false, 1));
  // Of equal ones the first.
  CHECK(choose({{140, 9}, {130, 1006}, {120, 9}}) == is(140, false, 9));
  // The sixteenth base is the last one that is tried.
  counted singles;
  for (std::uint32_t i = 0; i < 15; ++i)
    singles.emplace_back(254 - i, 1);
  singles.emplace_back(100, 1009);
  CHECK(choose(singles) == is(100, false, 15));
  singles.insert(singles.end() - 1, {110, 1});
  --singles.back().second;
  CHECK(choose(singles) == is(110, false, 15));
  singles.insert(singles.end() - 2, {180, 1});
  --singles.back().second;
  CHECK(choose(singles) == is(0, false, 0));
  // A window of 15, or of 14 and zero, if zero does not lie in it anyway.
  CHECK(choose({{100, 1000}, {86, 24}}) == is(100, false, 0));
  CHECK(choose({{100, 1000}, {86, 20}, {0, 4}}) == is(100, true, 20));
  CHECK(choose({{100, 1000}, {87, 20}, {0, 4}}) == is(100, true, 0));
  CHECK(choose({{15, 1000}, {1, 20}, {0, 4}}) == is(15, true, 20));
  CHECK(choose({{14, 1000}, {0, 24}}) == is(14, false, 0));
  // Below 14 there is nothing that a smaller base would name.
  CHECK(choose({{0, tile_elements}}) == is(14, false, 0));
  CHECK(choose({{5, 1000}, {3, 24}}) == is(14, false, 0));
  CHECK(choose({{255, 5}, {250, 4}, {5, 1015}}) == is(14, false, 9));
  CHECK(choose({{255, 5}, {250, 4}, {16, 1015}}) == is(16, false, 9));
  CHECK(choose({{255, 1}, {254, 1}, {0, 1022}}) == is(255, true, 0));
}

TEST_CASE("codec: every damaged bit of a header is found", "[codec]") {
  std::mt19937_64 random{10};
  const auto payload = make_values(value_kind::spread_2, 6 * tile_elements, random);
  const auto page = encoded(payload);
  REQUIRE(header_of(page).escapes > 0);
  for (std::size_t bit = 0; bit < sizeof(page_header) * 8; ++bit) {
    INFO("bit " << bit);
    auto damaged = page;
    damaged[bit / 8] ^= std::byte(1U << bit % 8);
    CHECK_FALSE(decodes(damaged, payload.size()));
  }
  const auto text_of = [&](const bytes& damaged) {
    bytes back(payload.size());
    return decode(damaged, back).error().text;
  };
  auto newer = page;
  newer[8] = std::byte{2};
  CHECK(text_of(newer).find("version 2 of the encoding") != std::string::npos);
  // A sound page of another length.
  const auto other = encoded(make_values(value_kind::normal, 6 * tile_elements - 4, random));
  REQUIRE(other.size() == page.size());
  CHECK_FALSE(decodes(other, payload.size()));
  CHECK(text_of(other).find("has 12280 bytes, and the expected one 12288") != std::string::npos);
}

TEST_CASE("codec: records that no encoder wrote are refused", "[codec]") {
  const auto payload = with_escapes(8 * tile_elements, 100, 3 * tile_elements);
  const auto page = encoded(payload);
  REQUIRE(decodes(page, payload.size()));
  const auto window = window_of(record_at(page, payload.size(), 3));
  const auto with_end = [&](std::size_t tile, std::uint32_t end) {
    auto changed = page;
    set_record(changed, payload.size(), tile, record_of(window, end));
    return decodes(changed, payload.size());
  };
  CHECK(with_end(3, 100));
  CHECK_FALSE(with_end(3, 99));
  CHECK_FALSE(with_end(3, 101));
  CHECK_FALSE(with_end(3, 0));
  CHECK_FALSE(with_end(3, 0x7fffff));
  CHECK_FALSE(with_end(0, 1));
  CHECK_FALSE(with_end(4, 99));
  CHECK_FALSE(with_end(7, 0));
  CHECK_FALSE(with_end(7, 256));
  CHECK_FALSE(with_end(7, 257));
  // The number of escapes in the header is that of the records.
  for (const std::uint64_t escapes : {std::uint64_t{0}, std::uint64_t{99}, std::uint64_t{101}, std::uint64_t{257}}) {
    auto changed = page;
    auto header = header_of(page);
    header.escapes = escapes;
    std::memcpy(changed.data(), &header, sizeof header);
    CHECK_FALSE(decodes(changed, payload.size()));
  }
  // A record of an escape that is not among the codes; it would be the last one of the page.
  auto single = encoded(with_escapes(8 * tile_elements, 1, 7 * tile_elements));
  REQUIRE(header_of(single).escapes == 1);
  single[layout_of(payload.size()).codes + 7 * tile_code_bytes] &= std::byte{0xf0};
  CHECK_FALSE(decodes(single, payload.size()));
  // An escape that is none any more, and a code that became one.
  const auto codes = layout_of(payload.size()).codes;
  auto changed = page;
  changed[codes + 3 * tile_code_bytes] &= std::byte{0xf0};
  CHECK_FALSE(decodes(changed, payload.size()));
  changed = page;
  changed[codes + 5 * tile_code_bytes + 77] |= std::byte{0xf0};
  CHECK_FALSE(decodes(changed, payload.size()));
  // A tile with more escapes than any encoder writes, though they are all there.
  changed = page;
  for (std::size_t i = 0; i < 70; ++i)
    changed[codes + 3 * tile_code_bytes + i] |= std::byte{0xff};
  for (std::size_t tile = 3; tile < 8; ++tile)
    set_record(changed, payload.size(), tile, record_of(window, 170));
  auto header = header_of(page);
  header.escapes = 170;
  std::memcpy(changed.data(), &header, sizeof header);
  CHECK_FALSE(decodes(changed, payload.size()));
}

TEST_CASE("codec: a page with more escapes than its list has room for is refused", "[codec]") {
  constexpr std::size_t payload_bytes = 8 * tile_bytes;
  const auto layout = layout_of(payload_bytes);
  for (const std::uint32_t escapes : {20U, escapes_per_tile, escapes_per_tile + 1, 100U}) {
    INFO(escapes);
    // Codes and records agree, in a page that is complete but for the list.
    auto page = encoded(with_escapes(8 * tile_elements, 0));
    for (std::uint32_t tile = 0; tile < 8; ++tile) {
      for (std::size_t i = 0; i < escapes; ++i)
        page[layout.codes + tile * tile_code_bytes + i] |= std::byte{0x0f};
      set_record(page, payload_bytes, tile, record_of({120, false}, (tile + 1) * escapes));
    }
    auto header = header_of(page);
    header.escapes = 8 * escapes;
    std::memcpy(page.data(), &header, sizeof header);
    CHECK(decodes(page, payload_bytes) == escapes <= escapes_per_tile);
  }
}

TEST_CASE("codec: any bytes are decoded within bounds, and by all implementations alike", "[codec]") {
  const auto seed = GENERATE(11U, 12U, 13U, 14U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  std::size_t sound = 0;
  for (int i = 0; i < 150; ++i) {
    const auto elements = 4 * tile_elements + random() % (4 * tile_elements);
    const auto payload_bytes = elements * 2;
    auto page = encoded(make_values(i % 2 == 0 ? value_kind::extremes : value_kind::normal, elements, random));
    REQUIRE_FALSE(page.empty());
    if (i % 3 == 0) {
      // Everything is random but what is checked first.
      std::generate(page.begin() + sizeof(page_header), page.end(), [&] { return static_cast<std::byte>(random()); });
      if (i % 2 == 0)
        make_decodable(page, payload_bytes, random);
    } else {
      for (auto n = random() % 5; n > 0; --n)
        page[sizeof(page_header) + random() % (page.size() - sizeof(page_header))] = static_cast<std::byte>(random());
    }
    const auto is_sound = decodes(page, payload_bytes);
    CHECK((is_sound || i % 6 != 0));
    sound += is_sound ? 1U : 0U;
  }
  CHECK(sound > 20);
}

TEST_CASE("codec: calls with the wrong lengths are refused", "[codec]") {
  bytes payload(2 * tile_bytes);
  bytes page(encoded_bytes(payload.size()).value());
  const auto code_of = [](const auto& done) { return done ? errc::ok : done.error().code; };
  CHECK(code_of(encode(payload, page)) == errc::ok);
  CHECK(code_of(decode(page, payload)) == errc::ok);
  const std::span<std::byte> shorter(page.data(), page.size() - 1);
  CHECK(code_of(encode(payload, shorter)) == errc::invalid_argument);
  CHECK(code_of(decode(shorter, payload)) == errc::invalid_argument);
  CHECK(code_of(encode(std::span(payload).first(1001), page)) == errc::invalid_argument);
  CHECK(code_of(decode(page, std::span(payload).first(1001))) == errc::invalid_argument);
  CHECK(code_of(encode(std::span(payload).first(0), std::span(page).first(0))) == errc::invalid_argument);
  CHECK(available_instructions().front() == instructions::plain);
}

} // namespace codec_page_test
