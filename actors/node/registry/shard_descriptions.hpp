#pragma once

#include "actors/node/registry/shard_namespaces.hpp"
#include "messages/event_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// What clients have said about pages, for a node that publishes events: passes it on about keys that are complete, and
/// notices when their pages move between memory and disk.
class shard_descriptions {
public:
  explicit shard_descriptions(shard_namespaces& namespaces) : namespaces_(namespaces) {}

  /// As `describe_pages_request` says. `stores`: what is new is a change that survives a restart; not where it comes
  /// from the index.
  result<result_codes> describe(describe_pages_request request, bool stores);

  /// Looks at the tier of the next keys, a bounded number of them.
  void look_at_tiers();

private:
  /// Keys examined by one call of `look_at_tiers`: at some ten calls a second, ten million keys take a few minutes.
  static constexpr std::uint32_t looks = 8192;

  bool in_memory(const key_space& ns, entry_index i) const;

  shard_namespaces& namespaces_;
  /// Where the next call continues.
  std::uint32_t number_ = 0;
  entry_index entry_ = 0;
  /// The resident slots of the ranks of the namespace that is looked at; empty where some are unknown.
  mutable std::vector<std::shared_ptr<const resident_slots>> resident_;
  void find_residents(const key_space& ns);

  // Kept between calls for its memory.
  std::vector<entry_index> found_;
};

} // namespace troupe
