#include "actors/node/registry/group_eviction.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace troupe {

namespace {

template <class F>
std::vector<key_digest> only(const std::vector<key_digest>& keys, F&& wanted) {
  std::vector<key_digest> out;
  std::ranges::copy_if(keys, std::back_inserter(out), std::forward<F>(wanted));
  return out;
}

} // namespace

void group_eviction::follow() {
  for (const auto number : namespaces_.with_siblings()) {
    auto& ns = namespaces_.at(number);
    const auto changes = ns.take_group_changes();
    if (changes.empty())
      continue;
    const auto siblings = namespaces_.siblings_of(number);
    const bool ends_count = ns.spec().hits_end_with_pages();
    for (const auto sibling : siblings) {
      auto& other = namespaces_.at(sibling);
      // In a group with chains the rest of the prefix follows from its end.
      if (other.has_chains() && ends_count)
        other.no_hit_needs(only(changes.evicted, [&](const key_digest& key) { return other.ends_at(key); }));
      else if (ns.has_chains() && !other.has_chains())
        other.no_hit_needs(changes.evicted);
    }
    if (ends_count)
      ns.no_hit_needs(only(changes.ends, [&](const key_digest& key) {
        return std::ranges::any_of(siblings,
                                   [&](std::uint32_t sibling) { return !namespaces_.at(sibling).has_page_of(key); });
      }));
  }
}

} // namespace troupe
