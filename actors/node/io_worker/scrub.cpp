#include "actors/node/io_worker/scrub.hpp"

#include <algorithm>
#include <functional>

namespace troupe {

void scrub::begin(std::uint32_t shards, timestamp now) {
  if (options_.bytes_per_second == 0)
    return;
  shards_ = shards;
  not_before_ = ask_at_ = now;
}

std::optional<scrub::wish> scrub::take_wish(timestamp now) {
  if (!on() || asked_ || reading_ || !pages_.empty() || now < ask_at_)
    return std::nullopt;
  asked_ = true;
  return wish{shard_, from_, options_.listed_max};
}

void scrub::listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now) {
  asked_ = false;
  from_ = next;
  more_ = more;
  pages_ = std::move(pages);
  std::ranges::sort(pages_, std::greater<>{}, &page_ref::where);
  if (pages_.empty())
    go_on(now);
}

void scrub::not_listed(timestamp now) {
  asked_ = false;
  ask_at_ = now + options_.retry;
}

std::optional<page_ref> scrub::take_page(bool busy, timestamp now) {
  if (pages_.empty() || reading_ || now < not_before_ || (busy && now < not_before_ + options_.patience))
    return std::nullopt;
  reading_ = true;
  const auto page = pages_.back();
  pages_.pop_back();
  return page;
}

void scrub::skipped(timestamp now) {
  reading_ = false;
  if (pages_.empty())
    go_on(now);
}

void scrub::ended(timestamp now) {
  // From the end of the read: a disk that is slow is left alone for as long in between.
  const auto seconds = static_cast<double>(options_.slot_bytes) / static_cast<double>(options_.bytes_per_second);
  not_before_ = now + std::chrono::duration_cast<duration>(std::chrono::duration<double>(seconds));
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
  ++passes_;
  ask_at_ = now + options_.pass_pause;
}

std::optional<timestamp> scrub::next(bool busy) const noexcept {
  if (!on() || asked_ || reading_)
    return std::nullopt;
  if (pages_.empty())
    return ask_at_;
  return not_before_ + (busy ? options_.patience : duration::zero());
}

} // namespace troupe
