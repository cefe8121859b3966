#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::cluster {

/// A frame of this node that stands in for a block: a copy to the block goes to the frame instead.
struct target_frame {
  /// The target of the page; the geometry has its size.
  std::byte* page = nullptr;
  /// The memory of the frame, kept for as long as it may be written to.
  std::shared_ptr<const void> keeps{};
  /// What the frame has of the page, once it is verified. The copy thread sets it; after the completion the receiver
  /// reads it.
  std::optional<io::stored_payload> arrived{};
};

/// The staging buffer of one rank, for pages on their way from another node to this one. It looks like a KV cache whose
/// blocks have the layout of a page, so a copy is one piece for each layer.
///
/// A page that is copied into a frame directly needs no staging memory: then the frame stands in for the block, and the
/// block itself is not written.
class staging_buffer {
public:
  staging_buffer(const kv_geometry& geometry, std::uint32_t blocks);

  /// The view refers to memory of this object, whose owner keeps it alive.
  const kv_cache_view& view() const noexcept { return view_; }
  /// All blocks, one behind the other, each as the payload of a page, not encoded.
  std::span<std::byte> blocks() const noexcept { return {bytes_.get(), view_.geometry.page_bytes() * view_.blocks}; }

  /// Makes the frame stand in for the block until null is set. Any thread, and so for `target`.
  void redirect(std::uint32_t block, std::shared_ptr<target_frame> to);
  /// Null where the block itself is written.
  std::shared_ptr<target_frame> target(std::uint32_t block) const;

private:
  std::unique_ptr<std::byte[]> bytes_;
  kv_cache_view view_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<target_frame>> targets_;
};

/// The number of blocks that fit into `bytes`; at least four, so that some arrive while others are saved.
std::uint32_t staging_blocks(std::uint64_t bytes, std::uint64_t page_bytes) noexcept;

/// Tracks which blocks of a staging buffer are free.
class block_free_list {
public:
  explicit block_free_list(std::uint32_t blocks = 0) : all_(blocks) {
    for (auto i = blocks; i > 0; --i)
      free_.push_back(i - 1);
  }

  std::size_t size() const noexcept { return all_; }
  std::size_t free() const noexcept { return free_.size(); }
  std::size_t in_use() const noexcept { return all_ - free_.size(); }
  /// There have to be `count` free blocks.
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
