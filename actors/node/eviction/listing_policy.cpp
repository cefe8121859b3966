#include "actors/node/eviction/listing_policy.hpp"

namespace troupe {

listing_policy::listing_policy(position lists, position fixed)
    : lists_(lists + lists_here, fixed + lists_here), own_lists_(lists), freed_(lists), evict_first_(lists + 1),
      aside_(lists + 2) {}

void listing_policy::displace(position at) noexcept {
  lists_.unlink(at);
  lists_.set_tag(at, lists_.tag(at) | displaced);
}

void listing_policy::take_out(position at) noexcept {
  lists_.unlink(at);
  lists_.set_tag(at, lists_.tag(at) & ~displaced);
}

void listing_policy::come(std::span<const entry_index> entries, bool fetched) {
  prepare(entries);
  // Backwards, so that the first key of a prefix is the youngest: the keys after it are of no use without it.
  for (auto i = entries.size(); i-- > 0;) {
    lists_.make_room_for(entries[i]);
    ++size_;
    admit(lists_.of(entries[i]), fetched);
  }
}

void listing_policy::touched(std::span<const entry_index> entries, const entry_use& how) {
  // Backwards, as in `come`. Keys that were used together before are consecutive in the list, and such a run moves as a
  // whole.
  for (auto end = entries.size(); end > 0;) {
    const auto last = lists_.of(entries[--end]);
    if ((lists_.tag(last) & displaced) != 0) {
      take_out(last);
      place(last);
    }
    const auto tag = lists_.tag(last);
    auto first = last;
    while (end > 0) {
      const auto at = lists_.of(entries[end - 1]);
      if (lists_.older(at) != first || lists_.tag(at) != tag)
        break;
      first = at;
      --end;
    }
    use(first, last, how);
  }
}

void listing_policy::left(entry_index entry, leave_reason why) {
  const auto at = lists_.of(entry);
  take_out(at);
  --size_;
  forget(at, why);
  if (why == leave_reason::erased)
    return;
  for (int i = 0; i < back_at_once && !lists_.empty(aside_); ++i) {
    const auto back = lists_.oldest(aside_);
    take_out(back);
    place(back);
  }
}

std::size_t listing_policy::propose(std::span<entry_index> out) {
  if (const auto n = take_oldest(freed_, out); n > 0)
    return n;
  if (const auto n = take_oldest(evict_first_, out); n > 0)
    return n;
  if (const auto n = next(out); n > 0)
    return n;
  return take_oldest(aside_, out);
}

void listing_policy::kept(entry_index entry) {
  displace(lists_.of(entry));
  lists_.link_youngest(aside_, lists_.of(entry));
}

void listing_policy::freed(entry_index entry) {
  displace(lists_.of(entry));
  lists_.link_oldest(freed_, lists_.of(entry));
}

void listing_policy::marked_evict_first(std::span<const entry_index> entries) {
  // Backwards, so that the last key of a prefix is evicted first.
  for (auto i = entries.size(); i-- > 0;) {
    displace(lists_.of(entries[i]));
    lists_.link_youngest(evict_first_, lists_.of(entries[i]));
  }
}

void listing_policy::for_each(const std::function<void(entry_index)>& f) const {
  for (position list = 0; list < own_lists_; ++list)
    lists_.for_each(list, f);
  lists_.for_each(freed_, f);
  lists_.for_each(evict_first_, f);
  lists_.for_each(aside_, f);
}

std::size_t listing_policy::take_oldest(position list, std::span<entry_index> out) const {
  std::size_t n = 0;
  for (auto at = lists_.oldest(list); at != list && lists_.is_entry(at) && n < out.size(); at = lists_.younger(at))
    out[n++] = lists_.entry_at(at);
  return n;
}

std::size_t listing_policy::take_older(position than, std::span<entry_index> out) const {
  std::size_t n = 0;
  for (auto at = lists_.older(than); lists_.is_entry(at) && n < out.size(); at = lists_.older(at))
    out[n++] = lists_.entry_at(at);
  return n;
}

} // namespace troupe
