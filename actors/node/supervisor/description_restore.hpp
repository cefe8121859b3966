#pragma once

#include "base/error.hpp"
#include "events/feed.hpp"
#include "messages/actors.hpp"
#include "store/metadata_store.hpp"

#include <cstdint>
#include <span>

namespace troupe {

struct restored_descriptions {
  /// Keys about which events are published from now on.
  std::uint64_t keys = 0;
  /// Descriptions that were erased: their keys are not complete, or they cannot be read.
  std::uint64_t erased = 0;
};

/// Describes the restored keys of an index as their engines did in earlier runs, so that subscribers learn of them
/// without an engine. To be called when the shards have restored all pages, and before their service begins. Without
/// `to`, where the node publishes no events, all descriptions are erased: nothing would end those of keys that go.
/// Blocks; waits for the publisher where it does not keep up, for a while. Errors: those of the store and of the
/// shards.
result<restored_descriptions> restore_descriptions(caf::actor_system& system, store::metadata_store& from,
                                                   std::span<const registry_actor> shards, const events::feed* to);

} // namespace troupe
