#include "actors/node/registry/group_eviction.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace troupe {

void group_eviction::follow() {
  for (const auto number : namespaces_.with_siblings()) {
    auto& ns = namespaces_.at(number);
    const auto changes = ns.take_group_changes();
    if (changes.empty())
      continue;
    const auto siblings = namespaces_.siblings_of(number);
    // Keys whose last page in this group is gone, and keys that have become the end of a prefix here.
    for (const auto sibling : siblings) {
      auto& other = namespaces_.at(sibling);
      if (ns.has_chains()) {
        other.no_hit_needs(changes.evicted);
      } else if (other.has_chains()) {
        std::vector<key_digest> ends;
        std::ranges::copy_if(changes.evicted, std::back_inserter(ends),
                             [&](const key_digest& key) { return other.ends_at(key); });
        other.no_hit_needs(ends);
      }
    }
    std::vector<key_digest> ends;
    std::ranges::copy_if(changes.ends, std::back_inserter(ends), [&](const key_digest& key) {
      return std::ranges::any_of(siblings,
                                 [&](std::uint32_t sibling) { return !namespaces_.at(sibling).has_page_of(key); });
    });
    ns.no_hit_needs(ends);
  }
}

} // namespace troupe
