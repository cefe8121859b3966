#include "io/page.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/unit/other_identity.hpp"

#include <xxhash.h>

#include <cstring>
#include <random>

namespace io_page_test {

using namespace troupe;
using namespace troupe::io;
using troupe::test::fill_random;

namespace {

page_identity some_identity(std::uint64_t payload_bytes) {
  return {.ns = {0x1111111111111111, 0x2222222222222222},
          .key = {0x3333333333333333, 0x4444444444444444},
          .rank = 5,
          .where = {.slot = 6, .generation = 7},
          .payload_bytes = payload_bytes};
}

std::vector<std::byte> sealed_page(const page_identity& identity, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> slot(slot_bytes(identity.payload_bytes));
  fill_random(slot, random); // as a reused buffer
  seal_page(slot, identity);
  return slot;
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T out;
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

} // namespace

TEST_CASE("page: a slot is a header and the payload in whole blocks", "[io][page]") {
  CHECK(slot_bytes(0) == 4096);
  CHECK(slot_bytes(1) == 8192);
  CHECK(slot_bytes(4096) == 8192);
  CHECK(slot_bytes(4097) == 12288);
  CHECK(slot_bytes(65536) == 69632);
}

TEST_CASE("page: a sealed page is recognized", "[io][page]") {
  const auto payload_bytes = GENERATE(std::uint64_t{0}, 1, 4095, 4096, 4097, 65536, 100'001);
  const auto identity = some_identity(payload_bytes);
  const auto slot = sealed_page(identity, 1);
  CHECK(verify_page(slot, identity) == errc::ok);
  CHECK(identity_of(slot) == identity);
}

TEST_CASE("page: sealing overwrites everything the buffer held before", "[io][page]") {
  const auto identity = some_identity(5000);
  const auto slot = sealed_page(identity, 2);
  const auto bytes = std::span(slot);
  CHECK(all_zero(bytes.subspan(88, 4000)));
  CHECK(all_zero(bytes.subspan(page_header_bytes + 5000)));
}

TEST_CASE("page: the header has the documented layout", "[io][page]") {
  std::vector<std::byte> slot(slot_bytes(100), std::byte{0xab});
  seal_page(slot, some_identity(100));
  CHECK(std::memcmp(slot.data(), "TRPPAGE1", 8) == 0);
  CHECK(load<std::uint32_t>(slot, 8) == 2);
  CHECK(load<std::uint32_t>(slot, 12) == 4096);
  CHECK(load<std::uint64_t>(slot, 16) == 0x1111111111111111);
  CHECK(load<std::uint64_t>(slot, 24) == 0x2222222222222222);
  CHECK(load<std::uint64_t>(slot, 32) == 0x3333333333333333);
  CHECK(load<std::uint64_t>(slot, 40) == 0x4444444444444444);
  CHECK(load<std::uint32_t>(slot, 48) == 5);
  CHECK(load<std::uint32_t>(slot, 52) == 6);
  CHECK(load<std::uint32_t>(slot, 56) == 7);
  CHECK(load<std::uint32_t>(slot, 60) == 0);
  CHECK(load<std::uint64_t>(slot, 64) == 100);
  const auto payload = checksum_of(std::span(slot).subspan(4096, 100));
  CHECK(load<std::uint64_t>(slot, 72) == payload.low);
  CHECK(load<std::uint64_t>(slot, 80) == payload.high);
  // Fixed numbers: a page written by one build is read by the next.
  CHECK(load<std::uint64_t>(slot, 72) == 0x264b441d279bce53);
  CHECK(load<std::uint64_t>(slot, 80) == 0xc2f252a15b10ddd2);
  CHECK(load<std::uint64_t>(slot, 4088) == 0x36dd4eca1b69445f);
}

TEST_CASE("page: any changed bit of the header is detected", "[io][page]") {
  const auto identity = some_identity(600);
  auto slot = sealed_page(identity, 3);
  for (std::size_t i = 0; i < page_header_bytes; ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      slot[i] ^= std::byte{1} << bit;
      const auto found = verify_page(slot, identity);
      if (found != errc::corrupt)
        FAIL("byte " << i << " bit " << bit << ": " << to_string(found));
      slot[i] ^= std::byte{1} << bit;
    }
  CHECK(verify_page(slot, identity) == errc::ok);
}

TEST_CASE("page: any changed byte of the payload is detected", "[io][page]") {
  const auto identity = some_identity(70'001);
  auto slot = sealed_page(identity, 4);
  std::mt19937_64 random(5);
  for (int round = 0; round < 3000; ++round) {
    // The ends always, the rest at random.
    const auto at = page_header_bytes + (round == 0 ? 0 : round == 1 ? 70'000 : random() % identity.payload_bytes);
    const auto change = static_cast<std::byte>(random() % 255 + 1);
    slot[at] ^= change;
    if (verify_page(slot, identity) != errc::corrupt)
      FAIL("byte " << at << " of the slot");
    slot[at] ^= change;
  }
  CHECK(verify_page(slot, identity) == errc::ok);
}

TEST_CASE("page: a valid page of another identity is refused as a mismatch", "[io][page]") {
  const auto written = some_identity(8192);
  const auto slot = sealed_page(written, 6);
  for (const auto& change : test::identity_changes) {
    INFO(change.field);
    auto expected = written;
    change.make(expected);
    CHECK(verify_page(slot, expected) == errc::identity_mismatch);
    // Loads use this function: it decides alone, and the other one only names the error.
    const auto checksum = expected_payload(slot, expected);
    REQUIRE_FALSE(checksum);
    CHECK(checksum.error() == errc::identity_mismatch);
  }
  CHECK(expected_payload(slot, written));
}

TEST_CASE("page: a page of another format version is refused", "[io][page]") {
  const auto identity = some_identity(512);
  auto slot = sealed_page(identity, 7);
  slot[8] = GENERATE(std::byte{1}, std::byte{3});
  const auto hash = XXH3_64bits(slot.data(), 4088);
  std::memcpy(slot.data() + 4088, &hash, sizeof hash);
  CHECK(verify_page(slot, identity) == errc::identity_mismatch);
  CHECK_FALSE(identity_of(slot).has_value());
  CHECK(expected_payload(slot, identity).error() == errc::identity_mismatch);
}

TEST_CASE("page: a page can be sealed and checked with a known payload checksum", "[io][page]") {
  const auto identity = some_identity(5000);
  const auto sealed = sealed_page(identity, 12);
  const auto payload = std::span(sealed).subspan(page_header_bytes, 5000);
  auto slot = sealed;
  std::fill(slot.begin(), slot.begin() + page_header_bytes, std::byte{0x77});
  seal_page(slot, identity, {page_encoding::raw, 5000, checksum_of(payload)});
  CHECK(slot == sealed);
  CHECK(expected_payload(slot, identity) == stored_payload{page_encoding::raw, 5000, checksum_of(payload)});
  // It is the header that is looked at, and not the payload.
  slot[page_header_bytes + 17] ^= std::byte{1};
  CHECK(expected_payload(slot, identity)->checksum == checksum_of(payload));
  CHECK(verify_page(slot, identity) == errc::corrupt);
  seal_page(slot, identity, {page_encoding::raw, 5000, checksum_of(payload)});
  CHECK(verify_page(slot, identity) == errc::corrupt);
}

namespace {

/// A slot with a page of 20,000 bytes that is stored in `stored` of them.
std::vector<std::byte> encoded_page(const page_identity& identity, std::uint64_t stored) {
  std::mt19937_64 random(stored);
  std::vector<std::byte> slot(slot_bytes(identity.payload_bytes));
  fill_random(slot, random);
  const auto checksum = checksum_of(std::span(slot).subspan(page_header_bytes, stored));
  seal_page(slot, identity, {page_encoding::bf16, stored, checksum});
  return slot;
}

void set_and_hash(std::span<std::byte> slot, std::size_t offset, std::uint64_t value, std::size_t bytes) {
  std::memcpy(slot.data() + offset, &value, bytes);
  const auto hash = XXH3_64bits(slot.data(), 4088);
  std::memcpy(slot.data() + 4088, &hash, sizeof hash);
}

} // namespace

TEST_CASE("page: an encoded page is recognized by its stored bytes", "[io][page]") {
  const auto identity = some_identity(20'000);
  const auto stored = GENERATE(std::uint64_t{1}, 8191, 8192, 8193, 15'360);
  auto slot = encoded_page(identity, stored);
  CHECK(load<std::uint32_t>(slot, 8) == 3);
  CHECK(load<std::uint32_t>(slot, 60) == 1);
  CHECK(load<std::uint64_t>(slot, 64) == 20'000);
  CHECK(load<std::uint64_t>(slot, 88) == stored);
  CHECK(verify_page(slot, identity) == errc::ok);
  CHECK(identity_of(slot) == identity);
  const auto found = expected_payload(slot, identity);
  REQUIRE(found);
  CHECK(found->encoding == page_encoding::bf16);
  CHECK(found->bytes == stored);
  // What is written has the page and zeroes; what is behind is not looked at.
  CHECK(sizes_of(slot) == payload_sizes{20'000, stored});
  const auto used = used_bytes(slot);
  CHECK(used == slot_bytes(stored));
  CHECK(all_zero(std::span(slot).subspan(page_header_bytes + stored, used - page_header_bytes - stored)));
  for (auto at = used; at < slot.size(); ++at)
    slot[at] ^= std::byte{0xff};
  CHECK(verify_page(slot, identity) == errc::ok);
  for (const auto at : {page_header_bytes, page_header_bytes + stored - 1}) {
    slot[at] ^= std::byte{1};
    CHECK(verify_page(slot, identity) == errc::corrupt);
    slot[at] ^= std::byte{1};
  }
  auto other = identity;
  other.payload_bytes = 20'002;
  CHECK(verify_page(slot, other) == errc::identity_mismatch);
  CHECK(verify_page(std::span(slot).first(page_header_bytes + stored - 1), identity) == errc::corrupt);
}

TEST_CASE("page: a page whose encoding is unknown, or contradicts its version, is refused as a mismatch",
          "[io][page]") {
  const auto identity = some_identity(20'000);
  auto slot = encoded_page(identity, 15'000);
  SECTION("another encoding") {
    set_and_hash(slot, 60, 2, 4);
  }
  SECTION("version 3 without one") {
    set_and_hash(slot, 60, 0, 4);
  }
  SECTION("version 2 with one") {
    set_and_hash(slot, 8, 2, 4);
  }
  SECTION("a later version") {
    set_and_hash(slot, 8, 4, 4);
  }
  CHECK(verify_page(slot, identity) == errc::identity_mismatch);
  CHECK(expected_payload(slot, identity).error() == errc::identity_mismatch);
  CHECK_FALSE(identity_of(slot));
  CHECK(used_bytes(slot) == page_header_bytes);
}

TEST_CASE("page: stored bytes that do not lie in the slot are corrupt", "[io][page]") {
  const auto identity = some_identity(20'000);
  auto slot = encoded_page(identity, 15'000);
  const auto stored = GENERATE(std::uint64_t{20'481}, ~std::uint64_t{0}, ~std::uint64_t{4095});
  set_and_hash(slot, 88, stored, 8);
  CHECK(verify_page(slot, identity) == errc::corrupt);
  CHECK(expected_payload(slot, identity).error() == errc::corrupt);
  CHECK(used_bytes(slot) == page_header_bytes);
}

TEST_CASE("page: nothing but the header of a slot without a valid one is used", "[io][page]") {
  CHECK(used_bytes(std::vector<std::byte>(8192)) == page_header_bytes);
  CHECK(used_bytes(sealed_page(some_identity(9000), 4)) == slot_bytes(9000));
  CHECK(sizes_of(sealed_page(some_identity(9000), 4)) == payload_sizes{9000, 9000});
  CHECK(sizes_of(std::vector<std::byte>(8192)) == payload_sizes{});
  auto slot = encoded_page(some_identity(20'000), 15'000);
  set_and_hash(slot, 64, ~std::uint64_t{0}, 8); // a client can write any number
  CHECK(sizes_of(slot) == payload_sizes{});
}

TEST_CASE("page: a mismatched header yields no checksum but the reason", "[io][page]") {
  const auto identity = some_identity(5000);
  auto slot = sealed_page(identity, 13);
  auto other = identity;
  other.where.generation += 1;
  CHECK(expected_payload(slot, other).error() == errc::identity_mismatch);
  CHECK(expected_payload(std::span(slot).first(9000), identity).error() == errc::corrupt);
  CHECK(expected_payload(std::span(slot).first(100), identity).error() == errc::corrupt);
  CHECK(expected_payload({}, identity).error() == errc::corrupt);
  slot[page_header_bytes] ^= std::byte{1};
  CHECK(expected_payload(slot, other).error() == errc::corrupt);
  slot[40] ^= std::byte{1};
  CHECK(expected_payload(slot, identity).error() == errc::corrupt);
}

TEST_CASE("page: a mix of two pages is never accepted as either", "[io][page]") {
  // An overwrite that was cut short by a crash, at any sector, from either end; the older page is that of the same
  // key at an earlier generation, or of another key.
  auto older = some_identity(16'000);
  const auto newer = some_identity(16'000);
  SECTION("another generation of the slot") {
    older.where.generation -= 1;
  }
  SECTION("another key") {
    older.key.lo += 1;
  }
  const auto old_slot = sealed_page(older, 8);
  const auto new_slot = sealed_page(newer, 9);
  // The last block holds the payload's tail; behind it both are zero.
  for (std::size_t cut = 512; cut <= page_header_bytes + 15'872; cut += 512) {
    auto front_new = old_slot;
    std::copy_n(new_slot.begin(), cut, front_new.begin());
    auto front_old = new_slot;
    std::copy_n(old_slot.begin(), cut, front_old.begin());
    INFO("cut at " << cut);
    for (const auto* mix : {&front_new, &front_old}) {
      CHECK(verify_page(*mix, newer) == errc::corrupt);
      CHECK(verify_page(*mix, older) == errc::corrupt);
    }
  }
}

TEST_CASE("page: a slot without a page is corrupt", "[io][page]") {
  const auto identity = some_identity(10'000);
  SECTION("zero") {
    CHECK(verify_page(std::vector<std::byte>(slot_bytes(10'000)), identity) == errc::corrupt);
  }
  SECTION("ones") {
    CHECK(verify_page(std::vector<std::byte>(slot_bytes(10'000), std::byte{0xff}), identity) == errc::corrupt);
  }
  SECTION("empty") {
    CHECK(verify_page({}, identity) == errc::corrupt);
  }
  SECTION("cut short") {
    const auto slot = sealed_page(identity, 10);
    for (const std::size_t size : {1, 88, 4095, 4096, 4097, 14'095}) {
      INFO(size << " bytes");
      CHECK(verify_page(std::span(slot).first(size), identity) == errc::corrupt);
    }
    CHECK(verify_page(std::span(slot).first(14'096), identity) == errc::ok);
  }
  SECTION("a wrong length with a valid header") {
    auto slot = sealed_page(identity, 11);
    const std::uint64_t huge = ~std::uint64_t{0};
    std::memcpy(slot.data() + 64, &huge, sizeof huge);
    const auto hash = XXH3_64bits(slot.data(), 4088);
    std::memcpy(slot.data() + 4088, &hash, sizeof hash);
    CHECK(verify_page(slot, identity) == errc::corrupt);
  }
}

TEST_CASE("page: slots of encoded pages are smaller, or there are none", "[io][page]") {
  CHECK(encoded_slot_bytes(2 * 1048576) == 1'613'824);
  CHECK(encoded_slot_bytes(65536) == 57344);
  // The same number of blocks, an odd number of bytes, and nothing.
  const auto without = GENERATE(std::uint64_t{16384}, std::uint64_t{100'001}, std::uint64_t{0});
  CHECK(encoded_slot_bytes(without) == 0);
}

TEST_CASE("page: a page of which the end is missing is cut off, and nothing else is", "[io][page]") {
  const auto identity = some_identity(20'000);
  const auto encoded = encoded_page(identity, 9'000);
  const auto raw = sealed_page(identity, 4);
  CHECK(is_cut_off(std::span(encoded).first(page_header_bytes + 8'999)));
  CHECK(is_cut_off(std::span(raw).first(page_header_bytes + 19'999)));
  CHECK_FALSE(is_cut_off(std::span(encoded).first(page_header_bytes + 9'000)));
  CHECK_FALSE(is_cut_off(raw));
  CHECK_FALSE(is_cut_off(std::span(raw).first(page_header_bytes - 1)));
  CHECK_FALSE(is_cut_off(std::vector<std::byte>(8192)));
}

} // namespace io_page_test
