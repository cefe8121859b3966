#pragma once

#include "actors/lmcache/grouped_lookup.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/support/prefix_fetch.hpp"

#include <optional>
#include <vector>

namespace troupe {

/// A lookup, in each namespace that its workers may belong to.
struct lmcache_server::lookup_run {
  struct finder {
    namespace_id ns;
    attachment_ptr node;
    duration lasts;
    transfer::prefix_fetch keys;
  };
  /// The namespace of each group of `groups`.
  struct group_place {
    namespace_id ns;
    attachment_ptr node;
  };

  request_ptr request;
  std::uint64_t lookup = 0;
  /// Where each namespace is that of all layers of a worker.
  std::vector<finder> finders{};
  /// Otherwise.
  std::vector<group_place> places{};
  std::optional<lmcache::grouped_lookup> groups{};
};

} // namespace troupe
