#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::cluster {

/// A frame of this node that stands in for a block: what is copied to the block goes there at once.
struct landing_frame {
  /// Where the page is to be; its size is the geometry's.
  std::byte* page = nullptr;
  /// The memory of the frame, for as long as somebody may write there.
  std::shared_ptr<const void> keeps{};
  /// What the page is there by now, verified. Of whoever copies, then of whoever is told that it is done.
  std::optional<io::page_checksum> arrived{};
};

/// Memory that pages of one rank pass through, on their way from another node to this one: as a KV cache whose blocks
/// lie as pages do, so that a copy is one piece for each layer.
///
/// A page that comes through a frame of its own needs no memory but the one that it stays in: then a frame of this node
/// stands in for the block, and nothing is ever written to the block itself.
class passing_memory {
public:
  passing_memory(const kv_geometry& geometry, std::uint32_t blocks);

  /// The memory is the owner's of this.
  const kv_cache_view& view() const noexcept { return view_; }
  /// All blocks, one behind the other, each as the payload of a page.
  std::span<std::byte> blocks() const noexcept { return {bytes_.get(), view_.geometry.page_bytes() * view_.blocks}; }

  /// From now on the frame stands in for the block, until null does. Any thread; so is the other one.
  void lead(std::uint32_t block, std::shared_ptr<landing_frame> to);
  /// Null: the block itself is written.
  std::shared_ptr<landing_frame> landing(std::uint32_t block) const;

private:
  std::unique_ptr<std::byte[]> bytes_;
  kv_cache_view view_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<landing_frame>> landings_;
};

/// As many blocks as have room in so many bytes; four at least, so that some arrive while others are taken over.
std::uint32_t passing_blocks(std::uint64_t bytes, std::uint64_t page_bytes) noexcept;

/// Which blocks of it are in use.
class block_shelf {
public:
  explicit block_shelf(std::uint32_t blocks = 0) : all_(blocks) {
    for (auto i = blocks; i > 0; --i)
      free_.push_back(i - 1);
  }

  std::size_t size() const noexcept { return all_; }
  std::size_t free() const noexcept { return free_.size(); }
  std::size_t in_use() const noexcept { return all_ - free_.size(); }
  /// There are so many.
  std::vector<std::uint32_t> take(std::size_t count) {
    std::vector<std::uint32_t> out(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
    free_.resize(free_.size() - count);
    return out;
  }
  void give_back(std::span<const std::uint32_t> blocks) { free_.insert(free_.end(), blocks.begin(), blocks.end()); }

private:
  std::size_t all_;
  std::vector<std::uint32_t> free_;
};

} // namespace troupe::cluster
