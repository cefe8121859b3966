#include "actors/lmcache/memory_opener.hpp"

namespace troupe {

memory_opener::behavior_type memory_opener::make_behavior() {
  return {[this](const open_order& order) {
    opened_memory out;
    if (auto cache = open_remote_cache(*order.layout))
      out.cache = std::move(*cache);
    else
      out.why_not = cache.error();
    quit();
    return out;
  }};
}

} // namespace troupe
