#pragma once

#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"
#include "actors/node/eviction/s3_fifo_policy.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>

/// The list of eviction policies. A policy belongs here and in `config::evictions`, which names those that a config may
/// have; a test compares the two. Everything else that plays all policies, as tests and benchmarks do, uses this list.

namespace troupe {

struct named_policy {
  std::string_view name;
  eviction_factory make = nullptr;
};

inline constexpr std::array eviction_policies{
    named_policy{"lru", make_lru_policy},
    named_policy{"s3-fifo", make_s3_fifo_policy},
    named_policy{"reuse", make_reuse_policy},
};

/// The policy of `registry.eviction` or `memory.eviction`. `name` is one of the list, as configs are checked.
inline eviction_factory eviction_named(std::string_view name) {
  const auto* const found = std::ranges::find(eviction_policies, name, &named_policy::name);
  assert(found != eviction_policies.end());
  return found->make;
}

} // namespace troupe
