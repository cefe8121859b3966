#include "actors/node/eviction/s3_fifo_policy.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

s3_fifo_policy::s3_fifo_policy(key_hash hash) : listing_policy(queues, queues), hash_(std::move(hash)) {}

std::uint64_t s3_fifo_policy::resident_bytes() const noexcept {
  return listing_policy::resident_bytes() + ghosts_.resident_bytes();
}

void s3_fifo_policy::admit(position at, bool) {
  ghosts_.make_room_for(size_);
  const bool known = ghosts_.recall(hash_(lists_.entry_at(at))).has_value();
  lists_.set_tag(at, known ? in_main : 0);
  in_small_ += known ? 0 : 1;
  place(at);
}

void s3_fifo_policy::place(position at) {
  lists_.link_youngest((lists_.tag(at) & in_main) != 0 ? main : small, at);
}

void s3_fifo_policy::use(position first, position last, const entry_use& how) {
  // Entries keep their places.
  if (how.again)
    return;
  for (auto at = first;; at = lists_.older(at)) {
    const auto tag = lists_.tag(at);
    lists_.set_tag(at, (tag & in_main) | std::min(most_uses, (tag & most_uses) + 1));
    if (at == last)
      break;
  }
}

void s3_fifo_policy::forget(position at, leave_reason why) {
  if ((lists_.tag(at) & in_main) != 0)
    return;
  --in_small_;
  if (why == leave_reason::evicted)
    ghosts_.remember(hash_(lists_.entry_at(at)), 0);
}

bool s3_fifo_policy::settle(queue of, int& steps) {
  for (; !lists_.empty(of); --steps) {
    const auto at = lists_.oldest(of);
    const auto tag = lists_.tag(at);
    const auto uses = tag & most_uses;
    // After too many steps the entry is taken in any case; the next call continues behind it.
    if (steps <= 0 || (of == small ? uses <= 1 : uses == 0))
      return true;
    lists_.unlink(at);
    lists_.set_tag(at, of == small ? in_main : in_main | (uses - 1));
    in_small_ -= of == small ? 1 : 0;
    lists_.link_youngest(main, at);
  }
  return false;
}

std::size_t s3_fifo_policy::next(std::span<entry_index> out) {
  int steps = 256;
  const auto first = 10 * in_small_ >= size_ ? small : main;
  const auto from = settle(first, steps) ? first : first == small ? main : small;
  if (!settle(from, steps))
    return 0;
  // Only entries that may be evicted, and no more than the queue has above its share.
  std::size_t n = 0;
  auto most = out.size();
  if (from == small && 10 * in_small_ > size_)
    most = std::min<std::size_t>(most, in_small_ - size_ / 10 + 1);
  for (auto at = lists_.oldest(from); at != from && n < most; at = lists_.younger(at)) {
    const auto uses = lists_.tag(at) & most_uses;
    if (n > 0 && (from == small ? uses > 1 : uses > 0))
      break;
    out[n++] = lists_.entry_at(at);
  }
  return n;
}

std::unique_ptr<eviction_policy> make_s3_fifo_policy(key_hash hash) {
  return std::make_unique<s3_fifo_policy>(std::move(hash));
}

} // namespace troupe
