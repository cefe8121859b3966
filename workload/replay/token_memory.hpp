#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/gpu_stream.hpp"
#include "gpu/kv_layout.hpp"
#include "workload/engine_model/device.hpp"
#include "workload/replay/kv_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::replay {

/// The paged KV cache of all workers of a model engine, in host or GPU memory. The bytes of a token's slot are computed
/// from the token's content number, layer, part and rank, so that each byte identifies its place.
///
/// On a GPU the forward pass is as late as a real one: its writes go through a stream of the worker and arrive some
/// time after the call. A connector that does not wait for the engine's event therefore saves the old bytes, or has its
/// load overwritten.
///
/// Tensors are (2, blocks, block tokens, heads, head size). Addresses are computed here from that formula, not by the
/// code that moves pages, so that the comparison detects its mistakes. One thread.
class token_memory final : public engine::device {
public:
  /// `geometry` is that of a page, which consists of `blocks_per_page` blocks; `ranks[w]` is the rank of worker w's
  /// pages; `gpu` is the GPU of all workers. All memory is poisoned. Errors: those of `make_kv_cache_view`,
  /// `kv_tensors::allocate` and `gpu_stream::create`.
  static result<std::unique_ptr<token_memory>> create(const kv_geometry& geometry, std::uint32_t blocks,
                                                      std::uint32_t blocks_per_page, std::vector<rank_number> ranks,
                                                      std::optional<int> gpu = {});

  /// The tensors of a worker, for a page mover. Valid while this object lives.
  const kv_cache_view& view(std::uint32_t worker) const { return workers_[worker].view; }

  void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                    std::span<const engine::content> contents) override;
  void* written(std::uint32_t worker) override;
  bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
             std::span<const engine::content> contents) override;
  void judge(bool counts) override;

  /// Compared tokens, and those with a wrong byte.
  std::uint64_t compared() const noexcept { return compared_; }
  std::uint64_t wrong() const noexcept { return wrong_; }
  /// The first wrong byte, or the error of the GPU (a token that cannot be read is wrong), in words; empty without one.
  const std::string& first_wrong() const noexcept { return first_wrong_; }

private:
  struct worker_memory {
    kv_tensors tensors;
    kv_cache_view view;
    /// Only on a GPU.
    std::optional<gpu_stream> stream;
    /// Whether the stream is held already.
    bool is_late = false;
  };

  /// Consecutive slots of a block, for each layer and part: host memory where they can be accessed, and its place on
  /// the GPU.
  std::vector<gpu_memory::piece> window(const worker_memory& of, connector::block_id block, std::uint32_t first,
                                        std::size_t slots);
  /// Calls visit(layer, part, slot, bytes) for all heads of each token in one part of a layer, over a whole window.
  template <class Visit>
  void for_each_row(std::span<const gpu_memory::piece> window, std::size_t slots, Visit visit) const;
  bool note(const result<void>& done);

  std::vector<rank_number> ranks_;
  std::vector<kv_layer_shape> shapes_;
  std::uint32_t blocks_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::vector<worker_memory> workers_;
  /// The copies for windows on a GPU.
  std::vector<std::byte> copy_;
  /// Indexed by worker and layer.
  std::vector<std::vector<std::span<std::byte>>> tensors_;
  std::uint64_t compared_ = 0;
  std::uint64_t wrong_ = 0;
  std::string first_wrong_;
  /// Those of them that count.
  std::uint64_t wrong_settled_ = 0;
  std::string first_wrong_settled_;
};

} // namespace troupe::replay
