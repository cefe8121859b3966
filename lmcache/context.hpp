#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "lmcache/wire/requests.hpp"

#include <cstdint>

namespace troupe::lmcache {

/// What a worker's registration makes of its pages.
struct context {
  /// Where they lie: one namespace for all workers that say the same.
  namespace_spec space;
  /// How the worker is to see a page.
  wire::slot_shape shape;
};

/// What is outside in a block of the engine. Workers that copy themselves make pages with tokens outside, whatever
/// their blocks have.
enum class block_order : std::uint8_t { tokens_first, heads_first };

/// A page is one chunk on one worker, in the order in which LMCache's workers gather: planes (K and V, or one of both),
/// layers, tokens, hidden elements. Workers that differ in anything that changes these bytes have different namespaces:
/// model, world size, type of the elements, and the four numbers.
///
/// Errors: invalid_argument, with what is wrong; unsupported for a type of elements that is not known, for workers
/// whose chunks do not have the node's number of tokens, and for several groups of layers, each of which is named.
///
/// `heads_first`: a page has the worker's blocks one behind the other within a layer, each as it is.
result<context> context_of(const wire::context_registration& x, std::uint32_t chunk_tokens,
                           block_order order = block_order::tokens_first);

} // namespace troupe::lmcache
