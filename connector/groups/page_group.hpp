#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "connector/parallel.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

/// Models whose layers need different parts of a prefix: which pages a hit needs, and which hit the pages allow.

namespace troupe::connector {

/// What the layers of a group need of a prefix, to go on behind it.
enum class group_kind : std::uint8_t {
  /// All tokens.
  full,
  /// The last `tokens` - 1 tokens.
  window,
  /// The tokens of the last chunk of `tokens` tokens that has begun.
  chunk,
  /// The state at the end of the prefix, which stands for all tokens before.
  state,
};

/// Layers that need the same part of a prefix, and have pages of their own in a namespace of their own. An engine may
/// keep them in several of its KV cache groups, each with a block table; a page then has the blocks of all of them.
///
/// With pipeline parallelism, what each stage has of such layers is a group of its own: stages may have different
/// numbers of them, and pages of other sizes. The engine's block tables are the same for all stages.
///
/// All groups of an engine have pages of the same number of tokens, so that page i of every group is the same tokens
/// and has the same key.
struct page_group {
  group_kind kind = group_kind::full;
  /// Tokens of the window, or of a chunk.
  std::uint32_t tokens = 0;
  /// Tokens behind a window that the engine needs as well.
  std::uint32_t extra_tokens = 0;
  /// Tokens of one block in its tables; those of a page are a multiple of it. States: those of a page.
  std::uint32_t block_tokens = 0;
  /// The block tables, by number. A page has the blocks of the first one, then those of the second one, …
  std::vector<std::uint32_t> tables{};
  namespace_id ns{};
  /// The pipeline stage that has these layers, from 1 on; its workers are the group's ranks. 0: all stages have as many
  /// of them, and all workers of the engine are the group's ranks.
  std::uint32_t stage = 0;

  friend bool operator==(const page_group&, const page_group&) = default;
};

/// Checks that the groups are consistent: no table is in two of them, except in those of different stages; either all
/// are of stages or none is; pages are whole blocks, windows and chunks have tokens. invalid_argument names what is
/// not.
result<void> validate(std::span<const page_group> groups, std::uint32_t page_tokens);

/// Whether the groups are those of pipeline stages.
bool are_of_stages(std::span<const page_group> groups) noexcept;

/// The layout of the workers that each have a page of every key of a group: those of a stage, or all.
parallel_layout layout_of_group(std::span<const page_group> groups, const parallel_layout& layout) noexcept;

/// The numbers of the groups of which a worker has pages.
std::vector<std::uint32_t> groups_of_worker(std::span<const page_group> groups, const parallel_layout& layout,
                                            std::uint32_t worker);

/// The number of block tables of all groups: the highest one plus one.
std::uint32_t table_count(std::span<const page_group> groups) noexcept;

/// The blocks of one page.
std::uint32_t blocks_per_page(const page_group& group, std::uint32_t page_tokens) noexcept;

/// The first token that a group needs of a prefix of `length` tokens; the last one is the prefix's last one. For a
/// state, the first token of its page.
std::uint32_t first_token_needed(const page_group& group, std::uint32_t length, std::uint32_t page_tokens) noexcept;

/// The first page that a hit of `pages` pages needs of the group; the last one is page `pages` - 1.
std::uint32_t first_page_needed(const page_group& group, std::uint32_t pages, std::uint32_t page_tokens) noexcept;

/// The pages of a group that a hit of more than `hit` and at most `limit` pages may need and that were not found,
/// ascending. `found` as in `longest_hit`.
std::vector<std::uint32_t> pages_missing(const page_group& group, std::span<const std::uint8_t> found,
                                         std::uint32_t hit, std::uint32_t limit, std::uint32_t page_tokens);

/// The longest hit, in pages, for which every group has all pages that it needs; 0 where there is none. `found`: for
/// each group, one mark for each page, not 0 where it was found. At most `limit` pages, and no more than the shortest
/// list of marks.
///
/// Not the shortest of the groups' own hits: a shorter hit needs other pages of a window, and another state. A length
/// for which no group needs a page, as at the end of a chunk without full attention, is no hit: there is nothing to
/// load.
std::uint32_t longest_hit(std::span<const page_group> groups, std::span<const std::vector<std::uint8_t>> found,
                          std::uint32_t limit, std::uint32_t page_tokens);

} // namespace troupe::connector
