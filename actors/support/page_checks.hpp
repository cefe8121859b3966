#pragma once

#include "base/error.hpp"
#include "messages/io_messages.hpp"

#include <cstdint>
#include <span>

namespace troupe {

/// The outcome of `check(page, item)` for each item, in their order, with its page in `memory`; `out_of_range` for one
/// that is not all in there.
template <class Byte, class Items, class Check>
io_reply check_each(std::span<Byte> memory, const Items& items, Check check) {
  io_reply out;
  for (const check_item& item : items) {
    const bool inside = item.offset <= memory.size() && item.bytes <= memory.size() - item.offset;
    const errc code = inside ? check(memory.subspan(item.offset, item.bytes), item) : errc::out_of_range;
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  }
  return out;
}

} // namespace troupe
