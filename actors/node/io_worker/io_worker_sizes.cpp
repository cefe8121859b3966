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

bool io_worker_state::waits_for_memory(frame_size needed, timestamp now) {
  const auto size = best(needed);
  if (frames_.free(size) > 0 || (sizes_.enabled() && frames_.recut_for(size)))
    return false;
  if (sizes_.wish().request_or_wait(now)) {
    sizes_.set_wished(size);
    return true;
  }
  sizes_.is_short(size, now);
  return false;
}

frame_number io_worker_state::take_fitting(const page_ref& page, frame_state as, frame_size needed) {
  if (best(needed) == frame_size::whole)
    return take_frame(page, as, frame_size::whole);
  // The last whole extent is not given away, so its frames may as well be used.
  if (frames_.free(frame_size::encoded) == 0 && frames_.extents(frame_size::whole) == 1 &&
      frames_.free(frame_size::whole) > 0)
    return take_frame(page, as, frame_size::whole);
  const auto f = take_frame(page, as, frame_size::encoded);
  return f != no_frame ? f : take_frame(page, as, frame_size::whole);
}

frame_sizes::report io_worker_state::report_of(frame_size x) const {
  const auto extents = frames_.extents(x);
  const auto each = extents == 0 ? 1 : std::max<std::uint64_t>(frames_.lasting(x) / extents, 1);
  return {static_cast<std::uint32_t>(extents), frames_.free(x) / each, frames_.oldest_use(x)};
}

void io_worker_state::exchange_extents(timestamp now) {
  if (!sizes_.enabled() || !sizes_.competes(now) || draining_ || frames_.emptying())
    return;
  sizes_.reported({report_of(frame_size::whole), report_of(frame_size::encoded)}, now);
  const auto from = sizes_.take_order(now);
  if (!from)
    return;
  const bool is_last_whole = *from == frame_size::whole && frames_.extents(*from) < 2;
  if (is_last_whole || !frames_.begin_emptying(*from))
    return sizes_.refused(now);
  emptying_.begin(true, later(now, recut_patience));
}

frame_size io_worker_state::giving_size() const {
  const auto whole = frames_.extents(frame_size::whole);
  const auto encoded = frames_.extents(frame_size::encoded);
  if (encoded == 0 || whole == 0)
    return encoded == 0 ? frame_size::whole : frame_size::encoded;
  // Pages of the last extent of a size have nowhere to move to.
  if (whole == 1 || encoded == 1)
    return whole == 1 ? frame_size::encoded : frame_size::whole;
  const auto never = timestamp::max();
  return frames_.oldest_use(frame_size::whole).value_or(never) < frames_.oldest_use(frame_size::encoded).value_or(never)
             ? frame_size::whole
             : frame_size::encoded;
}

} // namespace troupe
