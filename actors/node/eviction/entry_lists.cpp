#include "actors/node/eviction/entry_lists.hpp"

namespace troupe {

entry_lists::entry_lists(position lists, position fixed) : fixed_(fixed) {
  static_assert(max_entries <= link_mask - 1023);
  nodes_.grow_to(fixed_);
  for (position list = 0; list < lists; ++list)
    nodes_[list] = {list, list};
}

void entry_lists::unlink(position first, position last) noexcept {
  const auto before = younger(first);
  const auto behind = older(last);
  set_older(before, behind);
  set_younger(behind, before);
}

void entry_lists::link_youngest(position list, position first, position last) noexcept {
  const auto second = older(list);
  set_younger(second, last);
  set_older(last, second);
  set_younger(first, list);
  set_older(list, first);
}

void entry_lists::link_oldest(position list, position at) noexcept {
  const auto second = younger(list);
  set_older(second, at);
  set_younger(at, second);
  set_older(at, list);
  set_younger(list, at);
}

void entry_lists::for_each(position list, const std::function<void(entry_index)>& f) const {
  for (auto at = oldest(list); at != list; at = younger(at))
    if (is_entry(at))
      f(entry_at(at));
}

} // namespace troupe
