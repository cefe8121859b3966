#pragma once

#include "base/error.hpp"
#include "messages/event_messages.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::events {

/// What was said about one page as bytes, for the index on the disk: everything but the key, which names it. The first
/// byte is the version of the form, so that fields can be added; numbers are little-endian.
///
/// `at`: the page in `x`, whose arrays fit (`fault_of`).
std::string description_text(const page_descriptions& x, std::size_t at);

/// The description of one page, without its key. Error: `corrupt` for bytes that are no description of this version.
result<page_descriptions> description_of(std::string_view text);

/// Whether both have the same shape, so that pages of one may be appended to the other.
bool same_shape(const page_descriptions& a, const page_descriptions& b);

} // namespace troupe::events
