#include "gpu/gpu_stream.hpp"

#include "gpu/cuda/cuda_handles.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t least_kept_bytes = std::size_t{16} << 20U;

} // namespace

struct gpu_stream::parts {
  int device = 0;
  cuda::stream queue;
  cuda::event written;
  /// Bytes of pending writes: the GPU reads them, so they stay until the stream was waited for.
  cuda::pinned_memory<std::byte> kept;
  std::size_t kept_bytes = 0;
  std::size_t used = 0;
  std::deque<duration> holds;

  result<void> wait() {
    auto done = cuda::check(cudaStreamSynchronize(queue.get()), "waiting for a stream");
    used = 0;
    holds.clear();
    return done;
  }

  result<void> make_room(std::size_t bytes) {
    if (auto ok = wait(); !ok || bytes <= kept_bytes)
      return ok;
    const auto wanted = std::max(bytes, least_kept_bytes);
    auto memory = cuda::allocate_pinned<std::byte>(wanted);
    if (!memory)
      return tl::unexpected(memory.error());
    kept = std::move(*memory);
    kept_bytes = wanted;
    return {};
  }
};

gpu_stream::gpu_stream(std::unique_ptr<parts> own) noexcept : own_(std::move(own)) {}
gpu_stream::gpu_stream(gpu_stream&&) noexcept = default;
gpu_stream& gpu_stream::operator=(gpu_stream&&) noexcept = default;

gpu_stream::~gpu_stream() {
  if (own_)
    static_cast<void>(wait());
}

result<gpu_stream> gpu_stream::create(int device) {
  if (auto ok = cuda::check(cudaSetDevice(device), fmt::format("using GPU {}", device)); !ok)
    return tl::unexpected(ok.error());
  auto queue = cuda::make_stream(cuda::priority::low);
  if (!queue)
    return tl::unexpected(queue.error());
  auto written = cuda::make_event(cuda::awaited_by::streams);
  if (!written)
    return tl::unexpected(written.error());
  auto own = std::make_unique<parts>();
  own->device = device;
  own->queue = std::move(*queue);
  own->written = std::move(*written);
  return gpu_stream(std::move(own));
}

result<void> gpu_stream::hold(duration time) {
  own_->holds.push_back(time);
  const auto sleep = [](void* how_long) { std::this_thread::sleep_for(*static_cast<const duration*>(how_long)); };
  return cuda::check(cudaLaunchHostFunc(own_->queue.get(), sleep, &own_->holds.back()), "holding a stream");
}

result<void> gpu_stream::write(gpu_memory& to, std::span<const gpu_memory::piece> pieces) {
  if (auto ok = cuda::check(cudaSetDevice(own_->device), "using the GPU"); !ok)
    return ok;
  std::size_t bytes = 0;
  for (const auto& x : pieces) {
    if (const auto there = to.at(x); !there)
      return tl::unexpected(there.error());
    bytes += x.host.size();
  }
  if (own_->used + bytes > own_->kept_bytes)
    if (auto ok = own_->make_room(bytes); !ok)
      return ok;
  auto* at = own_->kept.get() + own_->used;
  own_->used += bytes;
  for (const auto& x : pieces) {
    std::memcpy(at, x.host.data(), x.host.size());
    if (auto ok = cuda::check(
            cudaMemcpyAsync(to.data() + x.offset, at, x.host.size(), cudaMemcpyHostToDevice, own_->queue.get()),
            "writing GPU memory");
        !ok)
      return ok;
    at += x.host.size();
  }
  return {};
}

result<void*> gpu_stream::record() {
  if (auto ok = cuda::check(cudaEventRecord(own_->written.get(), own_->queue.get()), "recording an event"); !ok)
    return tl::unexpected(ok.error());
  return own_->written.get();
}

result<void> gpu_stream::wait() {
  return own_->wait();
}

} // namespace troupe
