#include "codec/cuda/page_codec_kernels.hpp"
#include "codec/page_codec.hpp"
#include "tests/gpu/gpu_cache.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

namespace codec_test {

using namespace troupe;
using namespace troupe::test;
using codec::outcome;
using workload::make_values;
using workload::value_kind;

namespace {

/// Payloads and pages in the memory of the GPU, with room between them that nothing may touch.
class device_batch {
public:
  device_batch(std::uint64_t payload_bytes, std::uint32_t pages)
      : payload_bytes_(payload_bytes), page_bytes_(codec::encoded_bytes(payload_bytes).value()) {
    what_.payload_stride = (payload_bytes + 15) / 16 * 16 + 32;
    what_.encoded_stride = page_bytes_ + 16;
    what_.payload_bytes = payload_bytes;
    what_.pages = pages;
    payloads_ = std::move(*cuda::allocate_device<std::byte>(what_.payload_stride * pages));
    encoded_ = std::move(*cuda::allocate_device<std::byte>(what_.encoded_stride * pages));
    verdicts_ = std::move(*cuda::allocate_device<std::uint32_t>(pages));
    progress_ = std::move(*cuda::allocate_device<std::uint32_t>(pages));
    scratch_ = std::move(*cuda::allocate_device<std::byte>(codec::cuda::encode_scratch_bytes(payload_bytes, pages)));
    what_.payloads = payloads_.get();
    what_.encoded = encoded_.get();
    what_.verdicts = verdicts_.get();
  }

  void set_payloads(const std::vector<bytes>& all) {
    upload(all, payload_bytes_, what_.payloads, what_.payload_stride);
  }
  void set_pages(const std::vector<bytes>& all) { upload(all, page_bytes_, what_.encoded, what_.encoded_stride); }
  std::vector<bytes> payloads() { return download(payload_bytes_, what_.payloads, what_.payload_stride); }
  std::vector<bytes> pages() { return download(page_bytes_, what_.encoded, what_.encoded_stride); }

  std::vector<std::uint32_t> encode() {
    return run([&] { return codec::cuda::encode_pages(what_, {progress_.get(), scratch_.get()}, nullptr); });
  }
  std::vector<std::uint32_t> decode() {
    return run([&] { return codec::cuda::decode_pages(what_, nullptr); });
  }

private:
  std::vector<std::uint32_t> run(const std::function<cudaError_t()>& launch) {
    std::vector<std::uint32_t> out(what_.pages, 77);
    must(cudaMemcpy(what_.verdicts, out.data(), out.size() * sizeof out[0], cudaMemcpyHostToDevice));
    must(launch());
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(out.data(), what_.verdicts, out.size() * sizeof out[0], cudaMemcpyDeviceToHost));
    return out;
  }

  void upload(const std::vector<bytes>& all, std::uint64_t size, std::byte* to, std::uint64_t stride) const {
    bytes memory(stride * what_.pages, poison);
    for (std::size_t i = 0; i < all.size(); ++i)
      std::memcpy(memory.data() + i * stride, all[i].data(), size);
    must(cudaMemcpy(to, memory.data(), memory.size(), cudaMemcpyHostToDevice));
  }

  std::vector<bytes> download(std::uint64_t size, const std::byte* from, std::uint64_t stride) const {
    bytes memory(stride * what_.pages);
    must(cudaMemcpy(memory.data(), from, memory.size(), cudaMemcpyDeviceToHost));
    std::vector<bytes> out;
    for (std::size_t i = 0; i < what_.pages; ++i) {
      const auto* page = memory.data() + i * stride;
      out.emplace_back(page, page + size);
      CHECK(std::all_of(page + size, page + stride, [](std::byte x) { return x == poison; }));
    }
    return out;
  }

  std::uint64_t payload_bytes_;
  std::uint64_t page_bytes_;
  codec::cuda::page_batch what_;
  cuda::device_memory<std::byte> payloads_;
  cuda::device_memory<std::byte> encoded_;
  cuda::device_memory<std::uint32_t> verdicts_;
  cuda::device_memory<std::uint32_t> progress_;
  cuda::device_memory<std::byte> scratch_;
};

/// Encodes and decodes on the GPU, and compares with the host.
void check_batch(const std::vector<bytes>& payloads) {
  const auto pages = static_cast<std::uint32_t>(payloads.size());
  const auto payload_bytes = payloads.front().size();
  device_batch batch(payload_bytes, pages);
  batch.set_payloads(payloads);
  batch.set_pages({});
  const auto verdicts = batch.encode();
  const auto encoded = batch.pages();
  std::vector<bool> fits;
  for (std::size_t i = 0; i < pages; ++i) {
    bytes expected(encoded[i].size());
    fits.push_back(codec::encode(payloads[i], expected).value() == outcome::encoded);
    REQUIRE(verdicts[i] == (fits.back() ? 0U : 1U));
    if (fits.back())
      REQUIRE((encoded[i] == expected));
  }
  batch.set_payloads({});
  const auto decoded = batch.decode();
  const auto back = batch.payloads();
  for (std::size_t i = 0; i < pages; ++i)
    if (fits[i]) {
      REQUIRE(decoded[i] == 0);
      REQUIRE((back[i] == payloads[i]));
    }
}

/// The page with so many escapes in each tile, and so many in its records.
bytes with_codes(bytes page, const codec::page_layout& layout, std::size_t escapes, std::uint32_t recorded) {
  codec::page_header header;
  std::memcpy(&header, page.data(), sizeof header);
  header.escapes = layout.tiles * recorded;
  std::memcpy(page.data(), &header, sizeof header);
  for (std::size_t tile = 0; tile < layout.tiles; ++tile) {
    auto* codes = page.data() + layout.codes + tile * codec::tile_code_bytes;
    for (std::size_t i = 0; i < codec::tile_code_bytes; ++i)
      codes[i] = i < escapes ? std::byte{0x1f} : std::byte{0x11};
    const auto record = codec::record_of({120, false}, static_cast<std::uint32_t>(tile + 1) * recorded);
    std::memcpy(page.data() + layout.records + tile * codec::record_bytes, &record, sizeof record);
  }
  return page;
}

} // namespace

TEST_CASE("gpu: the codec writes the bytes of the host, and reads them", "[gpu][codec]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(1);
  for (const std::size_t elements : {64 * 1024, 1024 * 1024, 9216, 4 * 1024 + 1, 5 * 1024 - 1, 7 * 1024 + 13}) {
    INFO(elements);
    std::vector<bytes> payloads;
    for (const auto kind : workload::all_value_kinds())
      payloads.push_back(make_values(kind, elements, random));
    check_batch(payloads);
  }
}

TEST_CASE("gpu: the codec handles one page, and many", "[gpu][codec][small]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(2);
  const auto kinds = workload::all_value_kinds();
  for (const std::size_t pages : {1U, 3U, 200U}) {
    std::vector<bytes> payloads;
    for (std::size_t i = 0; i < pages; ++i)
      payloads.push_back(make_values(kinds[random() % kinds.size()], 16'384, random));
    check_batch(payloads);
  }
}

TEST_CASE("gpu: a page fits as long as its list of escapes has room", "[gpu][codec]") {
  TROUPE_NEEDS_GPU();
  constexpr std::size_t tiles = 600;
  // A quarter of the tiles has as many escapes as fill the list; or one more; or one tile has too many.
  constexpr std::size_t quarter = 4 * codec::escapes_per_tile;
  static_assert(quarter <= codec::max_tile_escapes);
  struct {
    std::size_t of_quarter;
    std::size_t of_one;
    bool fits;
  } const cases[] = {{quarter, 0, true},
                     {quarter, 1, false},
                     {0, codec::max_tile_escapes, true},
                     {0, codec::max_tile_escapes + 1, false},
                     {0, codec::tile_elements / 2, false}};
  std::vector<bytes> payloads;
  for (const auto& x : cases) {
    auto& payload = payloads.emplace_back(tiles * codec::tile_bytes);
    for (std::size_t i = 0; i < payload.size() / 2; ++i) {
      const auto tile = i / codec::tile_elements;
      const auto escapes = tile % 4 == 1 ? x.of_quarter : tile == tiles - 2 ? x.of_one : 0;
      const auto exponent = i % codec::tile_elements < escapes ? 60U : 120U;
      const auto element = static_cast<std::uint16_t>(exponent << 7U | (i & 0x7fU));
      std::memcpy(payload.data() + i * 2, &element, 2);
    }
    bytes page(codec::encoded_bytes(payload.size()).value());
    CHECK((codec::encode(payload, page).value() == outcome::encoded) == x.fits);
  }
  check_batch(payloads);
}

TEST_CASE("gpu: damaged pages are judged and decoded as on the host", "[gpu][codec]") {
  TROUPE_NEEDS_GPU();
  std::mt19937_64 random(3);
  constexpr std::size_t elements = 8 * 1024 + 100;
  constexpr std::uint32_t pages = 256;
  device_batch batch(elements * 2, pages);
  std::vector<bytes> damaged;
  for (std::size_t i = 0; i < pages; ++i) {
    const auto payload = make_values(i % 2 == 0 ? value_kind::spread_1 : value_kind::extremes, elements, random);
    bytes page(codec::encoded_bytes(payload.size()).value());
    REQUIRE(codec::encode(payload, page).value() == outcome::encoded);
    const auto layout = codec::layout_of(payload.size());
    if (i == 0)
      page = with_codes(page, layout, 100, 100);
    else if (i == 1)
      page = with_codes(page, layout, 20, 20);
    else if (i == 2)
      page = with_codes(page, layout, 20, 21);
    else if (i == 3)
      page = with_codes(page, layout, 20, 19);
    else if (i < 64)
      page[i] ^= static_cast<std::byte>(1U << random() % 8);
    else if (i < 128)
      std::generate(page.begin() + 64, page.end(), [&] { return static_cast<std::byte>(random()); });
    else if (i < 192)
      page[layout.records + random() % (layout.tiles * 4)] ^= static_cast<std::byte>(1U << random() % 8);
    else
      page[64 + random() % (page.size() - 64)] = static_cast<std::byte>(random());
    damaged.push_back(std::move(page));
  }
  batch.set_pages(damaged);
  batch.set_payloads({});
  const auto verdicts = batch.decode();
  const auto payloads = batch.payloads();
  std::size_t sound = 0;
  for (std::size_t i = 0; i < pages; ++i) {
    bytes expected(elements * 2);
    const auto done = codec::decode(damaged[i], expected);
    INFO(i);
    REQUIRE(verdicts[i] == (done ? 0U : 1U));
    if (done)
      REQUIRE((payloads[i] == expected));
    sound += done ? 1U : 0U;
  }
  CHECK(verdicts[0] == 1);
  CHECK(verdicts[1] == 0);
  CHECK(sound > 30);
  CHECK(sound < 160);
}

} // namespace codec_test
