#include "actors/node/eviction/reuse_policy.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Least number of inserted keys between two calls of `learn`.
constexpr std::uint64_t least_between = 1024;

/// How many keys are inserted while an entry rests: this many, or a part of all entries.
constexpr std::uint64_t least_rest = 32;
constexpr std::uint64_t rested_part = 64;

} // namespace

reuse_policy::reuse_policy(key_hash hash)
    : listing_policy(classes, classes * (1 + marks_per_class)), hash_(std::move(hash)) {
  // The base class has lists of its own after the classes' lists.
  position at = classes + lists_here;
  for (auto& x : times_)
    for (auto& free : x.unused)
      free = at++;
}

std::uint64_t reuse_policy::resident_bytes() const noexcept {
  return listing_policy::resident_bytes() + ghosts_.resident_bytes() + statistics_.resident_bytes() + sizeof(times_);
}

std::uint32_t reuse_policy::missing_class(std::uint64_t missing) noexcept {
  return missing < 8 ? 0 : missing < 64 ? 1 : 2;
}

reuse_policy::position reuse_policy::class_of(std::uint32_t tag) noexcept {
  return (tag >> uses_shift & most_uses) * reuse_statistics::unused_classes + (tag & missing_mask);
}

void reuse_policy::announced(std::span<const entry_index> entries, const entry_use& how) {
  for (const auto entry : entries) {
    lists_.make_room_for(entry);
    lists_.set_tag(lists_.of(entry), missing_class(how.missing));
  }
}

void reuse_policy::note(position at, std::uint32_t tag) {
  statistics_.note(hash_(lists_.entry_at(at)), class_of(tag), now_, size_);
}

void reuse_policy::note_use(position at, std::uint32_t tag, const entry_use& how) {
  if (how.by_peer)
    statistics_.used_elsewhere(hash_(lists_.entry_at(at)), now_);
  else
    note(at, tag);
}

void reuse_policy::prepare(std::span<const entry_index> entries) {
  for (const auto entry : entries)
    ghosts_.prefetch(hash_(entry));
}

std::optional<reuse_knowledge> reuse_policy::knowledge() const {
  return reuse_knowledge{now_, statistics_.counts(now_)};
}

void reuse_policy::admit(position at, bool fetched) {
  now_ += fetched ? 0 : 1;
  if (now_ >= learn_at_) {
    statistics_.learn(now_);
    learn_at_ = now_ + std::max(least_between, size_ / 8);
  }
  ghosts_.make_room_for(size_);
  const auto hash = hash_(lists_.entry_at(at));
  // The tag that `announced` has set. For a key that was not announced, the rest of an earlier entry's tag is good
  // enough.
  auto tag = std::min(lists_.tag(at) & missing_mask, reuse_statistics::unused_classes - 1);
  if (const auto uses = ghosts_.recall(hash))
    tag |= std::min(most_uses, *uses + 1) << uses_shift;
  if (statistics_.follows(hash)) {
    tag |= sampled;
    // A fetched key is followed from its first use here on.
    if (!fetched)
      note(at, tag);
  }
  lists_.set_tag(at, tag);
  place(at);
}

void reuse_policy::place(position at) {
  const auto list = class_of(lists_.tag(at));
  mark_time(list);
  lists_.link_youngest(list, at);
}

void reuse_policy::use(position first, position last, const entry_use& how) {
  const auto before = lists_.tag(first);
  auto tag = before;
  if (!how.again) {
    const auto uses = std::min(most_uses, (before >> uses_shift & most_uses) + 1);
    tag = (before & sampled) | uses << uses_shift | missing_class(how.missing);
    if ((tag & sampled) != 0 || tag != before)
      for (auto at = first;; at = lists_.older(at)) {
        if ((tag & sampled) != 0)
          note_use(at, tag, how);
        lists_.set_tag(at, tag);
        if (at == last)
          break;
      }
  }
  const auto list = class_of(tag);
  if (lists_.youngest(list) == first) {
    times_[list].youngest = now_;
    return;
  }
  lists_.unlink(first, last);
  mark_time(list);
  lists_.link_youngest(list, first, last);
}

void reuse_policy::forget(position at, leave_reason why) {
  if (why == leave_reason::evicted)
    ghosts_.remember(hash_(lists_.entry_at(at)), lists_.tag(at) >> uses_shift & most_uses);
}

void reuse_policy::mark_time(position list) {
  auto& x = times_[list];
  if (x.count == 0 && lists_.empty(list))
    x.oldest = now_;
  x.youngest = now_;
  if (x.count > 0 && now_ - x.marks[x.count - 1].time < std::max<std::uint64_t>(16, size_ / 32))
    return;
  if (x.count == marks_per_class)
    thin(x);
  const auto at = x.unused[x.count];
  x.marks[x.count++] = {at, now_};
  lists_.link_youngest(list, at);
}

void reuse_policy::thin(time_marks& of) {
  // For older marks the exact time matters less.
  std::array<time_marks::mark, marks_per_class> kept;
  std::uint32_t n = 0;
  std::uint32_t unused = marks_per_class;
  for (std::uint32_t i = 0; i < of.count; ++i) {
    if (i < of.count / 2 && i % 2 == 1) {
      lists_.unlink(of.marks[i].at);
      of.unused[--unused] = of.marks[i].at;
    } else {
      kept[n++] = of.marks[i];
    }
  }
  of.marks = kept;
  of.count = n;
}

void reuse_policy::trim(position list) {
  auto& x = times_[list];
  std::uint32_t gone = 0;
  while (gone < x.count && lists_.oldest(list) == x.marks[gone].at) {
    x.oldest = x.marks[gone].time;
    lists_.unlink(x.marks[gone++].at);
  }
  if (gone > 0) {
    // The nodes of the removed marks are reused next after the other unused ones.
    std::rotate(x.marks.begin(), x.marks.begin() + gone, x.marks.begin() + x.count);
    x.count -= gone;
    for (std::uint32_t i = 0; i < gone; ++i)
      x.unused[x.count + i] = x.marks[x.count + i].at;
  }
  while (x.count > 0 && lists_.youngest(list) == x.marks[x.count - 1].at) {
    x.youngest = std::min(x.youngest, x.marks[--x.count].time);
    lists_.unlink(x.marks[x.count].at);
    x.unused[x.count] = x.marks[x.count].at;
  }
}

std::optional<reuse_policy::list_end> reuse_policy::old_end(position list, std::uint64_t rest) const {
  const auto& x = times_[list];
  // Entries up to the first mark were placed before its time.
  if (now_ - (x.count > 0 ? x.marks[0].time : x.youngest) < rest)
    return std::nullopt;
  return list_end{std::nullopt, x.oldest};
}

std::optional<reuse_policy::list_end> reuse_policy::young_end(position list, std::uint64_t rest) const {
  const auto& x = times_[list];
  if (now_ - x.youngest >= rest)
    return list_end{list, x.youngest};
  for (auto i = x.count; i-- > 0;) {
    const auto& mark = x.marks[i];
    // Where all entries between two marks have left, they are neighbours.
    if (now_ - mark.time >= rest && lists_.is_entry(lists_.older(mark.at)))
      return list_end{mark.at, mark.time};
  }
  return std::nullopt;
}

std::size_t reuse_policy::next_rested(std::span<entry_index> out, std::uint64_t rest) const {
  position chosen = classes;
  list_end from;
  float least = 0;
  for (position list = 0; list < classes; ++list) {
    if (lists_.empty(list))
      continue;
    for (const auto& end : {old_end(list, rest), young_end(list, rest)}) {
      if (!end)
        continue;
      const auto worth = statistics_.worth(list, now_ - end->time);
      if (chosen == classes || worth < least) {
        chosen = list;
        from = *end;
        least = worth;
      }
    }
  }
  if (chosen == classes)
    return 0;
  return from.older_than ? take_older(*from.older_than, out) : take_oldest(chosen, out);
}

std::size_t reuse_policy::next(std::span<entry_index> out) {
  for (position list = 0; list < classes; ++list)
    trim(list);
  const auto found = next_rested(out, std::max(least_rest, size_ / rested_part));
  return found > 0 ? found : next_rested(out, 0);
}

std::unique_ptr<eviction_policy> make_reuse_policy(key_hash hash) {
  return std::make_unique<reuse_policy>(std::move(hash));
}

} // namespace troupe
