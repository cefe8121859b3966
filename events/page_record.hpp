#pragma once

#include "messages/event_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::events {

/// How an event is encoded in MessagePack: as a map with its type in "type", or as an array that begins with its type,
/// where empty fields at the end are left out.
enum class event_form : std::uint8_t { map, array };

/// What the pages of many keys have in common.
struct page_shape {
  /// The stream in which events about these pages are published.
  std::uint32_t stream = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t blocks = 1;
  /// An event is published for each; none: one, without a group.
  std::vector<described_group> groups{};
  std::string lora{};

  friend auto operator<=>(const page_shape&, const page_shape&) = default;
};

/// One page, as events name it.
struct page_record {
  /// Identifies namespace and key.
  std::uint64_t id = 0;
  /// The engine's hash of the page's last block, and of the block before the page.
  std::uint64_t hash = 0;
  std::uint64_t parent = 0;
  std::uint16_t shape = 0;
  bool has_parent = false;
  bool in_memory = false;
  /// Hashes of the blocks before the last one (8 bytes each), then the tokens (4 bytes each) and the extra keys as
  /// MessagePack; or the hashes alone, where tokens are not kept.
  std::string details{};

  friend bool operator==(const page_record&, const page_record&) = default;
};

inline std::size_t hash_bytes_of(const page_shape& shape) noexcept {
  return (shape.blocks - 1) * sizeof(std::uint64_t);
}
inline std::size_t token_bytes_of(const page_shape& shape) noexcept {
  return std::size_t{shape.blocks} * shape.block_tokens * sizeof(std::uint32_t);
}
inline bool has_tokens(const page_record& x, const page_shape& shape) noexcept {
  return x.details.size() > hash_bytes_of(shape);
}
inline std::string_view extra_of(const page_record& x, const page_shape& shape) noexcept {
  const auto begin = hash_bytes_of(shape) + token_bytes_of(shape);
  return begin < x.details.size() ? std::string_view(x.details).substr(begin) : std::string_view{};
}

/// Calls f with each hash, the last block's at the end.
template <class F>
void for_each_hash(const page_record& x, const page_shape& shape, F&& f) {
  for (std::size_t i = 0; i + 1 < shape.blocks; ++i) {
    std::uint64_t hash = 0;
    std::memcpy(&hash, x.details.data() + i * sizeof hash, sizeof hash);
    f(hash);
  }
  f(x.hash);
}

/// Calls f with each token, if tokens are kept.
template <class F>
void for_each_token(const page_record& x, const page_shape& shape, F&& f) {
  if (!has_tokens(x, shape))
    return;
  const auto* const at = x.details.data() + hash_bytes_of(shape);
  for (std::size_t i = 0; i < token_bytes_of(shape) / sizeof(std::uint32_t); ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, at + i * sizeof token, sizeof token);
    f(token);
  }
}

/// An event about one page; several become one where they are alike.
struct page_event {
  enum class kind : std::uint8_t { stored, removed };
  kind what = kind::stored;
  page_record page;
};

} // namespace troupe::events
