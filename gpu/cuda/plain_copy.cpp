#include "gpu/plain_copy.hpp"

#include "gpu/cuda/cuda_handles.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace troupe {

namespace {

constexpr std::uint64_t copied_bytes = std::uint64_t{256} << 20U;
/// The number of rounds. Other programs use PCIe as well, so the median counts; the first round wakes the device and is
/// ignored.
constexpr int copied_rounds = 5;

/// One direction: a piece of host memory, a piece of device memory, and a stream.
struct lane {
  cuda::pinned_memory<std::byte> host;
  cuda::device_memory<std::byte> device;
  cuda::stream stream;
  cudaMemcpyKind kind = cudaMemcpyDefault;

  static result<lane> make(cudaMemcpyKind kind) {
    auto host = cuda::allocate_pinned<std::byte>(copied_bytes);
    if (!host)
      return tl::unexpected(host.error());
    auto device = cuda::allocate_device<std::byte>(copied_bytes);
    if (!device)
      return tl::unexpected(device.error());
    auto stream = cuda::make_stream(cuda::priority::high);
    if (!stream)
      return tl::unexpected(stream.error());
    return lane{std::move(*host), std::move(*device), std::move(*stream), kind};
  }

  result<void> begin() const {
    const bool to_host = kind == cudaMemcpyDeviceToHost;
    return cuda::check(cudaMemcpyAsync(to_host ? host.get() : device.get(), to_host ? device.get() : host.get(),
                                       copied_bytes, kind, stream.get()),
                       "a plain copy");
  }

  result<void> wait() const { return cuda::check(cudaStreamSynchronize(stream.get()), "a plain copy"); }
};

result<double> pace_of(std::initializer_list<const lane*> lanes) {
  std::array<double, copied_rounds> seconds{};
  for (int round = -1; round < copied_rounds; ++round) {
    const auto began = std::chrono::steady_clock::now();
    for (const auto* x : lanes)
      if (auto ok = x->begin(); !ok)
        return tl::unexpected(ok.error());
    for (const auto* x : lanes)
      if (auto ok = x->wait(); !ok)
        return tl::unexpected(ok.error());
    if (round >= 0)
      seconds[static_cast<std::size_t>(round)] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  std::ranges::sort(seconds);
  return static_cast<double>(copied_bytes * lanes.size()) / 1e9 / seconds[copied_rounds / 2];
}

} // namespace

result<plain_copy_pace> measure_plain_copy(int device) {
  if (auto ok = cuda::check(cudaSetDevice(device), "choosing a device"); !ok)
    return tl::unexpected(ok.error());
  const auto down = lane::make(cudaMemcpyHostToDevice);
  if (!down)
    return tl::unexpected(down.error());
  const auto up = lane::make(cudaMemcpyDeviceToHost);
  if (!up)
    return tl::unexpected(up.error());
  const auto to_device = pace_of({&*down});
  const auto to_host = pace_of({&*up});
  const auto both = pace_of({&*down, &*up});
  for (const auto* x : {&to_device, &to_host, &both})
    if (!*x)
      return tl::unexpected(x->error());
  return plain_copy_pace{*to_device, *to_host, *both};
}

} // namespace troupe
