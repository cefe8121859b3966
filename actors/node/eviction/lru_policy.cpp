#include "actors/node/eviction/lru_policy.hpp"

namespace troupe {

void lru_policy::use(position first, position last, const entry_use&) {
  if (lists_.youngest(order) == first)
    return;
  lists_.unlink(first, last);
  lists_.link_youngest(order, first, last);
}

std::unique_ptr<eviction_policy> make_lru_policy(key_hash) {
  return std::make_unique<lru_policy>();
}

} // namespace troupe
