#pragma once

#include "messages/event_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Single pages of `page_descriptions`, whose arrays must fit its number of pages. `at`: the page.

namespace troupe {

/// The extra keys of a page; empty if it has none.
inline std::string_view extra_of(const page_descriptions& x, std::size_t at) {
  if (x.extra_ends.empty())
    return {};
  const std::size_t begin = at == 0 ? 0 : x.extra_ends[at - 1];
  return std::string_view(x.extra).substr(begin, x.extra_ends[at] - begin);
}

/// Appends a page to others of the same shape.
inline void append_page(page_descriptions& to, const page_descriptions& from, std::size_t at) {
  // Pages without extra keys have empty pieces where another page has some.
  if (!from.extra_ends.empty() && to.extra_ends.empty())
    to.extra_ends.items.assign(to.keys.size(), 0);
  const bool ends = !to.extra_ends.empty() || !from.extra_ends.empty();
  const auto add = [at](auto& out, const auto& all, std::size_t count) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(at * count);
    out.items.insert(out.items.end(), first, first + static_cast<std::ptrdiff_t>(count));
  };
  add(to.keys, from.keys, 1);
  add(to.hashes, from.hashes, from.blocks_per_page);
  add(to.parents, from.parents, 1);
  add(to.has_parent, from.has_parent, 1);
  add(to.tokens, from.tokens, std::size_t{from.blocks_per_page} * from.block_tokens);
  to.extra += extra_of(from, at);
  if (ends)
    to.extra_ends.items.push_back(static_cast<std::uint32_t>(to.extra.size()));
}

} // namespace troupe
