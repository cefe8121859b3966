// The speed of encoding and decoding pages in the memory of a GPU, by kind of values, compared with a plain copy there.

#include "bench/gpu/measured.hpp"
#include "codec/cuda/page_codec_kernels.hpp"
#include "codec/page_codec.hpp"
#include "workload/kv_values/kv_values.hpp"
#include "workload/replay/text_table.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::replay;
using workload::value_kind;

constexpr int rounds = 31;

struct release {
  void operator()(void* p) const noexcept { cudaFree(p); }
};

template <class T>
std::unique_ptr<T[], release> allocate(std::uint64_t count) {
  void* out = nullptr;
  must(cudaMalloc(&out, count * sizeof(T)));
  return std::unique_ptr<T[], release>(static_cast<T*>(out));
}

/// The median of some rounds by the device's own clock, in seconds; the first rounds are not counted.
double seconds_of(const std::function<void()>& launch) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  std::vector<float> all;
  for (int i = -3; i < rounds; ++i) {
    must(cudaEventRecord(begin));
    launch();
    must(cudaEventRecord(end));
    must(cudaEventSynchronize(end));
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 0)
      all.push_back(milliseconds);
  }
  must(cudaEventDestroy(begin));
  must(cudaEventDestroy(end));
  std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
  return static_cast<double>(all[rounds / 2]) / 1e3;
}

std::string pace(std::uint64_t bytes, double seconds) {
  return fmt::format("{:.0f}", static_cast<double>(bytes) / seconds / 1e9);
}

/// Pages of one kind in the memory of the GPU.
class batch {
public:
  batch(value_kind kind, std::uint64_t payload_bytes, std::uint32_t pages)
      : bytes_(payload_bytes * pages), payloads_(allocate<std::byte>(bytes_)),
        encoded_(allocate<std::byte>(codec::encoded_bytes(payload_bytes).value() * pages)),
        verdicts_(allocate<std::uint32_t>(pages)), progress_(allocate<std::uint32_t>(pages)),
        scratch_(allocate<std::byte>(codec::cuda::encode_scratch_bytes(payload_bytes, pages))),
        what_{payloads_.get(), payload_bytes, encoded_.get(), codec::encoded_bytes(payload_bytes).value(),
              payload_bytes,   pages,         verdicts_.get()} {
    must(cudaMemset(progress_.get(), 0, pages * sizeof(std::uint32_t)));
    // Some MiB of values, over and over.
    constexpr std::uint64_t distinct = std::uint64_t{8} << 20U;
    std::mt19937_64 random(1);
    const auto values = workload::make_values(kind, distinct / 2, random);
    for (std::uint64_t at = 0; at < bytes_; at += distinct)
      must(cudaMemcpy(payloads_.get() + at, values.data(), std::min(distinct, bytes_ - at), cudaMemcpyHostToDevice));
  }

  void encode() { must(codec::cuda::encode_pages(what_, {progress_.get(), scratch_.get()}, nullptr)); }
  void decode() { must(codec::cuda::decode_pages(what_, nullptr)); }

  std::uint32_t refused() {
    std::vector<std::uint32_t> out(what_.pages);
    must(cudaMemcpy(out.data(), what_.verdicts, out.size() * sizeof out[0], cudaMemcpyDeviceToHost));
    return static_cast<std::uint32_t>(std::ranges::count(out, 1U));
  }

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::byte* payloads() const noexcept { return payloads_.get(); }

private:
  std::uint64_t bytes_;
  std::unique_ptr<std::byte[], release> payloads_;
  std::unique_ptr<std::byte[], release> encoded_;
  std::unique_ptr<std::uint32_t[], release> verdicts_;
  std::unique_ptr<std::uint32_t[], release> progress_;
  std::unique_ptr<std::byte[], release> scratch_;
  codec::cuda::page_batch what_;
};

void measure(text_table& table, value_kind kind, std::uint64_t payload_bytes, std::uint32_t pages) {
  batch b(kind, payload_bytes, pages);
  const auto copy = allocate<std::byte>(b.bytes());
  const auto plain = seconds_of(
      [&] { must(cudaMemcpyAsync(copy.get(), b.payloads(), b.bytes(), cudaMemcpyDeviceToDevice, nullptr)); });
  const auto encode = seconds_of([&] { b.encode(); });
  const auto refused = b.refused();
  const auto decode = refused == 0 ? seconds_of([&] { b.decode(); }) : 0;
  table.row({std::string(to_string(kind)), human_bytes(payload_bytes), human_bytes(b.bytes()), pace(b.bytes(), plain),
             pace(b.bytes(), encode), refused == 0 ? pace(b.bytes(), decode) : "-", fmt::format("{:.1f}", encode * 1e6),
             fmt::format("{:.1f}", decode * 1e6), std::to_string(refused)});
}

} // namespace

int main() {
  cudaDeviceProp device{};
  must(cudaGetDeviceProperties(&device, 0));
  text_table table({std::string(device.name) + ", GB/s of raw bytes", "page", "in all", "copy", "encode", "decode",
                    "encode, µs", "decode, µs", "do not fit"});
  constexpr std::uint64_t kib = 1024;
  constexpr std::uint64_t mib = 1024 * kib;
  for (const auto kind : {value_kind::normal, value_kind::spread_1, value_kind::spread_2, value_kind::rotated_keys,
                          value_kind::half_zeroes, value_kind::random_bits})
    for (const auto& [page, all] : {std::pair{2 * mib, 512 * mib}, std::pair{256 * kib, 512 * mib},
                                    std::pair{2 * mib, 32 * mib}, std::pair{2 * mib, 4 * mib}})
      measure(table, kind, page, static_cast<std::uint32_t>(all / page));
  std::printf("%s\n", table.str().c_str());
}
