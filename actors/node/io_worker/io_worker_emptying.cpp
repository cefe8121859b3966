#include "actors/node/io_worker/io_worker_state.hpp"

#include <algorithm>

/// The part of the state that returns memory to the arena.

namespace troupe {

namespace {

/// The bytes that one step moves: about a millisecond's worth.
constexpr std::uint64_t step_bytes = std::uint64_t{4} << 20U;

} // namespace

result<void> io_worker_state::begin_emptying(bool must, duration patience, timestamp now) {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  // The other size of frames can wait.
  if (sizes_.is_giving() && must)
    end_emptying(errc::busy, now);
  if (frames_.emptying())
    return fail(errc::busy, "an extent of this rank is being emptied");
  if (!frames_.begin_emptying(giving_size()))
    return fail(errc::not_found, "this rank has no extent");
  emptying_.begin(must, later(now, patience));
  return {};
}

frame_size io_worker_state::target_of(frame_number f) const noexcept {
  const auto size = frames_.size_of(f);
  // Pages that no policy knows can change the size of their frame.
  const bool free_to_move = frames_.state(f) == frame_state::dirty && !frames_.held_back(f);
  return frames_.free(size) == 0 && free_to_move ? frame_size::whole : size;
}

bool io_worker_state::may_move(frame_number f) const noexcept {
  return frames_.free(target_of(f)) > 0;
}

bool io_worker_state::make_room(frame_number f) {
  const auto size = frames_.size_of(f);
  if (may_move(f))
    return true;
  if (frames_.evict(size)) {
    note_vacated();
    return true;
  }
  // Without the extent there is less room for pages that stay in memory, of either size. Where all do, the allocator
  // makes room as far as there are no free frames, of whatever size.
  if ((displaced() > 0 || frames_.staying(size) > frames_.lasting(size) ||
       (options_.memory_only && frames_.free(other_size(size)) > 0)) &&
      drop_staying(size))
    return true;
  if (frames_.state(f) != frame_state::dirty || options_.memory_only || (frames_.stays(f) && !damaged_))
    return false;
  if (!damaged_) {
    emptying_.need_writes();
    return false;
  }
  // No page of the slab will leave any more.
  if (frames_.stays(f)) {
    drop_page(f);
    return true;
  }
  // A held-back page becomes expendable when its commit has had its time.
  if (frames_.held_back(f))
    return false;
  // The page can never be written.
  out_.damaged.push_back({frames_.page(f), errc::slab_damaged, page_tier::memory});
  drop_frame(f);
  return true;
}

void io_worker_state::move_page(frame_number from) {
  const bool dirty = frames_.state(from) == frame_state::dirty;
  const auto to = frames_.move(from, target_of(from));
  ahead_.moved(from, to);
  if (!dirty || frames_.held_back(to))
    return;
  // Entries with the old frame are void: that frame is free, or its turn has changed.
  add_to_write(to);
  fills_.moved(from, to);
}

void io_worker_state::empty_some(timestamp now) {
  if (!frames_.emptying())
    return;
  emptying_.begin_step();
  end_fresh(now);
  if (const auto code = emptying_.obstacle(short_of_ > 0, now); code != errc::ok)
    return end_emptying(code, now);
  std::uint64_t moved = 0;
  for (auto f = frames_.next_to_move(); f != no_frame && make_room(f); f = frames_.next_to_move()) {
    if (moved >= step_bytes) {
      emptying_.pause();
      break;
    }
    // The evicted page may have been this very page.
    if (frames_.next_to_move() != f || !may_move(f))
      continue;
    move_page(f);
    moved += frames_.bytes(f).size();
  }
  if (frames_.emptied())
    return end_emptying(errc::ok, now);
  write_behind();
}

void io_worker_state::end_emptying(errc code, timestamp now) {
  frame_table::extent memory;
  if (code == errc::ok)
    memory = frames_.take_emptied();
  else
    frames_.stop_emptying();
  // Otherwise the extent is for frames of the other size.
  if (!sizes_.is_giving()) {
    stats_.returned_extents += code == errc::ok ? 1 : 0;
    emptying_.end({code, memory});
  } else {
    emptying_.end_quietly();
    if (code == errc::ok)
      frames_.add_extent(memory, sizes_.given(memory.number, now));
    else
      sizes_.refused(now);
  }
  serve(now);
}

} // namespace troupe
