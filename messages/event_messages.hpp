#pragma once

#include "base/digest.hpp"
#include "messages/packed.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Messages about the content of pages, for nodes that publish events: see docs/events.md.

namespace troupe {

/// One of the KV cache groups of the engine, as its events name it.
struct described_group {
  /// The most bytes of `kind`.
  static constexpr std::size_t max_kind_bytes = 32;

  std::uint32_t index = 0;
  /// What its layers need of a prefix, such as "full_attention" or "sliding_window"; empty: the events do not say.
  std::string kind{};
  /// Tokens of a sliding window; 0: the events name none.
  std::uint32_t window = 0;

  friend auto operator<=>(const described_group&, const described_group&) = default;
};

/// What events say about some pages of one shape. Arrays have one element per page unless they say otherwise.
struct page_descriptions {
  /// The most blocks of a page, groups, and bytes of `extra` for one page.
  static constexpr std::uint32_t max_blocks = 64;
  static constexpr std::size_t max_groups = 64;
  static constexpr std::size_t max_extra_bytes = 4096;

  /// Tokens of one block of the engine's own events.
  std::uint32_t block_tokens = 0;
  /// Blocks of these events in one page.
  std::uint32_t blocks_per_page = 1;
  /// The groups whose blocks lie in these pages: there is an event for each of them. Empty: one, which names no group.
  std::vector<described_group> groups{};
  /// Name of the adapter; empty for the base model.
  std::string lora{};
  packed<key_digest> keys{};
  /// The engine's hashes of the blocks, `blocks_per_page` for each page.
  packed<std::uint64_t> hashes{};
  /// The engine's hash of the block before the page's first one, where `has_parent` is 1.
  packed<std::uint64_t> parents{};
  packed<std::uint8_t> has_parent{};
  /// `blocks_per_page` × `block_tokens` for each page.
  packed<std::uint32_t> tokens{};
  /// Empty, or for each page the MessagePack of an array of `blocks_per_page` values; those of page i end at
  /// `extra_ends[i]`. An empty piece: the page has no extra keys.
  std::string extra{};
  packed<std::uint32_t> extra_ends{};

  friend bool operator==(const page_descriptions&, const page_descriptions&) = default;
};

/// From a client that saved or found these pages: what events say about them. One code per page in `result_codes`: ok,
/// or not_found where the key is not complete, so that nothing is published about it. unsupported as a whole where the
/// node publishes no events. A repetition is no error; the first description of a page stays.
struct describe_pages_request {
  namespace_id ns;
  page_descriptions pages;
};

} // namespace troupe
