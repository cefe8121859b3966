#pragma once

#include "base/error.hpp"
#include "connector/capi/troupe.h"
#include "messages/event_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace troupe::capi {

/// Pages in one call.
inline constexpr std::size_t described_pages_most = 4096;

/// The caller's struct, without its keys. Errors: invalid_argument, limit_exceeded, unsupported.
result<troupe_descriptions> read_descriptions(const troupe_descriptions* from);

/// A copy of what the struct refers to, for these keys.
result<page_descriptions> descriptions_of(const troupe_descriptions& x, std::span<const key_digest> keys);

/// Has a scheduler half or a pool describe pages, if its node wants that (`wanted`). `keys_of` turns the bytes of so
/// many keys into digests; `deliver` takes the position of the scheduler's group, and the pages.
template <class KeysOf, class Deliver>
result<void> describe(bool wanted, const troupe_descriptions* pages, const KeysOf& keys_of, const Deliver& deliver) {
  const auto given = read_descriptions(pages);
  if (!given)
    return tl::unexpected(given.error());
  if (!wanted || given->count == 0)
    return {};
  const auto keys = keys_of(given->keys, given->count);
  if (!keys)
    return tl::unexpected(keys.error());
  auto copied = descriptions_of(*given, *keys);
  if (!copied)
    return tl::unexpected(copied.error());
  return deliver(given->scheduler_group, std::move(*copied));
}

/// Whether its node wants them. Error: invalid_argument for a null pointer.
template <class To>
result<void> tell_whether_wanted(const To& to, std::uint32_t* wanted) {
  if (wanted == nullptr)
    return fail(errc::invalid_argument, "wanted is NULL");
  *wanted = to.wants_descriptions() ? 1 : 0;
  return {};
}

} // namespace troupe::capi
