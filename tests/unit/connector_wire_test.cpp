#include "base/identifiers.hpp"
#include "connector/wire.hpp"
#include "fuzz/engine_metadata.hpp"
#include "tests/catch.hpp"
#include "tests/unit/damaged_text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace connector_wire_test {

using namespace troupe;
using namespace troupe::connector;

namespace {

using wire_bytes = std::vector<std::uint8_t>;

key_digest wire_key(std::uint64_t x) {
  return {x * 0x9e3779b97f4a7c15ULL, x};
}

connector_metadata whole_metadata() {
  connector_metadata out;
  out.loads.push_back({7, "request-1", {wire_key(1), wire_key(2)}, {3, null_block, 5, 6}, 0});
  out.loads.push_back({8, "request-2", {wire_key(9)}, {1, 2}, 77, false});
  out.loads.push_back({8, "request-3", {wire_key(9)}, {1, 2}, 78, true, 3});
  out.stores.push_back({11, 7, "request-1", 2, wire_key(2), {wire_key(3)}, {8, 9}});
  out.stores.push_back({13, 7, "request-1", 2, {}, {wire_key(3)}, {8, 9}, 5, false});
  out.stores.push_back({12, 9, "", 0, {}, {}, {}});
  out.preempted = {4, 5, ~std::uint64_t{0}};
  out.finished.push_back({7, "request-1", true});
  out.finished.push_back({10, "späte Anfrage", false});
  return out;
}

std::vector<store_outcome> whole_outcomes() {
  return {{1, {1, 0, 1, 2}}, {~std::uint64_t{0}, {}}, {3, {0}}};
}

template <class T>
wire_bytes encoded(const T& x) {
  wire_bytes out;
  encode(x, out);
  return out;
}

std::string text_of_wire(const wire_bytes& x) {
  return {x.begin(), x.end()};
}

} // namespace

TEST_CASE("connector wire: metadata and outcomes survive encoding and decoding", "[connector][wire]") {
  CHECK(decode_metadata(encoded(whole_metadata())).value() == whole_metadata());
  CHECK(decode_metadata(encoded(connector_metadata{})).value() == connector_metadata{});
  CHECK(decode_outcomes(encoded(whole_outcomes())).value() == whole_outcomes());
  CHECK(decode_outcomes(encoded(std::vector<store_outcome>{})).value().empty());
  CHECK(decode_outcomes(encoded(std::vector<store_outcome>{{1, {3}}})).error().code == errc::corrupt);
}

TEST_CASE("connector wire: an output buffer is reused whatever it held", "[connector][wire]") {
  wire_bytes out(10'000, 0xff);
  encode(whole_metadata(), out);
  CHECK(out == encoded(whole_metadata()));
  encode(connector_metadata{}, out);
  CHECK(out == encoded(connector_metadata{}));
}

TEST_CASE("connector wire: truncated bytes and trailing bytes are refused", "[connector][wire]") {
  const auto metadata = encoded(whole_metadata());
  const auto outcomes = encoded(whole_outcomes());
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    INFO(i);
    const auto part = std::span(metadata).first(i);
    CHECK(decode_metadata(part).error().code == errc::corrupt);
    // The same holds where the header matches the rest.
    wire_bytes sealed(part.begin(), part.end());
    seal_wire(sealed);
    CHECK_FALSE(decode_metadata(sealed));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    CHECK(decode_outcomes(std::span(outcomes).first(i)).error().code == errc::corrupt);
  auto longer = metadata;
  longer.push_back(0);
  CHECK(decode_metadata(longer).error().code == errc::corrupt);
  seal_wire(longer);
  CHECK(decode_metadata(longer).error().code == errc::corrupt);
}

TEST_CASE("connector wire: no flipped bit is accepted", "[connector][wire]") {
  const auto try_bits = [](const wire_bytes& whole, auto decode) {
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      auto damaged = whole;
      damaged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      const auto read = decode(std::span<const std::uint8_t>(damaged));
      INFO(bit);
      REQUIRE_FALSE(read);
      REQUIRE_FALSE(read.error().text.empty());
    }
  };
  try_bits(encoded(whole_metadata()), decode_metadata);
  try_bits(encoded(whole_outcomes()), decode_outcomes);
}

TEST_CASE("connector wire: bytes of another kind or version are refused with that reason", "[connector][wire]") {
  CHECK(decode_outcomes(encoded(whole_metadata())).error().code == errc::corrupt);
  CHECK(decode_metadata(encoded(whole_outcomes())).error().code == errc::corrupt);
  auto other = encoded(whole_metadata());
  other[4] = 9;
  const auto refused = decode_metadata(other);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().text.find("version 9") != std::string::npos);
}

TEST_CASE("connector wire: a false length allocates no memory", "[connector][wire]") {
  // The first number of the body is how many loads there are.
  auto bytes = encoded(whole_metadata());
  for (const std::uint32_t count : {4U, 1'000U, 0x7fffffffU, 0xffffffffU}) {
    for (unsigned i = 0; i < 4; ++i)
      bytes[wire_header_bytes + i] = static_cast<std::uint8_t>(count >> (8 * i));
    seal_wire(bytes);
    CHECK(decode_metadata(bytes).error().code == errc::corrupt);
  }
}

TEST_CASE("connector wire: damage with a valid checksum is refused or decodes to valid data",
          "[connector][wire][fuzz]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const test::text_damage damage;
  for (const auto& text : {text_of_wire(encoded(whole_metadata())), text_of_wire(encoded(whole_outcomes()))})
    for (int i = 0; i < 2'000; ++i)
      fuzz::read_engine_metadata(damage(text, random));
}

TEST_CASE("connector wire: the corpus of metadata is read as before", "[connector][wire][fuzz]") {
  const std::map<std::string, int> accepted{{"empty", 2}, {"metadata", 2},       {"outcomes", 2}, {"many", 2},
                                            {"cut", 0},   {"wrong-checksum", 1}, {"garbage", 0}};
  std::size_t found = 0;
  for (const auto& x : std::filesystem::directory_iterator{std::filesystem::path{TROUPE_SOURCE_DIR} / "fuzz/corpus" /
                                                           "engine_metadata"}) {
    std::ifstream file{x.path(), std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    INFO(x.path());
    if (const auto known = accepted.find(x.path().filename().string()); known != accepted.end()) {
      ++found;
      CHECK(fuzz::read_engine_metadata(text) == known->second);
    }
  }
  CHECK(found == accepted.size());
}

} // namespace connector_wire_test
