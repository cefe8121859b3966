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

/// Which namespace has which name. The `namespaces` actor writes it, before it answers whoever made or removed one, and
/// nobody else does. Everybody may read it, on any thread and without asking an actor: so a request that names a
/// namespace by its name costs no more messages than one that names it by its id.
///
/// Has what all shards know: what some of them have refused, or begun to forget, is for them to say.
class namespace_names {
public:
  /// The name that a namespace has first stays, as in the shards. `kept_here`: its pages lie in slab files and memory
  /// of the node.
  void add(const namespace_id& id, std::string name, bool kept_here = false);
  void remove(const namespace_id& id);

  std::optional<namespace_id> find(std::string_view name) const;
  bool kept_here(const namespace_id& id) const;
  std::optional<std::string> name_of(const namespace_id& id) const;
  /// How many have a name that begins so.
  std::size_t count_with_prefix(std::string_view prefix) const;

private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, namespace_id, std::less<>> ids_;
  std::map<namespace_id, std::string> names_;
  std::set<namespace_id> kept_here_;
};

} // namespace troupe
