#include "gpu/cuda_page_mover.hpp"
#include "gpu/gpu_memory.hpp"
#include "gpu/gpu_stream.hpp"
#include "gpu/plain_copy.hpp"
#include "gpu/remote_cache.hpp"

#include <utility>

// Replaces gpu/cuda/ in a build without CUDA: the headers are in this folder, since both implement them.

namespace troupe {

namespace {

tl::unexpected<error> no_cuda() {
  return fail(errc::unsupported,
              "Troupe was built without CUDA; configure with -DTROUPE_CUDA=ON on a machine with nvcc");
}

} // namespace

result<std::vector<cuda_device>> cuda_devices() {
  return no_cuda();
}

result<std::unique_ptr<page_mover>> make_cuda_page_mover(kv_cache_view, const cuda_mover_options&) {
  return no_cuda();
}

result<std::unique_ptr<remote_cache>> open_remote_gpu_cache(const remote_layout&) {
  return no_cuda();
}

result<plain_copy_pace> measure_plain_copy(int) {
  return no_cuda();
}

// These types are never instantiated.
struct gpu_memory::parts {};
struct gpu_stream::parts {};

gpu_memory::gpu_memory(std::unique_ptr<parts> own) noexcept : own_(std::move(own)) {}
gpu_memory::gpu_memory(gpu_memory&&) noexcept = default;
gpu_memory& gpu_memory::operator=(gpu_memory&&) noexcept = default;
gpu_memory::~gpu_memory() = default;

result<gpu_memory> gpu_memory::allocate(int, std::uint64_t) {
  return no_cuda();
}

std::byte* gpu_memory::data() const noexcept {
  return nullptr;
}

std::uint64_t gpu_memory::size() const noexcept {
  return 0;
}

result<std::byte*> gpu_memory::at(const piece&) const {
  return no_cuda();
}

result<void> gpu_memory::write(std::span<const piece>) {
  return no_cuda();
}

result<void> gpu_memory::read(std::span<const piece>) const {
  return no_cuda();
}

result<void> gpu_memory::fill(std::byte) {
  return no_cuda();
}

gpu_stream::gpu_stream(std::unique_ptr<parts> own) noexcept : own_(std::move(own)) {}
gpu_stream::gpu_stream(gpu_stream&&) noexcept = default;
gpu_stream& gpu_stream::operator=(gpu_stream&&) noexcept = default;
gpu_stream::~gpu_stream() = default;

result<gpu_stream> gpu_stream::create(int) {
  return no_cuda();
}

result<void> gpu_stream::hold(duration) {
  return no_cuda();
}

result<void> gpu_stream::write(gpu_memory&, std::span<const gpu_memory::piece>) {
  return no_cuda();
}

result<void*> gpu_stream::record() {
  return no_cuda();
}

result<void> gpu_stream::wait() {
  return no_cuda();
}

} // namespace troupe
