#include "connector/capi/boundary.hpp"
#include "connector/capi/conversions.hpp"

#include <algorithm>
#include <string>

using namespace troupe;

namespace {

void write(const namespace_spec& ns, char identity[33], const char** name) {
  const auto digits = to_string(ns.id());
  std::ranges::copy(digits, identity);
  identity[digits.size()] = '\0';
  if (name == nullptr)
    return;
  thread_local std::string kept;
  kept = ns.name;
  *name = kept.c_str();
}

} // namespace

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
    write(wanted->spec, identity, name);
    return {};
  });
}

std::int32_t troupe_group_identity(const troupe_groups* groups, const troupe_engine* engine, std::size_t group,
                                   char identity[33], const char** name, troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (identity == nullptr)
      return fail(errc::invalid_argument, "identity is NULL");
    const auto terms = capi::engine_of(engine);
    if (!terms)
      return tl::unexpected(terms.error());
    const auto wanted = capi::groups_of(groups, terms->options);
    if (!wanted)
      return tl::unexpected(wanted.error());
    const auto& namespaces = wanted->layout.namespaces;
    if (group >= namespaces.size())
      return fail(errc::out_of_range, "group " + std::to_string(group) + " of " + std::to_string(namespaces.size()));
    write(namespaces[group], identity, name);
    return {};
  });
}
