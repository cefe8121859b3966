#include "base/clock.hpp"
#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda_page_mover.hpp"
#include "gpu/remote_cache.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <cuda.h>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace troupe {

namespace {

using namespace cuda;

using handle_bytes = std::array<std::byte, 64>;
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(handle_bytes));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(handle_bytes));

/// How long the engine's work before a copy may take.
constexpr std::chrono::seconds event_patience{60};

/// The start and size of an allocation, from the driver.
result<std::pair<std::byte*, std::uint64_t>> allocation_around(void* address) {
  using address_range = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  const auto code = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault, nullptr);
#else
  const auto code = cudaGetDriverEntryPoint("cuMemGetAddressRange", &found, cudaEnableDefault, nullptr);
#endif
  if (auto ok = check(code, "looking for cuMemGetAddressRange"); !ok)
    return tl::unexpected(ok.error());
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto ask = reinterpret_cast<address_range>(found);
  if (ask == nullptr || ask(&base, &bytes, reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS)
    return fail(errc::device_error, "the driver does not report the size of another process's memory");
  return std::pair(reinterpret_cast<std::byte*>(base), std::uint64_t{bytes});
}

/// A mapped allocation of another process. A process has only one mapping of each, which the first close may end, so
/// the last owner closes it.
class mapped_allocation {
public:
  static result<mapped_allocation> open(int device, const handle_bytes& handle) {
    auto& all = table();
    const std::lock_guard guard(all.mutex);
    const key name(device, handle);
    auto known = all.mappings.find(name);
    if (known == all.mappings.end()) {
      cudaIpcMemHandle_t raw;
      std::memcpy(&raw, handle.data(), sizeof raw);
      void* address = nullptr;
      if (auto ok = check(cudaSetDevice(device), "using the GPU"); !ok)
        return tl::unexpected(ok.error());
      if (auto ok = check(cudaIpcOpenMemHandle(&address, raw, cudaIpcMemLazyEnablePeerAccess),
                          "opening GPU memory of another process");
          !ok)
        return tl::unexpected(ok.error());
      auto range = allocation_around(address);
      if (!range) {
        static_cast<void>(cudaIpcCloseMemHandle(address));
        return tl::unexpected(range.error());
      }
      known = all.mappings.emplace(name, mapping{address, range->first, range->second, 0}).first;
    }
    ++known->second.owners;
    return mapped_allocation(name, known->second.base, known->second.bytes);
  }

  mapped_allocation(mapped_allocation&& other) noexcept
      : name_(std::exchange(other.name_, std::nullopt)), base_(other.base_), bytes_(other.bytes_) {}
  mapped_allocation& operator=(mapped_allocation&&) = delete;

  ~mapped_allocation() {
    if (!name_)
      return;
    auto& all = table();
    const std::lock_guard guard(all.mutex);
    const auto known = all.mappings.find(*name_);
    if (known == all.mappings.end() || --known->second.owners > 0)
      return;
    static_cast<void>(cudaSetDevice(name_->first));
    static_cast<void>(cudaIpcCloseMemHandle(known->second.address));
    static_cast<void>(cudaGetLastError());
    all.mappings.erase(known);
  }

  /// Error: `out_of_range` where the range is not entirely in the allocation.
  result<std::byte*> at(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset)
      return fail(errc::out_of_range, fmt::format("{} bytes at {} of GPU memory that has {}", bytes, offset, bytes_));
    return base_ + offset;
  }

private:
  using key = std::pair<int, handle_bytes>;
  struct mapping {
    void* address = nullptr;
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    std::size_t owners = 0;
  };
  struct mapping_table {
    std::mutex mutex;
    std::map<key, mapping> mappings;
  };

  static mapping_table& table() {
    // Never destroyed: caches may outlive it.
    static auto* const out = new mapping_table;
    return *out;
  }

  mapped_allocation(key name, std::byte* base, std::uint64_t bytes) : name_(name), base_(base), bytes_(bytes) {}

  std::optional<key> name_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Polls, since an event of a dead process may never occur: a stream that waited for it would be stuck.
template <class Happened>
result<void> await(Happened happened) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto pause = std::chrono::microseconds(5);; pause = std::min(pause * 2, std::chrono::microseconds(200))) {
    auto done = happened();
    if (!done)
      return tl::unexpected(done.error());
    if (*done)
      return {};
    if (std::chrono::steady_clock::now() - begin > event_patience)
      return fail(errc::timeout, "the event of another process did not occur in time");
    std::this_thread::sleep_for(pause);
  }
}

result<void> await_cuda_event(std::string_view handle) {
  cudaIpcEventHandle_t raw;
  std::memcpy(&raw, handle.data(), sizeof raw);
  cudaEvent_t opened = nullptr;
  if (auto ok = check(cudaIpcOpenEventHandle(&opened, raw), "opening an event of another process"); !ok)
    return ok;
  const event owner(opened);
  return await([&]() -> result<bool> {
    const auto code = cudaEventQuery(opened);
    if (code != cudaErrorNotReady)
      return check(code, "querying an event of another process").map([] { return true; });
    static_cast<void>(cudaGetLastError());
    return false;
  });
}

std::uint64_t big_endian_at(std::string_view bytes, std::size_t at) noexcept {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < sizeof out; ++i)
    out = out << 8U | static_cast<unsigned char>(bytes[at + i]);
  return out;
}

/// A version, a memory handle, the offset of a number in it, and its value once the event has occurred. Engines that
/// share nothing but the GPU send these.
constexpr std::size_t counted_event_bytes = 1 + 64 + 8 + 8;
constexpr char counted_event_version = 1;

result<void> await_counted_event(int device, std::string_view event) {
  handle_bytes handle{};
  std::memcpy(handle.data(), event.data() + 1, handle.size());
  const auto offset = big_endian_at(event, 65);
  const auto least = big_endian_at(event, 73);
  auto memory = mapped_allocation::open(device, handle);
  if (!memory)
    return tl::unexpected(memory.error());
  const auto at = memory->at(offset, sizeof(std::uint64_t));
  if (!at)
    return tl::unexpected(at.error());
  return await([&]() -> result<bool> {
    std::uint64_t now = 0;
    auto ok = check(cudaMemcpyAsync(&now, *at, sizeof now, cudaMemcpyDeviceToHost, cudaStreamPerThread),
                    "reading the number of an event");
    if (ok)
      ok = check(cudaStreamSynchronize(cudaStreamPerThread), "reading the number of an event");
    if (!ok)
      return tl::unexpected(ok.error());
    return now >= least;
  });
}

result<void> await_event(int device, std::string_view event) {
  if (auto ok = check(cudaSetDevice(device), "using the GPU"); !ok)
    return ok;
  if (event.size() == sizeof(cudaIpcEventHandle_t))
    return await_cuda_event(event);
  if (event.size() == counted_event_bytes && event.front() == counted_event_version)
    return await_counted_event(device, event);
  return fail(errc::unsupported, fmt::format("an event of {} bytes", event.size()));
}

std::string hex_of(const cudaUUID_t& x) {
  std::string out;
  for (const auto byte : x.bytes)
    out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

result<int> device_called(std::string_view uuid) {
  std::string wanted;
  for (const auto c : uuid.starts_with("GPU-") ? uuid.substr(4) : uuid)
    if (c != '-')
      wanted.push_back(static_cast<char>(c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c));
  int count = 0;
  if (auto ok = check(cudaGetDeviceCount(&count), "looking for GPUs"); !ok)
    return fail(errc::unsupported, ok.error().text);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (auto ok = check(cudaGetDeviceProperties(&properties, i), "asking for a GPU's properties"); !ok)
      return tl::unexpected(ok.error());
    if (hex_of(properties.uuid) == wanted)
      return i;
  }
  return fail(errc::unsupported, fmt::format("this process sees no GPU {} among its {}", uuid.substr(0, 64), count));
}

/// Represents runs as layers, with the bytes of a block divided evenly over its tokens: a block is contiguous.
result<kv_cache_view> view_of(const remote_layout& layout, const std::vector<std::byte*>& bases) {
  const auto run_bytes = layout.runs.front().bytes;
  if (run_bytes % layout.block_tokens != 0 ||
      std::ranges::any_of(layout.runs, [&](const block_run& x) { return x.bytes != run_bytes; }))
    return fail(errc::unsupported, "a KV cache whose layers have blocks of different sizes");
  const auto token_bytes = run_bytes / layout.block_tokens;
  kv_cache_view out;
  auto& shape = out.geometry;
  shape.element_bytes = token_bytes % 4 == 0 ? 4 : token_bytes % 2 == 0 ? 2 : 1;
  shape.layers = static_cast<std::uint32_t>(layout.runs.size());
  shape.parts = 1;
  shape.heads = 1;
  shape.head_size = static_cast<std::uint32_t>(token_bytes / shape.element_bytes);
  shape.block_tokens = layout.block_tokens * layout.blocks_per_page;
  out.blocks = layout.blocks;
  out.blocks_per_page = layout.blocks_per_page;
  out.opaque_blocks = true;
  for (const auto& run : layout.runs)
    out.layers.push_back({bases[run.memory] + run.offset,
                          (std::uint64_t{layout.blocks} - 1) * run.block_stride + run_bytes, run.block_stride, 0,
                          token_bytes, run_bytes});
  return out;
}

class remote_gpu_cache final : public remote_cache {
public:
  remote_gpu_cache(int device, std::vector<share_counter> counters, std::vector<mapped_allocation> memory,
                   std::unique_ptr<page_mover> mover)
      : device_(device), counters_(std::move(counters)), memory_(std::move(memory)), mover_(std::move(mover)) {}

  ~remote_gpu_cache() override {
    mover_.reset();
    memory_.clear();
    count_down(counters_);
  }

  result<void> gather(std::span<block_move> moves, std::string_view event) override {
    auto ok = await_event(device_, event);
    return ok ? mover_->gather(moves) : ok;
  }

  result<void> scatter(std::span<block_move> moves, std::string_view event) override {
    auto ok = await_event(device_, event);
    return ok ? mover_->scatter(moves) : ok;
  }

  result<void> prepare(std::span<std::byte> memory) override { return mover_->prepare(memory); }

private:
  int device_;
  std::vector<share_counter> counters_;
  std::vector<mapped_allocation> memory_;
  std::unique_ptr<page_mover> mover_;
};

} // namespace

result<std::unique_ptr<remote_cache>> open_remote_gpu_cache(const remote_layout& layout) {
  if (auto ok = validate(layout); !ok)
    return tl::unexpected(std::move(ok.error()));
  std::optional<int> device;
  std::vector<mapped_allocation> memory;
  std::vector<std::byte*> bases;
  memory.reserve(layout.memories.size());
  for (const auto& x : layout.memories) {
    const auto* handle = std::get_if<gpu_memory_handle>(&x);
    if (handle == nullptr)
      return fail(errc::invalid_argument, "a KV cache that is not in the memory of a GPU");
    const auto named = device_called(handle->device);
    if (!named)
      return tl::unexpected(named.error());
    if (device.value_or(*named) != *named)
      return fail(errc::unsupported, "a KV cache on several GPUs");
    device = *named;
    auto opened = mapped_allocation::open(*device, handle->handle);
    if (!opened)
      return tl::unexpected(opened.error());
    const auto base = opened->at(handle->offset, handle->bytes);
    if (!base)
      return tl::unexpected(base.error());
    memory.push_back(std::move(*opened));
    bases.push_back(*base);
  }
  auto view = view_of(layout, bases);
  if (!view)
    return tl::unexpected(std::move(view.error()));
  cuda_mover_options options;
  options.device = *device;
  options.calls_at_once = 1;
  auto mover = make_cuda_page_mover(std::move(*view), options);
  if (!mover)
    return tl::unexpected(std::move(mover.error()));
  return std::make_unique<remote_gpu_cache>(*device, layout.counters, std::move(memory), std::move(*mover));
}

} // namespace troupe
