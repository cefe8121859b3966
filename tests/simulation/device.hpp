#pragma once

#include "base/digest.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "gpu/page_mover.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::simulation {

/// The content of one rank's page of a key: different for every key and rank.
std::vector<std::byte> page_of(const key_digest& key, rank_number rank, std::uint64_t bytes);

/// The KV cache of a client on one rank: memory for the real page mover, and an engine's record of the content of its
/// blocks, which is written and compared byte by byte and by no mover. A block that belongs to no task holds a pattern
/// of its own, so that a late write to it is detected.
class device {
public:
  device(const kv_geometry& geometry, std::uint32_t blocks, rank_number rank);

  /// The view for the copy engine.
  std::unique_ptr<page_mover> make_mover() const;

  /// Blocks that no task has, up to `most` of them. Clears `sound` if one of them was written.
  std::vector<std::uint32_t> take(std::uint32_t most, bool& sound);
  void give_back(const std::vector<std::uint32_t>& blocks);
  bool free_blocks_are_sound();

  void fill(std::uint32_t block, const key_digest& key);
  bool holds(std::uint32_t block, const key_digest& key);

  /// Writes the block as a load without any check would.
  void write(std::uint32_t block, const std::vector<std::byte>& page);

private:
  bool equals(std::uint32_t block, const std::vector<std::byte>& page);
  /// Calls `visit(bytes in the cache, the same bytes in the page)` for each head of each token.
  template <class Visit>
  void for_each_piece(std::uint32_t block, Visit visit);
  key_digest mark_of(std::uint32_t block) const noexcept;

  kv_geometry geometry_;
  rank_number rank_;
  std::vector<std::vector<std::byte>> tensors_;
  kv_cache_view view_;
  std::uint32_t blocks_;
  std::vector<std::uint32_t> free_;
  /// Per block, how often it was given back: makes the pattern of a free block a new one each time.
  std::vector<std::uint64_t> uses_;
};

} // namespace troupe::simulation
