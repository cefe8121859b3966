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

result<std::byte*> gpu_memory::at(const piece& x) const {
  if (x.offset > size() || x.host.size() > size() - x.offset)
    return fail(errc::out_of_range,
                fmt::format("{} bytes at {} of {} bytes of GPU memory", x.host.size(), x.offset, size()));
  return data() + x.offset;
}

namespace {

/// The stream of this thread, so that copies of one thread do not wait for those of another.
const cudaStream_t own_stream = cudaStreamPerThread;

result<void> copy_pieces(int device, const gpu_memory& memory, std::span<const gpu_memory::piece> pieces,
                         cudaMemcpyKind kind, std::string_view what) {
  auto done = cuda::check(cudaSetDevice(device), "using the GPU");
  for (std::size_t i = 0; i < pieces.size() && done; ++i) {
    const auto& host = pieces[i].host;
    const auto there = memory.at(pieces[i]);
    if (!there) {
      done = tl::unexpected(there.error());
      continue;
    }
    const bool to_gpu = kind == cudaMemcpyHostToDevice;
    done = cuda::check(
        cudaMemcpyAsync(to_gpu ? *there : host.data(), to_gpu ? host.data() : *there, host.size(), kind, own_stream),
        what);
  }
  // Also after an error: the caller may free its memory after this returns.
  auto waited = cuda::check(cudaStreamSynchronize(own_stream), what);
  return done ? waited : done;
}

} // namespace

result<void> gpu_memory::write(std::span<const piece> pieces) {
  return copy_pieces(own_->device, *this, pieces, cudaMemcpyHostToDevice, "writing GPU memory");
}

result<void> gpu_memory::read(std::span<const piece> pieces) const {
  return copy_pieces(own_->device, *this, pieces, cudaMemcpyDeviceToHost, "reading GPU memory");
}

result<void> gpu_memory::fill(std::byte value) {
  if (auto ok = cuda::check(cudaSetDevice(own_->device), "using the GPU"); !ok)
    return ok;
  if (auto ok = cuda::check(cudaMemset(data(), std::to_integer<int>(value), own_->bytes), "filling GPU memory"); !ok)
    return ok;
  return cuda::check(cudaDeviceSynchronize(), "filling GPU memory");
}

} // namespace troupe
