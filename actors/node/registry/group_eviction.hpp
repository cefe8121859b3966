#pragma once

#include "actors/node/registry/shard_namespaces.hpp"

namespace troupe {

/// Evicts the pages of a model's groups of layers together, as far as one is worth nothing without the other.
///
/// A model with several groups has a namespace for each, which have the same keys, so a key is in the same shard of
/// all. Each namespace has slots and an eviction order of its own. Left alone, one group evicts the end of one prefix
/// and another group that of another, and both prefixes are lost though half of their pages stay. This has the policies
/// propose first what no hit can need any more:
///
/// - Where a group needs whole prefixes (its keys have parents), a prefix that has lost a key is shorter. The groups of
///   windows and states do not need their page of that key any more.
/// - A hit ends where every group has a page. So the last key of a prefix is worth nothing in a group that needs whole
///   prefixes while another group has no page of it; when it is evicted, the same holds for the key before it. Not
///   where attention is chunked: a hit that ends with a chunk needs no page of it.
///
/// Nothing follows for a window or a state from another one: a page of a window serves longer prefixes too. Only what
/// is evicted to make room counts: what is erased or damaged may be stored again at once. It is advice for the order
/// alone: what holds a key holds it as before, and a use, or another request to store it, ends it.
///
/// Namespaces belong together where their identities say so: `namespace_spec::group_of`.
class group_eviction {
public:
  explicit group_eviction(const shard_namespaces& namespaces) : namespaces_(namespaces) {}

  /// Handles what happened in related namespaces since the last call. In O(1) without any.
  void follow();

private:
  const shard_namespaces& namespaces_;
};

} // namespace troupe
