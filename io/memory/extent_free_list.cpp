#include "io/memory/extent_free_list.hpp"

#include <algorithm>

namespace troupe::io {

void extent_free_list::expect(node where) {
  ++expected_[where];
}

void extent_free_list::arrive(std::uint32_t number, node expected, node where) {
  if (const auto known = expected_.find(expected); known != expected_.end() && --known->second == 0)
    expected_.erase(known);
  ready_.push_back({number, where});
}

void extent_free_list::come_back(std::uint32_t number, node where) {
  ready_.push_front({number, where});
}

std::optional<std::uint32_t> extent_free_list::take(node wish) {
  auto chosen = ready_.begin();
  if (wish) {
    const auto near = std::ranges::find(ready_, wish, &entry::where);
    if (near != ready_.end())
      chosen = near;
    else if (!short_ && expected_.contains(wish))
      return std::nullopt;
  }
  if (chosen == ready_.end())
    return std::nullopt;
  const auto out = chosen->number;
  ready_.erase(chosen);
  return out;
}

std::uint64_t extent_free_list::expected() const noexcept {
  std::uint64_t out = 0;
  for (const auto& x : expected_)
    out += x.second;
  return out;
}

} // namespace troupe::io
