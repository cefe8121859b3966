#include "connector/capi/boundary.hpp"
#include "connector/capi/conversions.hpp"

#include <algorithm>
#include <string>

using namespace troupe;

std::int32_t troupe_namespace_identity(const troupe_namespace* ns, const troupe_engine* engine, char identity[33],
                                       const char** name, troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (identity == nullptr)
      return fail(errc::invalid_argument, "identity is NULL");
    std::uint32_t world_size = 1;
    std::uint32_t block_tokens = 0;
    if (engine != nullptr) {
      const auto terms = capi::engine_of(engine);
      if (!terms)
        return tl::unexpected(terms.error());
      world_size = connector::kv_world_size(terms->options.parallel);
      block_tokens = terms->options.block_tokens;
    }
    const auto wanted = capi::namespace_of(ns, world_size, block_tokens);
    if (!wanted)
      return tl::unexpected(wanted.error());
    const auto digits = to_string(wanted->spec.id());
    std::ranges::copy(digits, identity);
    identity[digits.size()] = '\0';
    if (name != nullptr) {
      thread_local std::string kept;
      kept = wanted->spec.name;
      *name = kept.c_str();
    }
    return {};
  });
}
