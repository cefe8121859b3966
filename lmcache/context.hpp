#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "lmcache/protocol/requests.hpp"

#include <cstdint>

namespace troupe::lmcache {

/// The namespace and page shape of a worker's registration.
struct context {
  /// One namespace for all workers with equal properties.
  namespace_spec ns;
  /// The shape of a page as the worker sees it.
  protocol::slot_shape shape;
};

/// The outer dimension of a block of the engine. Workers that copy themselves make pages with tokens outside,
/// independent of their blocks.
enum class block_order : std::uint8_t { tokens_first, heads_first };

/// A page is one chunk on one worker, in the order in which LMCache's workers gather: planes (K and V, or one of both),
/// layers, tokens, hidden elements. Workers that differ in anything that changes these bytes have different namespaces:
/// model, world size, type of the elements, and the four numbers.
///
/// Errors: invalid_argument, with the cause; unsupported for an unknown type of elements, for workers whose chunks do
/// not have the node's number of tokens, and for several groups of layers, each of which is named.
///
/// `heads_first`: a page has the worker's blocks in sequence within a layer, unchanged.
result<context> context_of(const protocol::context_registration& x, std::uint32_t chunk_tokens,
                           block_order order = block_order::tokens_first);

/// Whether `context_of` has made this namespace.
bool is_own(const namespace_spec& ns) noexcept;

} // namespace troupe::lmcache
