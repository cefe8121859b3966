#include "actors/node/io_worker/io_worker_state.hpp"

/// The part of the state that scrubs the slab.

namespace troupe {

void io_worker_state::begin_scrub(std::span<std::byte> memory, std::uint32_t buffer, std::uint32_t shards,
                                  timestamp now) {
  scrub_slot_.set_memory(memory, buffer);
  scrub_.begin(shards, now);
}

bool io_worker_state::may_scrub(const page_ref& page) const {
  if (check_page(page, true) != errc::ok || in_memory_only(page.where.slot))
    return false;
  // A page that is only in memory, or is being written, is not in the slab yet. A page that is in memory as well is
  // still checked in the slab.
  const auto f = frames_.in_slot(page.where.slot);
  return f == no_frame || (frames_.page(f).where == page.where && frames_.state(f) == frame_state::clean);
}

bool io_worker_state::clients_read() const noexcept {
  return !queue_.empty() || transfers_.reads() > 0;
}

void io_worker_state::scrub_some(timestamp now) {
  if (draining_ || damaged_)
    return;
  while (const auto page = scrub_.take_page(clients_read(), now)) {
    if (!may_scrub(*page)) {
      scrub_.skipped(now);
      continue;
    }
    requests_.push_back(scrub_slot_.read(*page, transfers_.unused_tag(), now + options_.deadline_max));
  }
}

bool io_worker_state::end_of_scrub_read(const io::completion& c, timestamp now) {
  if (!scrub_slot_.ended(c.tag, c.status))
    return false;
  if (c.status != errc::ok)
    scrub_verdict(c.status, now);
  return true;
}

// The slot is not held while it is read, so that no request waits for the scrub. What was read may then be the page of
// another key, or a mixture. So the result counts only if the slot was not fenced, and only for the page with its
// generation. A page of this generation is written once, before the read began.
void io_worker_state::scrub_verdict(errc verdict, timestamp now) {
  if (check_page(scrub_slot_.page(), true) == errc::ok && !damaged_) {
    ++stats_.scrubbed_pages;
    const bool bad = verdict == errc::corrupt || verdict == errc::identity_mismatch || verdict == errc::io_error ||
                     verdict == errc::slab_damaged;
    if (bad) {
      ++stats_.scrub_unsound_pages;
      out_.damaged.push_back({scrub_slot_.page(), verdict, page_tier::disk});
    }
  }
  scrub_.ended(now);
}

} // namespace troupe
