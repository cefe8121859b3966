#pragma once

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda_page_mover.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

/// A paged KV cache in the memory of a GPU with a twin in host memory: the page mover for host memory, proven on its
/// own, says what the one for GPUs must do.

namespace troupe::test {

using bytes = std::vector<std::byte>;

inline constexpr std::byte poison{0xa5};

/// Whether there is a GPU; prints the reason to stderr if not, which ctest takes for "skipped".
bool has_gpu();
#define TROUPE_NEEDS_GPU()                                                                                             \
  if (!has_gpu())                                                                                                      \
  return

void must(cudaError_t code);
void must(const result<void>& done);

/// The parameters of a test: strides as an order of the axes, with gaps.
struct cache_shape {
  enum axis : std::uint8_t { block, part, token, head };

  std::string name;
  kv_geometry geometry;
  std::vector<axis> order{part, block, token, head};
  /// Bytes behind the innermost axis and behind each block.
  std::uint64_t gap = 0;
  /// All layers in one tensor, the layers of a block side by side.
  bool cross_layer = false;
  std::uint32_t blocks_per_page = 1;
  /// Bytes by which each tensor's begin is off any alignment.
  std::uint64_t shift = 0;
};

class gpu_cache {
public:
  gpu_cache(const cache_shape& shape, std::uint32_t blocks);

  const kv_cache_view& device_view() const noexcept { return device_view_; }
  const kv_cache_view& host_view() const noexcept { return host_view_; }
  std::uint64_t page_bytes() const noexcept { return device_view_.geometry.page_bytes(); }

  /// Fills both with the same random bytes.
  void fill(std::mt19937_64& random);
  /// The same with elements of BF16.
  void fill(workload::value_kind kind, std::mt19937_64& random);
  /// Gives these blocks random bits; for a cache whose layers are one tensor with blocks outermost.
  void randomize(const std::vector<std::uint32_t>& blocks, std::mt19937_64& random);
  void poison_all();
  /// Whether GPU and twin hold the same bytes, gaps included.
  bool equal() const;

private:
  template <class Make>
  void fill_with(const Make& make);

  std::vector<bytes> host_;
  std::vector<cuda::device_memory<std::byte>> device_;
  kv_cache_view device_view_;
  kv_cache_view host_view_;
};

/// Memory for pages, poisoned.
class page_memory {
public:
  page_memory(std::uint64_t page_bytes, std::size_t count, std::uint64_t distance = 0);

  std::byte* page(std::size_t i) const noexcept { return memory_.get() + i * distance_; }
  std::span<std::byte> all() const noexcept { return {memory_.get(), size_}; }
  bool operator==(const page_memory& other) const;
  void copy_from(const page_memory& other);

private:
  std::uint64_t distance_;
  std::size_t size_;
  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<std::byte, release> memory_;
};

bytes random_bytes(std::size_t n, std::mt19937_64& random);

/// `count` lists of different blocks, as pages of the cache need them; every so often one is null.
std::vector<std::vector<std::uint32_t>> random_pages(const kv_cache_view& view, std::size_t count, bool with_null,
                                                     std::mt19937_64& random);
std::vector<block_move> moves_of(const std::vector<std::vector<std::uint32_t>>& blocks, const page_memory& pages,
                                 std::uint64_t page_bytes);

} // namespace troupe::test
