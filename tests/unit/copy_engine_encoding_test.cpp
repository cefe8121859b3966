#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "gpu/kv_tensors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/known_arenas.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace copy_engine_encoding_test {

namespace {

using namespace troupe;
using workload::value_kind;

constexpr std::uint32_t blocks = 32;
constexpr owner_id owner = 21;
constexpr rank_number rank = 2;
constexpr namespace_id ns{5, 6};

key_digest key(std::uint64_t n) {
  return hash_key(std::as_bytes(std::span(&n, 1)));
}

/// A cache of one opaque tensor, each block of which is a page, with values of the kind.
struct device {
  explicit device(bool encodes, value_kind kind = value_kind::normal) : memory(blocks * page_bytes) {
    std::mt19937_64 random(11);
    const auto values = workload::make_values(kind, memory.size() / 2, random);
    std::ranges::copy(values, memory.begin());
    kv_cache_view view;
    view.geometry = geometry;
    view.blocks = blocks;
    tensor_view layer;
    layer.base = memory.data();
    layer.bytes = memory.size();
    layer.token_stride = geometry.first_shape().content_bytes();
    layer.head_stride = layer.token_stride * geometry.block_tokens;
    layer.part_stride = layer.head_stride * geometry.heads;
    layer.block_stride = page_bytes;
    view.layers.push_back(layer);
    copy_engine_options how{ns, rank, 64, arenas};
    how.encodes = encodes;
    state = std::make_unique<copy_engine_state>(how, *make_host_page_mover(view));
    REQUIRE(state->bind(owner, arena));
  }

  static copy_item item(std::uint32_t block, std::uint64_t frame) {
    return {key(block), {40 + block, 3}, frame * slot_bytes, block};
  }
  /// The blocks from `first` on, each into the frame of its number.
  static std::vector<copy_item> items(std::uint32_t first, std::uint32_t count) {
    std::vector<copy_item> out;
    for (auto i = first; i < first + count; ++i)
      out.push_back(item(i, i));
    return out;
  }
  void save(const std::vector<copy_item>& what) const {
    const auto reply = state->gather({owner, what});
    REQUIRE(reply);
    for (const auto code : reply->results)
      REQUIRE(static_cast<errc>(code) == errc::ok);
  }
  errc load(const copy_item& what) const {
    const auto reply = state->scatter({owner, std::vector{what}});
    REQUIRE(reply);
    return static_cast<errc>(reply->results[0]);
  }
  std::span<std::byte> frame(std::uint64_t n) const {
    return arenas->memory()->bytes().subspan(n * slot_bytes, slot_bytes);
  }
  io::page_identity identity(std::uint32_t block) const { return {ns, key(block), rank, {40 + block, 3}, page_bytes}; }
  page_encoding encoding(std::uint32_t block) const {
    const auto stored = io::expected_payload(frame(block), identity(block));
    REQUIRE(stored);
    return stored->encoding;
  }

  static inline const kv_geometry geometry{1, 2, 2, 512, 2, 16, {}};
  static inline const std::uint64_t page_bytes = geometry.page_bytes();
  static inline const std::uint64_t slot_bytes = io::slot_bytes(page_bytes);

  std::vector<std::byte> memory;
  std::shared_ptr<test::known_arenas> arenas = std::make_shared<test::known_arenas>();
  arena_info arena = arenas->add(blocks * slot_bytes, blocks / 2 * slot_bytes);
  std::unique_ptr<copy_engine_state> state;
};

} // namespace

TEST_CASE("copy engine: pages are encoded where that was asked for and pays off, and loaded with every bit",
          "[copy_engine_state][encoding]") {
  const bool encodes = GENERATE(true, false);
  const auto kind = GENERATE(value_kind::normal, value_kind::random_bits);
  device d(encodes, kind);
  d.save(device::items(0, 16));
  d.save(device::items(16, 16));
  // A few are tried first; then all, or none.
  const bool fits = kind == value_kind::normal;
  CHECK((d.encoding(0) == page_encoding::bf16) == (encodes && fits));
  CHECK(d.encoding(15) == page_encoding::raw);
  CHECK((d.encoding(31) == page_encoding::bf16) == (encodes && fits));
  const auto before = d.memory;
  std::ranges::fill(d.memory, std::byte{0xa5});
  for (std::uint32_t i = 0; i < blocks; ++i) {
    CHECK(io::verify_page(d.frame(i), d.identity(i)) == errc::ok);
    CHECK(d.load(device::item(i, i)) == errc::ok);
  }
  CHECK(d.memory == before);
}

TEST_CASE("copy engine: an engine that does not encode reads encoded pages", "[copy_engine_state][encoding]") {
  device from(true);
  from.save(device::items(0, 1));
  device to(false);
  const auto values =
      std::vector(from.memory.begin(), from.memory.begin() + static_cast<std::ptrdiff_t>(device::page_bytes));
  std::ranges::copy(from.frame(0), to.frame(0).begin());
  std::ranges::fill(to.memory, std::byte{0xa5});
  CHECK(to.load(device::item(0, 0)) == errc::ok);
  CHECK(std::memcmp(to.memory.data(), values.data(), device::page_bytes) == 0);
}

TEST_CASE("copy engine: an encoded page of an impossible length is corrupt, and nothing is moved",
          "[copy_engine_state][encoding]") {
  device d(true);
  d.save(device::items(0, 1));
  REQUIRE(d.encoding(0) == page_encoding::bf16);
  const auto stored = codec::stored_bytes(page_encoding::bf16, device::page_bytes);
  // Sealed anew: its checksum is right.
  const auto wrong = GENERATE_COPY(stored - 64, stored + 64, std::uint64_t{0});
  const auto bytes = d.frame(0).subspan(io::page_header_bytes, wrong);
  io::seal_page(d.frame(0), d.identity(0), {page_encoding::bf16, wrong, io::checksum_of(bytes)});
  REQUIRE(io::verify_page(d.frame(0), d.identity(0)) == errc::ok);
  const auto before = d.memory;
  std::ranges::fill(std::span(d.memory).first(16), std::byte{0});
  const auto now = d.memory;
  CHECK(d.load(device::item(0, 0)) == errc::corrupt);
  CHECK(d.memory == now);
}

TEST_CASE("copy engine: pages in frames for encoded pages are encoded in any case, and others are not stored",
          "[copy_engine_state][encoding]") {
  // Also where the engine would not encode pages by itself.
  const bool encodes = GENERATE(true, false);
  const bool fits = GENERATE(true, false);
  device d(encodes, fits ? value_kind::normal : value_kind::random_bits);
  const auto small = io::encoded_slot_bytes(device::page_bytes);
  REQUIRE(small > 0);
  std::ranges::fill(d.arenas->memory()->bytes(), std::byte{7});
  auto items = device::items(0, 12);
  for (std::uint32_t i = 0; i < 12; ++i) {
    items[i].frame_offset = i * small;
    items[i].frame = static_cast<std::uint32_t>(frame_size::encoded);
  }
  items.push_back(device::item(20, 20));
  const auto reply = d.state->gather({owner, items});
  REQUIRE(reply);
  const auto frame = [&](std::uint32_t i) { return d.arenas->memory()->bytes().subspan(i * small, small); };
  for (std::uint32_t i = 0; i < 12; ++i) {
    CHECK(static_cast<errc>(reply->results[i]) == (fits ? errc::ok : errc::unsupported));
    if (fits)
      CHECK(io::verify_page(frame(i), d.identity(i)) == errc::ok);
    else
      CHECK(std::ranges::all_of(frame(i), [](std::byte x) { return x == std::byte{7}; }));
  }
  CHECK(static_cast<errc>(reply->results[12]) == errc::ok);
  CHECK(std::ranges::count(reply->encoded, 1) == (fits ? 12 + (encodes ? 1 : 0) : 0));
  if (!fits)
    return;
  const auto before = d.memory;
  std::ranges::fill(std::span(d.memory).first(12 * device::page_bytes), std::byte{0xa5});
  for (std::uint32_t i = 0; i < 12; ++i)
    CHECK(d.load(items[i]) == errc::ok);
  CHECK(d.memory == before);
  // A page that does not end in its frame is corrupt.
  io::seal_page(d.frame(20), d.identity(20));
  auto cut = device::item(20, 20);
  cut.frame = static_cast<std::uint32_t>(frame_size::encoded);
  CHECK(d.load(cut) == errc::corrupt);
}

} // namespace copy_engine_encoding_test
