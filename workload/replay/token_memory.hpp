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

/// The paged KV cache of all workers of a model engine, in host memory or in that of a GPU: what stands in a token's
/// slot is computed from the token's content number, layer, part and rank, so that each byte of each token tells where
/// it belongs.
///
/// On a GPU the forward pass is as late as a real one: what it writes goes through a stream of the worker and arrives
/// some time after the call, so that a connector that does not wait for the engine's event saves what was there before,
/// or has its load written over.
///
/// Tensors are (2, blocks, block tokens, heads, head size). Addresses are computed here from that formula, not by the
/// code that moves pages, so that a mistake there cannot hide from the comparison. One thread.
class token_memory final : public engine::device {
public:
  /// `geometry` is that of a page, `blocks_per_page` blocks of which have a slot each for its tokens; `ranks[w]` is
  /// whose pages worker w has; `gpu` is the GPU of all workers. All memory is poisoned. Errors: those of
  /// `make_kv_cache_view`, `kv_tensors::allocate` and `gpu_stream::create`.
  static result<std::unique_ptr<token_memory>> create(const kv_geometry& geometry, std::uint32_t blocks,
                                                      std::uint32_t blocks_per_page, std::vector<rank_number> ranks,
                                                      std::optional<int> gpu = {});

  /// The tensors of a worker, for a page mover. Valid as long as this object.
  const kv_cache_view& view(std::uint32_t worker) const { return workers_[worker].view; }

  void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                    std::span<const engine::content> contents) override;
  void* written(std::uint32_t worker) override;
  bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
             std::span<const engine::content> contents) override;
  void judge(bool counts) override;

  /// Tokens that were compared, and those of which some byte was wrong.
  std::uint64_t compared() const noexcept { return compared_; }
  std::uint64_t wrong() const noexcept { return wrong_; }
  /// The first wrong byte, or why the GPU could not be written or read (a token that cannot be read is wrong), in
  /// words; empty without one.
  const std::string& first_wrong() const noexcept { return first_wrong_; }

private:
  struct worker_memory {
    kv_tensors tensors;
    kv_cache_view view;
    /// On a GPU.
    std::optional<gpu_stream> stream;
    /// Whether the stream is being held up already.
    bool is_late = false;
  };

  /// Slots that follow each other in a block, for each layer and part: memory of the host where they can be seen or
  /// written, and where that belongs on the GPU.
  std::vector<gpu_memory::piece> window(const worker_memory& of, connector::block_id block, std::uint32_t first,
                                        std::size_t slots);
  /// Calls visit(layer, part, slot, bytes) for all heads of a token in one part of a layer, for all that a window has.
  template <class Visit>
  void for_each_row(std::span<const gpu_memory::piece> window, std::size_t slots, Visit visit) const;
  bool note(const result<void>& done);

  std::vector<rank_number> ranks_;
  std::vector<kv_layer_shape> shapes_;
  std::uint32_t blocks_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::vector<worker_memory> workers_;
  /// What windows on a GPU show.
  std::vector<std::byte> copy_;
  /// Of each worker and layer.
  std::vector<std::vector<std::span<std::byte>>> tensors_;
  std::uint64_t compared_ = 0;
  std::uint64_t wrong_ = 0;
  std::string first_wrong_;
  /// Of these, those that count.
  std::uint64_t wrong_settled_ = 0;
  std::string first_wrong_settled_;
};

} // namespace troupe::replay
