#include "gpu/gpu_memory.hpp"

#include "gpu/cuda/cuda_handles.hpp"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace troupe {

struct gpu_memory::parts {
  int device = 0;
  std::uint64_t bytes = 0;
  cuda::device_memory<std::byte> memory;
};

gpu_memory::gpu_memory(std::unique_ptr<parts> own) noexcept : own_(std::move(own)) {}
gpu_memory::gpu_memory(gpu_memory&&) noexcept = default;
gpu_memory& gpu_memory::operator=(gpu_memory&&) noexcept = default;
gpu_memory::~gpu_memory() = default;

result<gpu_memory> gpu_memory::allocate(int device, std::uint64_t bytes) {
  if (auto ok = cuda::check(cudaSetDevice(device), fmt::format("using GPU {}", device)); !ok)
    return tl::unexpected(ok.error());
  auto memory = cuda::allocate_device<std::byte>(bytes);
  if (!memory)
    return tl::unexpected(memory.error());
  return gpu_memory(std::make_unique<parts>(parts{device, bytes, std::move(*memory)}));
}

std::byte* gpu_memory::data() const noexcept {
  return own_->memory.get();
}

std::uint64_t gpu_memory::size() const noexcept {
  return own_->bytes;
}

namespace {

/// The stream of this thread: the copies of one do not wait for those of another.
const cudaStream_t own_stream = cudaStreamPerThread;

result<void> check_piece(const gpu_memory& memory, const gpu_memory::piece& piece) {
  if (piece.offset <= memory.size() && piece.host.size() <= memory.size() - piece.offset)
    return {};
  return fail(errc::out_of_range,
              fmt::format("{} bytes at {} of {} bytes of GPU memory", piece.host.size(), piece.offset, memory.size()));
}

} // namespace

result<void> gpu_memory::write(std::span<const piece> pieces) {
  auto done = cuda::check(cudaSetDevice(own_->device), "using the GPU");
  for (std::size_t i = 0; i < pieces.size() && done; ++i) {
    const auto& x = pieces[i];
    done = check_piece(*this, x);
    if (done)
      done = cuda::check(
          cudaMemcpyAsync(data() + x.offset, x.host.data(), x.host.size(), cudaMemcpyHostToDevice, own_stream),
          "writing GPU memory");
  }
  // Also after an error: the caller's memory may be gone when this has returned.
  auto waited = cuda::check(cudaStreamSynchronize(own_stream), "writing GPU memory");
  return done ? waited : done;
}

result<void> gpu_memory::read(std::span<const piece> pieces) const {
  auto done = cuda::check(cudaSetDevice(own_->device), "using the GPU");
  for (std::size_t i = 0; i < pieces.size() && done; ++i) {
    const auto& x = pieces[i];
    done = check_piece(*this, x);
    if (done)
      done = cuda::check(
          cudaMemcpyAsync(x.host.data(), data() + x.offset, x.host.size(), cudaMemcpyDeviceToHost, own_stream),
          "reading GPU memory");
  }
  auto waited = cuda::check(cudaStreamSynchronize(own_stream), "reading GPU memory");
  return done ? waited : done;
}

result<void> gpu_memory::fill(std::byte value) {
  if (auto ok = cuda::check(cudaSetDevice(own_->device), "using the GPU"); !ok)
    return ok;
  if (auto ok = cuda::check(cudaMemset(data(), std::to_integer<int>(value), own_->bytes), "filling GPU memory"); !ok)
    return ok;
  return cuda::check(cudaDeviceSynchronize(), "filling GPU memory");
}

} // namespace troupe
