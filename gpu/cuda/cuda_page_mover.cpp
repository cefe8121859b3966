#include "gpu/cuda_page_mover.hpp"

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/device_ways.hpp"
#include "gpu/cuda/locked_memory.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/resident_plan.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

using namespace cuda;

/// Checks that the tensors are memory of this device: a kernel that gets any other memory ends the process's use of it.
result<void> check_tensors(const kv_cache_view& view, int device) {
  for (std::size_t layer = 0; layer < view.layers.size(); ++layer) {
    const auto& tensor = view.layers[layer];
    for (const auto* at : {tensor.base, tensor.base + tensor.bytes - 1}) {
      cudaPointerAttributes where{};
      if (auto ok = check(cudaPointerGetAttributes(&where, at), "querying the location of a tensor"); !ok)
        return ok;
      if (where.type != cudaMemoryTypeDevice || where.device != device)
        return fail(errc::invalid_argument, fmt::format("layer {} is not in the memory of GPU {}", layer, device));
    }
  }
  return {};
}

class cuda_page_mover final : public page_mover {
public:
  cuda_page_mover(kv_cache_view view, const cuda_mover_options& options) : view_(std::move(view)), options_(options) {
    options_.calls_at_once = std::max(options_.calls_at_once, 1U);
  }

  ~cuda_page_mover() override {
    const beside_captures free;
    // Released here, before the capture guard ends: later it would end an engine's capture.
    locks_.clear();
    ways_.reset();
    plan_ = {};
  }

  result<void> start() {
    const beside_captures free;
    if (auto ok = check(cudaSetDevice(options_.device), fmt::format("using GPU {}", options_.device)); !ok)
      return ok;
    if (auto ok = check_tensors(view_, options_.device); !ok)
      return ok;
    auto plan = make_page_plan(view_);
    if (!plan)
      return tl::unexpected(plan.error());
    auto resident = resident_plan::create(*plan);
    if (!resident)
      return tl::unexpected(resident.error());
    plan_ = std::move(*resident);
    parts_ = part_sizes::of(plan->page_bytes, plan->blocks_per_page, options_.part_bytes, plan->codec_tiles);
    auto ways = device_ways::of_device(options_.device);
    if (!ways)
      return tl::unexpected(ways.error());
    ways_ = std::move(*ways);
    for (const auto direction : {move_direction::gather, move_direction::scatter}) {
      const auto memory = pipeline_memory::of(parts_, plan->page_bytes, direction, options_.encodes);
      if (auto ok = ways_->reserve(direction, options_.calls_at_once, memory); !ok)
        return ok;
    }
    return {};
  }

  const kv_cache_view& cache() const noexcept override { return view_; }

  std::uint32_t calls_at_once(move_direction) const noexcept override { return options_.calls_at_once; }

  result<void> prepare(std::span<std::byte> memory) override {
    if (memory.empty())
      return {};
    const beside_captures free;
    if (auto ok = check(cudaSetDevice(options_.device), "using the GPU"); !ok)
      return ok;
    auto lock = locked_memory::lock(memory);
    if (!lock)
      return tl::unexpected(lock.error());
    void* device = nullptr;
    if (auto ok = check(cudaHostGetDevicePointer(&device, memory.data(), 0), "mapping shared memory for the GPU"); !ok)
      return ok;
    std::lock_guard guard(mutex_);
    auto ranges = *prepared_;
    const auto at = std::ranges::lower_bound(ranges, memory.data(), {}, &locked_range::host);
    ranges.insert(at, {memory.data(), memory.size(), static_cast<std::byte*>(device)});
    prepared_ = std::make_shared<const std::vector<locked_range>>(std::move(ranges));
    locks_.insert_or_assign(memory.data(), std::move(*lock));
    return {};
  }

  bool preparing_takes_time() const noexcept override { return true; }

  void forget(std::span<std::byte> memory) override {
    const beside_captures free;
    std::lock_guard guard(mutex_);
    auto ranges = *prepared_;
    const auto at = std::ranges::find(ranges, memory.data(), &locked_range::host);
    if (at == ranges.end())
      return;
    locks_.erase(at->host);
    ranges.erase(at);
    prepared_ = std::make_shared<const std::vector<locked_range>>(std::move(ranges));
  }

  std::optional<error> failure() const override {
    std::lock_guard guard(mutex_);
    return failure_;
  }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    return run(move_direction::gather, moves, events);
  }

  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    return run(move_direction::scatter, moves, events);
  }

  result<void> run(move_direction direction, std::span<block_move> moves, const device_events& events) {
    if (auto ok = validate(view_, moves); !ok)
      return ok;
    if (direction == move_direction::gather && !options_.encodes)
      for (auto& move : moves)
        move.encoding = page_encoding::raw;
    if (auto broken = failure())
      return tl::unexpected(std::move(*broken));
    const beside_captures free;
    if (auto ok = check(cudaSetDevice(options_.device), "using the GPU"); !ok)
      return ok;
    if (events.ready != nullptr)
      if (auto ok = noted(ways_->await(static_cast<cudaEvent_t>(events.ready))); !ok)
        return ok;
    std::shared_ptr<const std::vector<locked_range>> locked;
    {
      std::lock_guard guard(mutex_);
      locked = prepared_;
    }
    return by_encoding(moves, [&](std::span<block_move> some, page_encoding encoding) {
      return noted(ways_->run(direction, {plan_.view(), parts_}, some, encoding, *locked, options_.direct_bytes));
    });
  }

  /// Keeps the error if the device is unusable after it.
  result<void> noted(result<void> done) {
    if (!done && !works()) {
      std::lock_guard guard(mutex_);
      if (!failure_)
        failure_ = done.error();
    }
    return done;
  }

  kv_cache_view view_;
  cuda_mover_options options_;
  resident_plan plan_;
  part_sizes parts_;
  std::shared_ptr<device_ways> ways_;
  mutable std::mutex mutex_;
  std::map<std::byte*, locked_memory> locks_;
  /// In order of address. Replaced as a whole: running calls keep the version with which they began.
  std::shared_ptr<const std::vector<locked_range>> prepared_ = std::make_shared<std::vector<locked_range>>();
  std::optional<error> failure_;
};

int numa_node_of(int device) {
  char id[32]{};
  if (cudaDeviceGetPCIBusId(id, sizeof id, device) != cudaSuccess)
    return -1;
  std::string text(id);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file("/sys/bus/pci/devices/" + text + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

} // namespace

result<std::vector<cuda_device>> cuda_devices() {
  int count = 0;
  if (auto ok = check(cudaGetDeviceCount(&count), "looking for GPUs"); !ok)
    return fail(errc::unsupported, ok.error().text);
  std::vector<cuda_device> out;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (auto ok = check(cudaGetDeviceProperties(&properties, i), "querying a GPU's properties"); !ok)
      return tl::unexpected(ok.error());
    out.push_back({properties.name, properties.totalGlobalMem, numa_node_of(i)});
  }
  if (out.empty())
    return fail(errc::unsupported, "this machine has no GPU that CUDA can use");
  return out;
}

result<std::unique_ptr<page_mover>> make_cuda_page_mover(kv_cache_view view, const cuda_mover_options& options) {
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  auto mover = std::make_unique<cuda_page_mover>(std::move(view), options);
  if (auto ok = mover->start(); !ok)
    return tl::unexpected(ok.error());
  return mover;
}

} // namespace troupe
