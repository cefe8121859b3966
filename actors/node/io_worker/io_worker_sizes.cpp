#include "actors/node/io_worker/io_worker_state.hpp"

#include <algorithm>
#include <array>
#include <chrono>

/// The part of the state about frames of two sizes: which one a page gets, and how the sizes exchange extents.

namespace troupe {

namespace {

/// The time for which an extent may be emptied for frames of the other size.
constexpr duration recut_patience = std::chrono::seconds(5);

} // namespace

frame_size io_worker_state::best(frame_size needed) const noexcept {
  return frames_.extents(frame_size::whole) > 0 ? needed : frame_size::whole;
}

bool io_worker_state::finds_free_frame(frame_size size) {
  return frames_.free(size) > 0 || uses_last_whole_extent(size) || frames_.recut_for(size);
}

bool io_worker_state::waits_for_memory(frame_size needed, timestamp now) {
  const auto size = best(needed);
  if (finds_free_frame(size))
    return false;
  if (sizes_.wish().request_or_wait(now)) {
    sizes_.set_wished(size);
    return true;
  }
  sizes_.is_short(size, now);
  return false;
}

// The last whole extent is not given away, so encoded pages may use its frames before there are others for them.
bool io_worker_state::uses_last_whole_extent(frame_size size) const noexcept {
  return size == frame_size::encoded && frames_.extents(frame_size::whole) == 1 &&
         frames_.free(frame_size::whole) > 0 && frames_.free(frame_size::encoded) == 0;
}

frame_number io_worker_state::take_fitting(const page_ref& page, frame_state as, frame_size needed) {
  if (best(needed) == frame_size::whole) {
    const auto f = take_frame(page, as, frame_size::whole);
    // The slot may be there because frames for encoded pages are free, which are of no use here. Then a page that stays
    // in memory has to leave.
    const bool is_mixed =
        options_.memory_only ? frames_.free(frame_size::encoded) > 0 : frames_.extents(frame_size::encoded) > 0;
    if (f != no_frame || !is_mixed || !drop_staying(frame_size::whole))
      return f;
    return take_frame(page, as, frame_size::whole);
  }
  if (uses_last_whole_extent(frame_size::encoded))
    return take_frame(page, as, frame_size::whole);
  const auto f = take_frame(page, as, frame_size::encoded);
  return f != no_frame ? f : take_frame(page, as, frame_size::whole);
}

frame_sizes::report io_worker_state::report_of(frame_size x) const {
  return {static_cast<std::uint32_t>(frames_.extents(x)), frames_.free(x) / std::max(frames_.per_extent(x), 1U),
          frames_.oldest_use(x)};
}

std::array<frame_sizes::report, 2> io_worker_state::report_sizes() const {
  return {report_of(frame_size::whole), report_of(frame_size::encoded)};
}

bool io_worker_state::drop_staying(std::optional<frame_size> size) {
  const auto longest_ago = frames_.next_staying(size, options_.memory_only);
  if (longest_ago == no_frame)
    return false;
  drop_page(longest_ago);
  return true;
}

void io_worker_state::exchange_extents(timestamp now) {
  if (!sizes_.enabled() || !sizes_.competes(now) || draining_ || frames_.emptying())
    return;
  sizes_.reported(report_sizes(), now);
  const auto from = sizes_.take_order(now);
  if (!from)
    return;
  const bool is_last_whole = *from == frame_size::whole && frames_.extents(*from) < 2;
  if (is_last_whole || !frames_.begin_emptying(*from))
    return sizes_.refused(now);
  emptying_.begin(true, later(now, recut_patience));
}

frame_size io_worker_state::giving_size() const {
  const auto [whole, encoded] = report_sizes();
  if (encoded.extents == 0 || whole.extents == 0)
    return encoded.extents == 0 ? frame_size::whole : frame_size::encoded;
  // A size that has an extent's worth of free frames gives, then one whose pages can move; and the last whole extent
  // stays as long as there are others.
  if (whole.extents == 1 || encoded.free_extents > 0)
    return frame_size::encoded;
  if (encoded.extents == 1 || whole.free_extents > 0)
    return frame_size::whole;
  const auto unused = timestamp::min();
  return whole.oldest_use.value_or(unused) < encoded.oldest_use.value_or(unused) ? frame_size::whole
                                                                                 : frame_size::encoded;
}

} // namespace troupe
