#include "gpu/cuda_page_mover.hpp"

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/locked_memory.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_pipeline.hpp"
#include "gpu/cuda/resident_plan.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <condition_variable>
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

/// A pool of pipelines of one direction; each call takes one exclusively.
class pipeline_pool {
public:
  void add(std::unique_ptr<page_pipeline> pipeline) { free_.push_back(std::move(pipeline)); }
  /// None may be in use.
  void clear() { free_.clear(); }

  std::unique_ptr<page_pipeline> take() {
    std::unique_lock guard(mutex_);
    came_back_.wait(guard, [this] { return !free_.empty(); });
    auto pipeline = std::move(free_.back());
    free_.pop_back();
    return pipeline;
  }

  void give_back(std::unique_ptr<page_pipeline> pipeline) {
    {
      std::lock_guard guard(mutex_);
      free_.push_back(std::move(pipeline));
    }
    came_back_.notify_one();
  }

private:
  std::mutex mutex_;
  std::condition_variable came_back_;
  std::vector<std::unique_ptr<page_pipeline>> free_;
};

/// Resources that all movers of this process for one device share.
struct device_ways {
  shared_streams gathers;
  shared_streams scatters;

  shared_streams& of(move_direction direction) { return direction == move_direction::gather ? gathers : scatters; }

  /// `device` must be the current device.
  static result<std::shared_ptr<device_ways>> of_device(int device) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<device_ways>> known;
    const std::lock_guard guard(mutex);
    if (auto found = known[device].lock())
      return found;
    auto out = std::make_shared<device_ways>();
    for (const auto direction : {move_direction::gather, move_direction::scatter}) {
      auto streams = page_streams::make(direction);
      if (!streams)
        return tl::unexpected(streams.error());
      out->of(direction).streams = std::move(*streams);
    }
    known[device] = out;
    return out;
  }
};

class cuda_page_mover final : public page_mover {
public:
  cuda_page_mover(kv_cache_view view, const cuda_mover_options& options) : view_(std::move(view)), options_(options) {
    options_.calls_at_once = std::max(options_.calls_at_once, 1U);
  }

  ~cuda_page_mover() override {
    const beside_captures free;
    // Released here, before the capture guard ends: later it would end an engine's capture.
    locks_.clear();
    gathering_.clear();
    scattering_.clear();
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
    auto ways = device_ways::of_device(options_.device);
    if (!ways)
      return tl::unexpected(ways.error());
    ways_ = std::move(*ways);
    for (std::uint32_t i = 0; i < options_.calls_at_once; ++i)
      for (const auto direction : {move_direction::gather, move_direction::scatter}) {
        const bool codes = options_.encodes || direction == move_direction::scatter;
        auto pipeline =
            page_pipeline::create(plan_.view(), direction, options_.part_bytes, codes, ways_->of(direction));
        if (!pipeline)
          return tl::unexpected(pipeline.error());
        pool(direction).add(std::move(*pipeline));
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
  pipeline_pool& pool(move_direction direction) {
    return direction == move_direction::gather ? gathering_ : scattering_;
  }

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
    std::shared_ptr<const std::vector<locked_range>> locked;
    {
      std::lock_guard guard(mutex_);
      locked = prepared_;
    }
    return by_encoding(moves, [&](std::span<block_move> some, page_encoding encoding) {
      return run(direction, some, encoding, *locked, events);
    });
  }

  result<void> run(move_direction direction, std::span<block_move> moves, page_encoding encoding,
                   std::span<const locked_range> locked, const device_events& events) {
    auto pipeline = pool(direction).take();
    auto& under_way = ways_->of(direction).bytes;
    const auto bytes = moves.size() * codec::stored_bytes(encoding, plan_.view().page_bytes);
    const auto ahead = under_way.fetch_add(bytes, std::memory_order_relaxed);
    auto done = pipeline->run(moves, encoding, {locked, options_.direct_bytes, ahead}, events);
    under_way.fetch_sub(bytes, std::memory_order_relaxed);
    if (!done)
      note(done.error());
    pool(direction).give_back(std::move(pipeline));
    return done;
  }

  /// Keeps the error if the device is unusable after it.
  void note(const error& e) {
    if (works())
      return;
    std::lock_guard guard(mutex_);
    if (!failure_)
      failure_ = e;
  }

  kv_cache_view view_;
  cuda_mover_options options_;
  resident_plan plan_;
  /// Outlives the pipelines.
  std::shared_ptr<device_ways> ways_;
  pipeline_pool gathering_;
  pipeline_pool scattering_;
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
