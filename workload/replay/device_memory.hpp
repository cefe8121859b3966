#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/kv_layout.hpp"
#include "workload/replay/kv_tensors.hpp"
#include "workload/replay/pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::replay {

/// A byte of a block with a wrong value.
struct wrong_byte {
  std::uint32_t layer = 0;
  std::uint32_t part = 0;
  std::uint32_t token = 0;
  std::uint32_t head = 0;
  /// The offset in the head's content.
  std::uint64_t content_offset = 0;
  /// The offset in the canonical page.
  std::uint64_t page_offset = 0;
  std::byte expected{};
  std::byte found{};
};

/// "layer 3, V, token 7, head 0, byte 12 (page offset 4108): 0x3f, must be 0x80"
std::string to_string(const wrong_byte& wrong);

/// The paged KV cache of one rank of a replay, in host or GPU memory. It allocates blocks in scattered order, poisons
/// them where nothing was loaded, and knows the expected value of every byte of a block.
///
/// Addresses are computed here from the layout's index formula, not by the code that moves pages, so that the
/// comparison detects its mistakes.
///
/// One thread allocates blocks; fill, verify and poison of different blocks may run concurrently.
class device_memory {
public:
  struct options {
    kv_layout layout = kv_layout::split;
    /// The seed of the allocation order.
    std::uint64_t seed = 1;
    /// The GPU that holds the tensors; host memory if not given.
    std::optional<int> gpu{};
    page_values values = page_values::random;
  };

  /// Allocates and poisons the tensors. Errors: those of `make_kv_cache_view` and `kv_tensors::allocate`.
  static result<device_memory> create(const kv_geometry& geometry, std::uint32_t blocks, const options& how);

  /// The tensors, for a page mover. Valid while this object, or the one it was moved to, lives.
  const kv_cache_view& view() const noexcept { return view_; }

  std::uint32_t free_blocks() const noexcept { return static_cast<std::uint32_t>(free_.size()); }

  /// Allocates `count` scattered blocks. Error: `full` where fewer are free (none is allocated then).
  result<std::vector<std::uint32_t>> take(std::size_t count);

  /// Writes the content of the page of (key, rank), as a forward pass would.
  void fill(std::uint32_t block, const key_digest& key, rank_number rank);

  /// The first byte, in the order of the page, that differs from the content of (key, rank).
  std::optional<wrong_byte> verify(std::uint32_t block, const key_digest& key, rank_number rank) const;

  /// Overwrites the block, so that a load that moves nothing is detected.
  void poison(std::uint32_t block);

  /// Whether every byte of the block is poison.
  bool is_poisoned(std::uint32_t block) const;

  /// The error of the GPU, if it could not be written or read: results of this object do not count then. A block that
  /// cannot be read is never verified as right.
  std::optional<error> failure() const;

private:
  device_memory() = default;

  /// The address of the content of one head, or of all heads and tokens that are contiguous with it.
  std::byte* address(std::uint32_t layer, std::uint32_t block, std::uint32_t part, std::uint32_t token,
                     std::uint32_t head) const noexcept;

  /// Host memory with a block: the block itself, or a copy of it.
  class window;

  /// Calls visit(bytes, page offset) for the pieces of a block in page order, until it returns false.
  template <class Visit>
  void for_each_piece(const window& block, Visit visit) const;
  void note(const result<void>& done) const;

  wrong_byte locate(std::uint64_t page_offset) const noexcept;

  kv_layout layout_ = kv_layout::split;
  page_values values_ = page_values::random;
  kv_cache_view view_;
  /// Indexed by layer.
  std::vector<kv_layer_shape> shapes_;
  kv_tensors tensors_;
  struct failure_note {
    std::mutex mutex;
    std::optional<error> first;
  };
  std::unique_ptr<failure_note> failure_ = std::make_unique<failure_note>();
  std::vector<std::uint32_t> free_;
};

/// A plausible geometry whose page has `page_bytes` bytes, for `--page-bytes`: K and V of 2-byte elements, heads of 128
/// (or 64), up to 8 heads, 16 tokens per block, more where that keeps the layers below 129. Error: `invalid_argument`
/// with the rule (a multiple of 4 KiB from 4 KiB to 256 MiB).
result<kv_geometry> geometry_for_page_bytes(std::uint64_t page_bytes);

} // namespace troupe::replay
