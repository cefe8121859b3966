#include "actors/node/io_worker/scrub.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace troupe {

void scrub::begin(std::uint32_t shards, timestamp now) {
  if (!options_.pace)
    return;
  shards_ = shards;
  not_before_ = ask_at_ = now;
}

void scrub::end() {
  share_pace(false);
  shards_ = 0;
  pages_.clear();
}

void scrub::share_pace(bool wanted) {
  if (std::exchange(shares_, wanted) == wanted)
    return;
  waited_ = duration::zero();
  if (wanted)
    options_.pace->join();
  else
    options_.pace->leave();
}

std::optional<scrub::wish> scrub::take_wish(timestamp now) {
  if (!on() || asked_ || reading_ || !pages_.empty() || now < ask_at_)
    return std::nullopt;
  asked_ = true;
  return wish{shard_, from_, options_.listed_max};
}

void scrub::listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now) {
  asked_ = false;
  if (!on())
    return;
  from_ = next;
  more_ = more;
  pages_ = std::move(pages);
  std::ranges::sort(pages_, std::greater<>{}, &page_ref::where);
  if (pages_.empty())
    go_on(now);
  else
    share_pace(true);
}

void scrub::not_listed(timestamp now) {
  asked_ = false;
  ask_at_ = now + options_.retry;
}

std::optional<page_ref> scrub::take_page(bool busy, timestamp now) {
  if (pages_.empty() || reading_ || now < not_before_)
    return std::nullopt;
  if (!turn_) {
    turn_ = options_.pace->take(options_.slot_bytes, now);
    waited_ += *turn_ - now;
  }
  if (now < *turn_ + (busy ? options_.patience : duration::zero()))
    return std::nullopt;
  reading_ = true;
  const auto page = pages_.back();
  pages_.pop_back();
  return page;
}

void scrub::skipped(timestamp now) {
  reading_ = false;
  if (on() && pages_.empty())
    go_on(now);
}

void scrub::ended(timestamp now) {
  turn_.reset();
  // The pause counts from the end of the read, so that a slow disk also gets that much rest.
  if (on()) {
    const auto rest = options_.pace->rest(options_.slot_bytes);
    const auto made_up_for = std::min(rest, waited_);
    waited_ -= made_up_for;
    not_before_ = now + (rest - made_up_for);
  }
  skipped(now);
}

void scrub::go_on(timestamp now) {
  ask_at_ = now;
  if (more_)
    return;
  more_ = true;
  from_ = 0;
  if (++shard_ < shards_)
    return;
  shard_ = 0;
  share_pace(false);
  ++passes_;
  ask_at_ = now + options_.pass_pause;
}

std::optional<timestamp> scrub::next(bool busy) const noexcept {
  if (!on() || asked_ || reading_)
    return std::nullopt;
  if (pages_.empty())
    return ask_at_;
  return turn_ ? *turn_ + (busy ? options_.patience : duration::zero()) : not_before_;
}

} // namespace troupe
