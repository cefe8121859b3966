#include "workload/replay/kv_tensors.hpp"

#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace troupe::replay {

namespace {

/// The size from which huge pages are requested.
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

constexpr std::uint64_t gpu_alignment = 4096;

std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + gpu_alignment - 1) / gpu_alignment * gpu_alignment;
}

} // namespace

void kv_tensors::unmap::operator()(std::byte* p) const noexcept {
  ::munmap(p, bytes);
}

result<kv_tensors> kv_tensors::allocate(std::span<const std::uint64_t> layer_bytes, std::optional<int> gpu) {
  kv_tensors out;
  if (auto ok = gpu ? out.allocate_on_gpu(layer_bytes, *gpu) : out.allocate_on_host(layer_bytes); !ok)
    return tl::unexpected(std::move(ok.error()));
  return out;
}

result<void> kv_tensors::allocate_on_host(std::span<const std::uint64_t> layer_bytes) {
  for (const auto bytes : layer_bytes) {
    auto* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return fail(
          errc::limit_exceeded,
          fmt::format("the KV cache model needs {} layers of {} bytes, and layer {} could not be allocated: {}; "
                      "use fewer blocks or smaller pages",
                      layer_bytes.size(), bytes, layers_.size(), system_error(errno, "mmap").text));
    if (bytes >= huge_page_bytes)
      ::madvise(memory, bytes, MADV_HUGEPAGE); // an optimisation: a refusal does not matter
    host_.emplace_back(static_cast<std::byte*>(memory), unmap{bytes});
    layers_.emplace_back(static_cast<std::byte*>(memory), bytes);
    std::memset(memory, std::to_integer<int>(poison), bytes);
  }
  return {};
}

result<void> kv_tensors::allocate_on_gpu(std::span<const std::uint64_t> layer_bytes, int gpu) {
  std::uint64_t all = 0;
  for (const auto bytes : layer_bytes)
    all += aligned(bytes);
  auto memory = gpu_memory::allocate(gpu, all);
  if (!memory)
    return tl::unexpected(std::move(memory.error()));
  if (auto ok = memory->fill(poison); !ok)
    return ok;
  gpu_ = std::move(*memory);
  auto* at = gpu_->data();
  for (const auto bytes : layer_bytes) {
    layers_.emplace_back(at, bytes);
    at += aligned(bytes);
  }
  return {};
}

} // namespace troupe::replay
