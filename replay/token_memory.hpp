#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "engine_model/device.hpp"
#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::replay {

/// The paged KV cache of all workers of a model engine, in host memory: what stands in a token's slot is computed from
/// the token's content number, layer, part and rank, so that each byte of each token tells where it belongs.
///
/// Tensors are (2, blocks, block tokens, heads, head size). Addresses are computed here from that formula, not by the
/// code that moves pages, so that a mistake there cannot hide from the comparison. One thread.
class token_memory final : public engine::device {
public:
  /// `geometry` is that of a page, `blocks_per_page` blocks of which have a slot each for its tokens; `ranks[w]` is
  /// whose pages worker w has. All memory is poisoned. Errors: those of `make_kv_cache_view`; limit_exceeded where the
  /// system does not give as much memory.
  static result<std::unique_ptr<token_memory>> create(const kv_geometry& geometry, std::uint32_t blocks,
                                                      std::uint32_t blocks_per_page, std::vector<rank_number> ranks);

  /// The tensors of a worker, for a page mover. Valid as long as this object.
  const kv_cache_view& view(std::uint32_t worker) const { return views_[worker]; }

  void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                    std::span<const engine::content> contents) override;
  bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
             std::span<const engine::content> contents) override;

  /// Tokens that were compared, and those of which some byte was wrong.
  std::uint64_t compared() const noexcept { return compared_; }
  std::uint64_t wrong() const noexcept { return wrong_; }
  /// The first wrong byte, in words; empty without one.
  const std::string& first_wrong() const noexcept { return first_wrong_; }

private:
  struct unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* p) const noexcept;
  };

  /// One part of one layer of a slot: all heads follow each other.
  std::span<std::byte> row(std::uint32_t worker, std::size_t layer, std::uint32_t part, connector::block_id block,
                           std::uint32_t slot) const;

  std::vector<rank_number> ranks_;
  std::vector<kv_layer_shape> shapes_;
  std::uint32_t blocks_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::vector<std::unique_ptr<std::byte, unmap>> memory_;
  /// Of each worker and layer.
  std::vector<std::vector<std::span<std::byte>>> tensors_;
  std::vector<kv_cache_view> views_;
  std::uint64_t compared_ = 0;
  std::uint64_t wrong_ = 0;
  std::string first_wrong_;
};

} // namespace troupe::replay
