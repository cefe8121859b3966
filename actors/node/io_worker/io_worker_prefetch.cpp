#include "actors/node/io_worker/io_worker_state.hpp"

#include <algorithm>

/// The part of the state about pages before a fetch requests them: pages that a lookup has found, and pages that are
/// not requested.

namespace troupe {

namespace {

/// One frame in this number may hold a promoted page that was not fetched yet.
constexpr std::uint64_t unfetched_part = 4;

} // namespace

// -- pages that lookups have found ------------------------------------------------------------------------------------

void io_worker_state::prefetch(const prefetch_request& x, timestamp now) {
  frames_.pass_time(now);
  if (options_.memory_only || draining_ || is_dead(x.lease.owner))
    return;
  for (const auto& page : x.pages)
    if (const auto f = frames_.find(page.where); f != no_frame) {
      // The page is about to be used, and should not be evicted for those that are read now.
      frames_.touch(f);
      ask_again(f);
    }
  drop_displaced();
  if (options_.prefetch_pages_max > 0)
    stats_.prefetches_cancelled += ahead_.add({x.shard, x.lease}, x.first, x.pages.items);
  write_behind();
  promote_ahead(now);
}

void io_worker_state::end_prefetch(const prefetch_end& x, timestamp now) {
  stats_.prefetches_cancelled += ahead_.end({x.shard, x.lease}, x.keep);
  promote_ahead(now);
}

bool io_worker_state::may_promote_ahead() const noexcept {
  if (ahead_.waiting() == 0 || draining_ || damaged_ || !queue_.empty())
    return false;
  // Frames of an extent that is being emptied do not count.
  const auto most = std::min<std::uint64_t>(options_.prefetch_pages_max,
                                            std::max<std::uint64_t>(frames_.lasting() / unfetched_part, 1));
  return transfers_.reads() < options_.reads_max && transfers_.reads_ahead() < options_.prefetch_reads_max &&
         ahead_.unfetched() < most;
}

// Called after requests were served: those take frames first, and promotion starts when no request waits for one.
void io_worker_state::promote_ahead(timestamp now) {
  while (may_promote_ahead()) {
    const auto page = ahead_.front();
    // The page is in memory, is being read, was dropped, or is not in the slab.
    if (check_page(page, true) != errc::ok || in_memory_only(page.where.slot) ||
        frames_.in_slot(page.where.slot) != no_frame) {
      ahead_.skip();
      continue;
    }
    // A rank that gives back an extent requests none.
    const auto size = sizes_.of_stored(page.where.slot);
    if (!finds_free_frame(best(size)) && sizes_.wish().may_request(now) && !frames_.emptying()) {
      sizes_.set_wished(best(size));
      sizes_.wish().request();
      return;
    }
    const auto f = take_fitting(page, frame_state::reading, size);
    if (f == no_frame)
      return;
    // The frame is not pinned before a fetch requests it; only the transfer holds it.
    frames_.unpin(f);
    ahead_.begin(f);
    const auto tag = begin_transfer({f, page.where.slot, true, true});
    ask_for_read(f, page.where, tag, now + options_.deadline_max);
  }
}

// -- pages that are not requested -------------------------------------------------------------------------------------

void io_worker_state::hold_back(std::span<const frame_number> frames, timestamp now) {
  if (frames.empty())
    return;
  auto& x = fresh_.emplace_back();
  x.until = now + options_.commit_time;
  for (const auto f : frames) {
    frames_.hold_back(f);
    x.pages.push_back(frames_.page(f).where);
  }
}

void io_worker_state::end_fresh(timestamp now) {
  std::vector<frame_number> ready;
  for (; !fresh_.empty() && fresh_.front().until <= now; fresh_.pop_front()) {
    ready.clear();
    for (const auto& where : fresh_.front().pages)
      if (const auto f = fresh_frame(where); f != no_frame)
        ready.push_back(f);
    frames_.let_expend(ready);
  }
}

frame_number io_worker_state::fresh_frame(const slot_ref& where) const noexcept {
  const auto f = frames_.find(where);
  return f != no_frame && frames_.held_back(f) && !frames_.expendable(f) ? f : no_frame;
}

void io_worker_state::ask_again(frame_number f) {
  if (frames_.keep(f))
    add_to_write(f);
}

frame_number io_worker_state::take_frame(const page_ref& page, frame_state as, frame_size size) {
  const auto f = frames_.take(page, as, size);
  note_vacated();
  return f;
}

// Pages that were not requested again by the end of a run are not written then either.
void io_worker_state::drop_all() {
  frames_.drop_all();
  note_vacated();
}

void io_worker_state::note_vacated() {
  for (const auto f : frames_.vacated())
    ahead_.lost(f);
  frames_.forget_vacated();
  for (const auto& page : frames_.take_dropped())
    note_dropped(page);
}

void io_worker_state::note_dropped(const page_ref& page) {
  ++stats_.dropped_pages;
  unwritten_[page.where.slot] = page.where.generation;
  out_.dropped.push_back(page);
}

bool io_worker_state::was_dropped(const slot_ref& where) const noexcept {
  const auto found = unwritten_.find(where.slot);
  return found != unwritten_.end() && found->second == where.generation;
}

} // namespace troupe
