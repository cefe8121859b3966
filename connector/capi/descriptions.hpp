#pragma once

#include "base/error.hpp"
#include "connector/capi/troupe.h"
#include "messages/event_messages.hpp"

#include <cstddef>
#include <span>

namespace troupe::capi {

/// Pages in one call.
inline constexpr std::size_t described_pages_most = 4096;

/// The caller's struct, without its keys. Errors: invalid_argument, limit_exceeded, unsupported.
result<troupe_descriptions> read_descriptions(const troupe_descriptions* from);

/// A copy of what the struct refers to, for these keys.
result<page_descriptions> descriptions_of(const troupe_descriptions& x, std::span<const key_digest> keys);

} // namespace troupe::capi
