#include "actors/node/io_worker/io_worker_state.hpp"

/// Pages that are read in the slab though nobody asks for them.

namespace troupe {

void io_worker_state::begin_scrub(std::span<std::byte> memory, std::uint32_t buffer, std::uint32_t shards,
                                  timestamp now) {
  scrub_memory_ = memory;
  scrub_buffer_ = buffer;
  scrub_.begin(shards, now);
}

bool io_worker_state::may_scrub(const page_ref& page) const {
  if (check_page(page, true) != errc::ok)
    return false;
  // What is in memory alone, or on its way to the slab, is not there yet. Of one that is in memory as well the slab is
  // looked at all the same.
  const auto f = frames_.in_slot(page.where.slot);
  return f == no_frame || (frames_.page(f).where == page.where && frames_.state(f) == frame_state::clean);
}

bool io_worker_state::clients_read() const noexcept {
  return !queue_.empty() || reads_ > 0;
}

void io_worker_state::scrub_some(timestamp now) {
  if (draining_ || damaged_)
    return;
  while (const auto page = scrub_.take_page(clients_read(), now)) {
    if (!may_scrub(*page)) {
      scrub_.skipped(now);
      continue;
    }
    scrubbed_ = *page;
    scrub_tag_ = ++last_tag_;
    requests_.push_back({io::operation::read, page->where, scrub_memory_.data(), scrub_memory_.size(), scrub_buffer_,
                         scrub_tag_, now + options_.deadline_max});
  }
}

bool io_worker_state::end_of_scrub_read(const io::completion& c, timestamp now) {
  if (c.tag != scrub_tag_)
    return false;
  scrub_tag_ = 0;
  if (c.status == errc::ok)
    scrub_check_ = scrubbed_;
  else
    scrub_verdict(c.status, now);
  return true;
}

// Nothing keeps the slot while it is read, so that nobody waits for that: what was read may be the page of another key,
// or half of it. So what is said of it counts only if the slot has not been fenced, and for the page that was meant,
// with its generation. A page of this generation is written once, and was before the read began.
void io_worker_state::scrub_verdict(errc verdict, timestamp now) {
  if (check_page(scrubbed_, true) == errc::ok && !damaged_) {
    ++stats_.scrubbed_pages;
    const bool bad = verdict == errc::corrupt || verdict == errc::identity_mismatch || verdict == errc::io_error ||
                     verdict == errc::slab_damaged;
    if (bad) {
      ++stats_.scrub_unsound_pages;
      damaged_out_.push_back({scrubbed_, verdict, page_tier::disk});
    }
  }
  scrub_.ended(now);
}

} // namespace troupe
