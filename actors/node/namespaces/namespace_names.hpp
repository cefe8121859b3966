#pragma once

#include "base/digest.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>

namespace troupe {

/// The names of namespaces. Only the `namespaces` actor writes it, before it answers the request that made or removed
/// one. Any thread may read it without a message to an actor, so a request with a namespace's name costs no more
/// messages than one with its id.
///
/// It contains namespaces that all shards know. For those that some shards have refused, or begun to remove, the shards
/// decide.
class namespace_names {
public:
  /// Adds a name. The first name of a namespace stays, as in the shards. `kept_here`: its pages are in slab files and
  /// memory of the node.
  void add(const namespace_id& id, std::string name, bool kept_here = false);
  void remove(const namespace_id& id);

  std::optional<namespace_id> find(std::string_view name) const;
  bool kept_here(const namespace_id& id) const;
  std::optional<std::string> name_of(const namespace_id& id) const;
  /// Number of namespaces whose name starts with `prefix`.
  std::size_t count_with_prefix(std::string_view prefix) const;

private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, namespace_id, std::less<>> ids_;
  std::map<namespace_id, std::string> names_;
  std::set<namespace_id> kept_here_;
};

} // namespace troupe
