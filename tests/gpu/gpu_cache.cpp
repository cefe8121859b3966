#include "tests/gpu/gpu_cache.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <numeric>

namespace troupe::test {

bool has_gpu() {
  const auto devices = cuda_devices();
  if (!devices)
    std::cerr << "skipped: " << to_string(devices.error()) << '\n';
  return devices.has_value();
}

void must(cudaError_t code) {
  INFO(cudaGetErrorString(code));
  REQUIRE(code == cudaSuccess);
}

void must(const result<void>& done) {
  INFO((done ? std::string() : to_string(done.error())));
  REQUIRE(done.has_value());
}

gpu_cache::gpu_cache(const cache_shape& shape, std::uint32_t blocks) {
  const auto& g = shape.geometry;
  kv_cache_view view{g, blocks, {}, shape.blocks_per_page};
  const auto shapes = g.shapes();
  std::vector<std::uint64_t> sizes;
  for (const auto& s : shapes) {
    const std::array<std::uint64_t, 4> counts{blocks, s.parts, view.tokens_per_block(), s.heads};
    std::array<std::uint64_t, 4> strides{};
    auto size = s.content_bytes();
    for (auto i = shape.order.size(); i-- > 0;) {
      const auto axis = shape.order[i];
      if (i == shape.order.size() - 1 || axis == cache_shape::block)
        size += shape.gap;
      if (axis == cache_shape::block && shape.cross_layer)
        size *= shapes.size();
      strides[axis] = size;
      size *= counts[axis];
    }
    tensor_view tensor;
    tensor.bytes = size;
    tensor.block_stride = strides[cache_shape::block];
    tensor.part_stride = strides[cache_shape::part];
    tensor.token_stride = strides[cache_shape::token];
    tensor.head_stride = strides[cache_shape::head];
    view.layers.push_back(tensor);
    sizes.push_back(size + shape.shift);
  }
  if (shape.cross_layer)
    sizes.resize(1);
  for (const auto size : sizes) {
    host_.emplace_back(size, poison);
    auto memory = cuda::allocate_device<std::byte>(size);
    REQUIRE(memory.has_value());
    device_.push_back(std::move(*memory));
  }
  host_view_ = view;
  device_view_ = view;
  for (std::size_t layer = 0; layer < shapes.size(); ++layer) {
    const auto tensor = shape.cross_layer ? 0 : layer;
    const auto at = shape.shift + (shape.cross_layer ? layer * view.layers[0].block_stride / shapes.size() : 0);
    host_view_.layers[layer].base = host_[tensor].data() + at;
    device_view_.layers[layer].base = device_[tensor].get() + at;
    for (auto* x : {&host_view_, &device_view_})
      x->layers[layer].bytes = sizes[tensor] - at;
  }
  poison_all();
}

template <class Make>
void gpu_cache::fill_with(const Make& make) {
  for (std::size_t i = 0; i < host_.size(); ++i) {
    host_[i] = make(host_[i].size());
    must(cudaMemcpy(device_[i].get(), host_[i].data(), host_[i].size(), cudaMemcpyHostToDevice));
  }
  // The vectors have moved.
  for (std::size_t layer = 0; layer < host_view_.layers.size(); ++layer) {
    const auto tensor = host_.size() == 1 ? 0 : layer;
    host_view_.layers[layer].base = host_[tensor].data() + (device_view_.layers[layer].base - device_[tensor].get());
  }
}

void gpu_cache::fill(std::mt19937_64& random) {
  fill_with([&](std::size_t size) { return random_bytes(size, random); });
}

void gpu_cache::fill(workload::value_kind kind, std::mt19937_64& random) {
  fill_with([&](std::size_t size) {
    auto out = workload::make_values(kind, (size + 1) / 2, random);
    out.resize(size);
    return out;
  });
}

void gpu_cache::randomize(const std::vector<std::uint32_t>& blocks, std::mt19937_64& random) {
  const auto stride = host_view_.layers[0].block_stride;
  for (const auto block : blocks) {
    const auto at = block * stride;
    const auto bits = random_bytes(stride, random);
    std::ranges::copy(bits, host_[0].begin() + static_cast<std::ptrdiff_t>(at));
    must(cudaMemcpy(device_[0].get() + at, bits.data(), bits.size(), cudaMemcpyHostToDevice));
  }
}

void gpu_cache::poison_all() {
  for (std::size_t i = 0; i < host_.size(); ++i) {
    std::fill(host_[i].begin(), host_[i].end(), poison);
    must(cudaMemset(device_[i].get(), std::to_integer<int>(poison), host_[i].size()));
  }
}

bool gpu_cache::equal() const {
  for (std::size_t i = 0; i < host_.size(); ++i) {
    bytes back(host_[i].size());
    must(cudaMemcpy(back.data(), device_[i].get(), back.size(), cudaMemcpyDeviceToHost));
    if (back != host_[i])
      return false;
  }
  return true;
}

page_memory::page_memory(std::uint64_t page_bytes, std::size_t count, std::uint64_t distance)
    : distance_(distance == 0 ? page_bytes : distance), size_(distance_ * count),
      memory_(static_cast<std::byte*>(std::aligned_alloc(4096, (size_ + 4095) / 4096 * 4096))) {
  std::memset(memory_.get(), std::to_integer<int>(poison), size_);
}

bool page_memory::operator==(const page_memory& other) const {
  return size_ == other.size_ && std::memcmp(memory_.get(), other.memory_.get(), size_) == 0;
}

void page_memory::copy_from(const page_memory& other) {
  std::memcpy(memory_.get(), other.memory_.get(), size_);
}

bytes random_bytes(std::size_t n, std::mt19937_64& random) {
  bytes out((n + 7) / 8 * 8);
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const auto x = random();
    std::memcpy(out.data() + i, &x, sizeof x);
  }
  out.resize(n);
  return out;
}

std::vector<std::vector<std::uint32_t>> random_pages(const kv_cache_view& view, std::size_t count, bool with_null,
                                                     std::mt19937_64& random) {
  std::vector<std::uint32_t> all(view.blocks);
  std::iota(all.begin(), all.end(), 0U);
  std::shuffle(all.begin(), all.end(), random);
  REQUIRE(count * view.blocks_per_page <= all.size());
  std::vector<std::vector<std::uint32_t>> out(count);
  for (std::size_t i = 0; i < count * view.blocks_per_page; ++i)
    out[i / view.blocks_per_page].push_back(with_null && random() % 4 == 0 ? null_block : all[i]);
  return out;
}

std::vector<block_move> moves_of(const std::vector<std::vector<std::uint32_t>>& blocks, const page_memory& pages,
                                 std::uint64_t page_bytes) {
  std::vector<block_move> out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    auto& move = out.emplace_back();
    move.block = blocks[i].front();
    move.further_blocks = std::span(blocks[i]).subspan(1);
    move.page = pages.page(i);
    move.page_bytes = page_bytes;
  }
  return out;
}

} // namespace troupe::test
