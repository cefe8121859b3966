#pragma once

#include "base/error.hpp"
#include "messages/packed.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// The code of item `i` of an answer with one code per requested item. The answer may be shorter than the request, and
/// may have a code that this build does not know: both count as `internal`. Use this function instead of indexing an
/// answer by the positions of its request.
inline errc code_at(const packed<std::uint8_t>& codes, std::size_t i) noexcept {
  return i < codes.size() ? errc_from_wire(codes[i]) : errc::internal;
}

/// The same for an answer with `results`; where the request failed as a whole, its error counts for every item.
template <class Reply>
errc code_at(const result<Reply>& answer, std::size_t i) {
  return answer ? code_at(answer->results, i) : answer.error().code;
}

} // namespace troupe
