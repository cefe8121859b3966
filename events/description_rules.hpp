#pragma once

#include "base/error.hpp"
#include "messages/event_messages.hpp"

#include <optional>

namespace troupe::events {

/// What is wrong with descriptions of a client: arrays of another length than the pages, null keys, a shape out of
/// bounds, extra keys that are no MessagePack. The bytes of `extra` become a part of events, so nothing else may pass.
std::optional<error> fault_of(const page_descriptions& x);

/// Approximate memory of descriptions in a queue.
std::size_t weight_of(const page_descriptions& x) noexcept;

} // namespace troupe::events
