#pragma once

#include "lmcache/transfer_rules.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

/// Workers with several groups of layers: which chunks a hit needs of each, and which of them a worker stores. A worker
/// with one group is the special case that needs all chunks.

namespace troupe::lmcache {

/// What a group needs of a prefix.
struct group_needs {
  /// This many trailing chunks; 0: all.
  std::uint32_t window_chunks = 0;
  /// A page is the state at the end of its chunk.
  bool recurrent = false;

  friend bool operator==(const group_needs&, const group_needs&) = default;
};

/// The first chunk that a hit of `hit` chunks needs of a group; the last one is chunk `hit` - 1. The engine has those
/// before `begin` itself.
std::uint32_t first_needed(const group_needs& group, std::uint32_t begin, std::uint32_t hit) noexcept;

/// Marks of each group, one for each chunk from `begin` on, not 0 where it was found; all of one length.
using chunk_marks = std::vector<std::vector<std::uint8_t>>;

/// The longest hit, in chunks of the prefix, for which every group has all chunks that it needs; `begin` if there is
/// none. Not the shortest of the groups' own hits: a shorter hit needs other chunks of a window, and another state.
std::uint32_t longest_hit(std::span<const group_needs> groups, const chunk_marks& found, std::uint32_t begin);

/// The chunks of a group that a longer hit than `hit` may need and that were not found, ascending.
std::vector<std::uint32_t> chunks_missing(const group_needs& group, std::span<const std::uint8_t> found,
                                          std::uint32_t begin, std::uint32_t hit);

/// A store of a worker.
struct group_store {
  /// The first chunk, and the one after the last.
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  /// By group, ascending: chunks of which the worker has no block, counted from `begin`. Empty: it has all.
  std::span<const std::vector<std::uint32_t>> skipped{};
  /// As `session_table::computed_from`.
  std::optional<std::uint32_t> computed{};
};

/// The chunks to be stored, group after group, counted from the first of the request. Not those of which a worker may
/// have only some blocks, because the rest would be other requests' bytes: in a window these are the chunks before
/// `computed`, except behind one of which the worker has a block, since missing blocks come first. A state is one
/// block, which the worker has or not.
std::deque<transfer_rules::chunk_run> chunks_to_store(std::span<const group_needs> groups, const group_store& x);

/// The chunks to be loaded for a request of `count` chunks, in the same way.
std::deque<transfer_rules::chunk_run> chunks_to_load(std::span<const group_needs> groups, std::uint32_t count);

} // namespace troupe::lmcache
