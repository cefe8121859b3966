#include "tests/replay_model/expected_hits.hpp"

#include "workload/replay/keys.hpp"

#include <list>
#include <unordered_map>
#include <unordered_set>

namespace troupe::test {

expected_hits expect_hits(std::span<const replay::trace_request> requests, std::optional<std::uint64_t> capacity) {
  expected_hits out;
  // Most recent at the back.
  std::list<key_digest> order;
  std::unordered_map<key_digest, std::list<key_digest>::iterator> present;
  std::unordered_set<key_digest> seen;
  for (const auto& request : requests) {
    const auto keys = replay::chain_keys(request.hash_ids);
    out.blocks += keys.size();
    for (const auto& key : keys) {
      if (!present.contains(key))
        break;
      ++out.hit_blocks;
    }
    for (const auto& key : keys) {
      seen.insert(key);
      if (const auto found = present.find(key); found != present.end()) {
        order.splice(order.end(), order, found->second);
        continue;
      }
      present.emplace(key, order.insert(order.end(), key));
      if (capacity && order.size() > *capacity) {
        present.erase(order.front());
        order.pop_front();
        ++out.evicted_blocks;
      }
    }
  }
  out.unique_blocks = seen.size();
  return out;
}

} // namespace troupe::test
