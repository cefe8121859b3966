#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "lmcache/protocol/requests.hpp"

#include <cstdint>
#include <vector>

namespace troupe::lmcache {

/// Layers of a worker that need the same part of a prefix: each of its chunks has a page of them.
struct context_group {
  /// One namespace for all workers with equal properties.
  namespace_spec ns;
  /// The shape of a page as the worker sees it.
  protocol::slot_shape shape;
  /// What a hit needs: this many trailing chunks; 0: all chunks of the prefix.
  std::uint32_t window_chunks = 0;
  /// A page is the state at the end of its chunk.
  bool recurrent = false;
};

/// The namespaces and page shapes of a worker's registration.
struct context {
  /// In the worker's order, at least one. If there are several, all of their namespaces have the same `group_of`.
  std::vector<context_group> groups;

  const context_group& first() const noexcept { return groups.front(); }
};

/// The outer dimension of a block of the engine. Workers that copy themselves make pages with tokens outside,
/// independent of their blocks.
enum class block_order : std::uint8_t { tokens_first, heads_first };

/// A page is one chunk on one worker, in the order in which LMCache's workers gather: planes (K and V, or one of both),
/// layers, tokens, hidden elements. Workers that differ in anything that changes these bytes have different namespaces:
/// model, world size, type of the elements, and the four numbers.
///
/// A worker with several groups has a namespace for each of them. Each identity contains the number of the group and a
/// digest of all groups, so a page is never combined with one of another division. A page of a window that is shorter
/// than a chunk has only the last tokens of the chunk.
///
/// Errors: invalid_argument, with the cause; unsupported for an unknown type of elements, for workers whose chunks do
/// not have the node's number of tokens, and for groups that could not be served safely, with the group and the reason.
///
/// `heads_first`: a page has the worker's blocks in sequence within a layer, unchanged.
result<context> context_of(const protocol::context_registration& x, std::uint32_t chunk_tokens,
                           block_order order = block_order::tokens_first);

/// Whether `context_of` has made this namespace.
bool is_own(const namespace_spec& ns) noexcept;

/// Whether it is one of those, and its pages are what events for LMCache's clients are about: chunks, which these
/// events name once. Of a worker with several groups, it is the first one that needs whole prefixes.
bool is_of_prefix(const namespace_spec& ns) noexcept;

} // namespace troupe::lmcache
