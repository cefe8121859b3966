#include "actors/node/io_worker/io_worker_state.hpp"
#include "io/slab/beyond_slab.hpp"

#include <algorithm>

/// The part of the state for the slab: write-back, promotion and fences.

namespace troupe {

namespace {

/// With write-back on eviction: one frame in this number is kept ready for reuse.
constexpr std::uint64_t ready_part = 8;

} // namespace

std::uint64_t io_worker_state::begin_transfer(const page_transfer& x) {
  fences_.begin_transfer(x.slot);
  return transfers_.begin(x);
}

void io_worker_state::ask_for(io::operation op, frame_number f, const slot_ref& where, std::span<std::byte> bytes,
                              std::uint64_t tag, timestamp deadline) {
  transfers_.requested(tag, bytes.size());
  requests_.push_back({op, where, bytes.data(), bytes.size(), frames_.buffer(f), tag, deadline});
}

bool io_worker_state::may_write_behind() const noexcept {
  if (damaged_ || transfers_.writes() >= options_.writes_max || !to_write_.any_due())
    return false;
  if (emptying_.needs_writes())
    return true;
  // Clean frames may be pinned, so waiting requests are counted as well as the frames to be kept ready.
  if (options_.write_eagerly || options_.write_through || draining_ || transfers_.writes() < short_of_)
    return true;
  const auto ready =
      frames_.count(frame_state::free) + frames_.count(frame_state::clean) + frames_.held_back() + transfers_.writes();
  return ready < std::max<std::uint64_t>((frames_.size() - frames_.staying()) / ready_part, 1);
}

void io_worker_state::write_behind() {
  if (usage_.take_change())
    to_write_.release();
  while (may_write_behind()) {
    const auto x = to_write_.front();
    // A page for which there is no disk space yet is held, and not those behind it, whose slots may give some back.
    const bool waits = is_due(x);
    if (waits && !usage_.begin_write(frames_.page(x.frame).where.slot)) {
      to_write_.hold();
      continue;
    }
    to_write_.take();
    if (waits)
      start_check(x.frame);
  }
  trim_slots();
  if (draining_ && !damaged_ && transfers_.size() == 0 && usage_.trims() == 0)
    drop_held();
  if (damaged_)
    for (const auto& x : to_write_.take_all())
      if (frames_.turn(x.frame) == x.turn)
        fills_.written(x.frame, errc::slab_damaged);
}

// The page may have been dropped, and the frame reused.
bool io_worker_state::is_due(const write_queue::entry& x) const {
  return frames_.turn(x.frame) == x.turn && frames_.state(x.frame) == frame_state::dirty;
}

// Nothing is certain to give disk space back any more.
void io_worker_state::drop_held() {
  if (!to_write_.any_held())
    return;
  for (const auto& x : to_write_.take_all())
    if (is_due(x))
      drop_page(x.frame);
}

void io_worker_state::trim_slots() {
  while (usage_.enabled() && !damaged_) {
    const auto tag = transfers_.unused_tag();
    const auto x = usage_.next_trim(tag);
    if (!x)
      return;
    requests_.push_back({io::operation::trim, {x->slot, 0}, nullptr, x->bytes, 0, tag, timestamp::max(), x->from});
  }
}

void io_worker_state::slab_granted(const io::slab_grant& x) {
  usage_.grant(x.pages, x.slots);
  write_behind();
}

// A client may have corrupted a page in shared memory. The page is verified before it is written, or the corruption
// would survive a restart.
void io_worker_state::start_check(frame_number f) {
  frames_.begin_write(f);
  const auto tag = begin_transfer({f, frames_.page(f).where.slot, false});
  checks_.push_back({tag, frames_.page(f), frames_.offset(f), frames_.bytes(f).size()});
}

void io_worker_state::checked(std::uint64_t number, errc verdict, timestamp now) {
  const auto found = transfers_.find(number);
  if (!found)
    return;
  const auto t = *found;
  if (verdict == errc::ok && damaged_ && !frames_.dropped(t.frame)) {
    // The slab was found damaged while the page was being verified.
    transfers_.end(number);
    written(t, errc::slab_damaged, now);
    fences_.end_transfer(t.slot);
    return;
  }
  if (verdict == errc::ok && !frames_.dropped(t.frame)) {
    // What is behind the page belongs to an earlier one, which may be of another rank or namespace.
    auto bytes = frames_.bytes(t.frame);
    const auto used = io::used_bytes(bytes);
    if (options_.whole_slots)
      std::ranges::fill(bytes.subspan(used), std::byte{0});
    else
      bytes = bytes.first(used);
    ask_for(io::operation::write, t.frame, frames_.page(t.frame).where, bytes, number, now + options_.deadline_max);
    return;
  }
  transfers_.end(number);
  if (!frames_.dropped(t.frame)) {
    ++stats_.damaged_pages;
    out_.damaged.push_back({frames_.page(t.frame), verdict, page_tier::memory});
    frames_.drop(t.frame);
  }
  written(t, verdict == errc::ok ? errc::stale : verdict, now);
  fences_.end_transfer(t.slot);
  write_behind();
  serve(now);
}

void io_worker_state::complete(std::span<const io::completion> completions, timestamp now) {
  frames_.pass_time(now);
  for (const auto& c : completions) {
    if (end_of_scrub_read(c, now))
      continue;
    if (usage_.end_trim(c.tag, c.status == errc::ok)) {
      note_outcome(c.status, now);
      continue;
    }
    const auto ended = transfers_.end(c.tag);
    if (!ended)
      continue;
    const auto t = *ended;
    if (c.status == errc::ok) {
      ++(t.read ? stats_.read_pages : stats_.written_pages);
      (t.read ? stats_.read_bytes : stats_.written_bytes) += t.bytes;
    } else {
      ++(c.status == errc::timeout ? stats_.timed_out : stats_.failed);
    }
    if (t.ahead)
      stats_.prefetched_pages += c.status == errc::ok ? 1 : 0;
    if (t.read) {
      end_of_read(t, c.status, now);
    } else {
      note_outcome(c.status, now);
      written(t, c.status, now);
    }
    fences_.end_transfer(t.slot);
  }
  write_behind();
  serve(now);
}

void io_worker_state::ask_for_read(frame_number f, const slot_ref& where, std::uint64_t tag, timestamp deadline) {
  auto bytes = frames_.bytes(f);
  if (sizes_.is_known(where.slot) && sizes_.of_stored(where.slot) == frame_size::encoded)
    bytes = bytes.first(options_.encoded_bytes);
  ask_for(io::operation::read, f, where, bytes, tag, deadline);
}

void io_worker_state::read_again(frame_number f, timestamp now) {
  const auto page = frames_.page(f);
  sizes_.note(page.where.slot, frame_size::whole);
  frames_.end_read(f, false);
  ahead_.lost(f);
  auto waiting = read_waiters_.extract(f);
  if (waiting.empty())
    return;
  const auto to = take_fitting(page, frame_state::reading, frame_size::whole);
  auto latest = now;
  for (const auto& w : waiting.mapped()) {
    const auto found = requests_open_.find(w.id);
    if (found == requests_open_.end())
      continue; // its client has disconnected
    auto& r = found->second;
    frames_.unpin(f);
    r.frames[w.position] = to;
    if (to == no_frame) {
      --r.reading;
      set_code(r, w.position, errc::full);
      answer_if_done(w.id);
      continue;
    }
    frames_.pin(to);
    latest = std::max(latest, r.deadline);
  }
  if (to == no_frame)
    return;
  read_waiters_[to] = std::move(waiting.mapped());
  // Only those who wait have it pinned.
  frames_.unpin(to);
  ask_for_read(to, page.where, begin_transfer({to, page.where.slot, true}), latest);
}

void io_worker_state::end_of_read(const page_transfer& t, errc code, timestamp now) {
  const auto f = t.frame;
  if (frames_.dropped(f))
    code = errc::stale;
  if (code == errc::ok && sizes_.enabled()) {
    const auto read = frames_.bytes(f).first(t.bytes);
    if (read.size() < options_.slot_bytes && io::is_cut_off(read))
      return read_again(f, now);
    if (const auto sizes = io::sizes_of(read); sizes.stored > 0)
      sizes_.note(t.slot, size_for(sizes.stored));
  }
  // After a failure the waiting requests still have the frame pinned; it becomes free when the last of them has been
  // answered.
  frames_.end_read(f, code == errc::ok);
  if (code != errc::ok)
    ahead_.lost(f);
  auto waiting = read_waiters_.extract(f);
  if (waiting.empty())
    return;
  for (const auto& w : waiting.mapped()) {
    const auto found = requests_open_.find(w.id);
    if (found == requests_open_.end())
      continue; // its client has disconnected
    auto& r = found->second;
    --r.reading;
    if (code == errc::ok) {
      give_frame(r, w.position, f, true);
    } else {
      r.frames[w.position] = no_frame;
      set_code(r, w.position, code);
      frames_.unpin(f);
    }
    answer_if_done(w.id);
  }
}

// A transfer that was cancelled says nothing about the disk.
void io_worker_state::note_outcome(errc code, timestamp now) {
  if (code != errc::ok && code != errc::cancelled && code != errc::shutting_down)
    to_write_.note_trouble(code, now);
}

void io_worker_state::written(const page_transfer& t, errc code, timestamp now) {
  const auto f = t.frame;
  usage_.end_write(t.slot);
  const bool dropped = frames_.dropped(f);
  fills_.written(f, dropped && code == errc::ok ? errc::stale : code);
  frames_.end_write(f, code == errc::ok);
  if (code != errc::ok && !dropped)
    to_write_.add_failed({f, frames_.turn(f)}, now);
}

void io_worker_state::drop_frame(frame_number f) {
  if (frames_.state(f) == frame_state::dirty)
    fills_.written(f, errc::stale); // it will not be written any more
  ahead_.lost(f);
  frames_.drop(f);
}

std::uint64_t io_worker_state::displaced() const noexcept {
  const auto slots = options_.expected_slab_slots > 0 ? options_.expected_slab_slots : options_.slab_slots();
  const auto most = io::pages_beyond_slab(frames_.lasting(), slots);
  return frames_.staying() > most ? frames_.staying() - most : 0;
}

void io_worker_state::drop_displaced() {
  // While an extent is being emptied, pages are dropped only as far as it is necessary: it may stay.
  if (frames_.emptying())
    return;
  // If none can be dropped, those that are left are pinned.
  for (auto left = displaced(); left > 0 && drop_staying(); --left)
    continue;
}

void io_worker_state::drop_page(frame_number f) {
  note_dropped(frames_.page(f));
  drop_frame(f);
}

io_worker_state::fence_id io_worker_state::fence(std::span<const slot_ref> slots, timestamp now) {
  const auto id = fences_.fence(slots);
  usage_.pages_are_known();
  for (const auto& x : slots) {
    if (!fences_.has(x.slot))
      continue;
    if (const auto gone = unwritten_.find(x.slot); gone != unwritten_.end() && fences_.rejects({x.slot, gone->second}))
      unwritten_.erase(gone);
    if (const auto f = frames_.in_slot(x.slot); f != no_frame && fences_.rejects(frames_.page(f).where))
      drop_frame(f);
    if (frames_.in_slot(x.slot) == no_frame)
      usage_.vacate(x.slot);
  }
  // The slots may be what a write waits for.
  if (usage_.enabled())
    write_behind();
  serve(now);
  return id;
}

} // namespace troupe
