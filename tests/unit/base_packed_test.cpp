#include "base/identifiers.hpp"
#include "messages/packed.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace base_packed_test {

using namespace troupe;

namespace {

template <class T>
packed<T> round_trip(const packed<T>& batch) {
  packed<T> copy;
  REQUIRE(copy.from_bytes(batch.to_bytes()));
  return copy;
}

} // namespace

// Padding would carry uninitialised memory to other nodes.
static_assert(std::has_unique_object_representations_v<key_digest>);
static_assert(std::has_unique_object_representations_v<slot_ref>);
static_assert(std::has_unique_object_representations_v<page_ref>);
static_assert(std::has_unique_object_representations_v<ticket>);

TEST_CASE("packed: an empty batch is an empty string", "[base][packed]") {
  const packed<key_digest> none;
  CHECK(none.empty());
  CHECK(none.to_bytes().empty());
  CHECK(round_trip(none) == none);
}

TEST_CASE("packed: a batch arrives unchanged", "[base][packed]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (std::size_t size = 1; size <= 512; size *= 2) {
    packed<page_ref> batch;
    for (std::size_t i = 0; i < size; ++i) {
      const auto word = random();
      batch.items.push_back(
          {{random(), random()}, {static_cast<slot_number>(word), static_cast<generation_number>(word >> 32)}});
    }
    CHECK(batch.to_bytes().size() == size * sizeof(page_ref));
    CHECK(round_trip(batch) == batch);
  }
}

TEST_CASE("packed: the bytes of a batch are its fields in order, little-endian", "[base][packed]") {
  const packed<slot_ref> slots(std::vector<slot_ref>{{1, 0x0a0b0c0d}});
  CHECK(slots.to_bytes() == std::string("\x01\x00\x00\x00\x0d\x0c\x0b\x0a", 8));
  const packed<key_digest> keys(std::vector<key_digest>{{0x0102030405060708ULL, 9}});
  CHECK(keys.to_bytes() == std::string("\x08\x07\x06\x05\x04\x03\x02\x01\x09\x00\x00\x00\x00\x00\x00\x00", 16));
}

TEST_CASE("packed: a string that is not a whole number of records is refused and changes nothing", "[base][packed]") {
  const packed<key_digest> before(std::vector<key_digest>{{1, 2}, {3, 4}});
  const std::string whole = before.to_bytes();
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    auto batch = before;
    INFO("a string of " << size << " bytes");
    const bool accepted = batch.from_bytes(whole.substr(0, size));
    CHECK(accepted == (size % sizeof(key_digest) == 0));
    if (accepted)
      CHECK(batch.size() == size / sizeof(key_digest));
    else
      CHECK(batch == before);
  }
}

TEST_CASE("packed: reading a batch discards the previous contents", "[base][packed]") {
  packed<std::uint8_t> batch(std::vector<std::uint8_t>{1, 2, 3});
  REQUIRE(batch.from_bytes("\x09"));
  CHECK(batch == packed<std::uint8_t>(std::vector<std::uint8_t>{9}));
  REQUIRE(batch.from_bytes(""));
  CHECK(batch.empty());
}

TEST_CASE("packed: any bytes of the right length can be read", "[base][packed]") {
  const auto seed = GENERATE(11U, 12U);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::string bytes(sizeof(ticket) * 100, '\0');
  for (auto& c : bytes)
    c = static_cast<char>(random());
  packed<ticket> batch;
  REQUIRE(batch.from_bytes(bytes));
  CHECK(batch.to_bytes() == bytes);
}

} // namespace base_packed_test
