#include "actors/node/io_worker/frame_sizes.hpp"

#include <chrono>
#include <utility>

namespace troupe {

namespace {

/// A rank repeats its request for memory every second.
constexpr duration shortage_lasts = std::chrono::seconds(2);

/// Between two exchanges of extents: moving the pages of one may take ten milliseconds, in which requests wait.
constexpr duration exchange_rest = std::chrono::milliseconds(100);

} // namespace

frame_sizes::frame_sizes(std::uint64_t slots, bool enabled) : enabled_(enabled) {
  if (!enabled)
    return;
  known_.resize(slots, unknown);
  exchange_.add(holder_of(frame_size::whole));
  exchange_.add(holder_of(frame_size::encoded));
}

void frame_sizes::note(slot_number slot, frame_size needed) {
  if (!enabled_)
    return;
  known_[slot] = static_cast<std::uint8_t>(needed);
  usual_ = needed;
}

frame_size frame_sizes::of_stored(slot_number slot) const noexcept {
  return is_known(slot) ? static_cast<frame_size>(known_[slot]) : usual_;
}

frame_size frame_sizes::of_new_extent(bool asked, bool has_whole) const noexcept {
  if (!enabled_ || !has_whole)
    return frame_size::whole;
  return asked ? wished_ : usual_;
}

void frame_sizes::is_short(frame_size x, timestamp now) {
  if (enabled_)
    short_until_[static_cast<std::size_t>(x)] = later(now, shortage_lasts);
}

void frame_sizes::notify(const std::array<report, 2>& sizes, bool wishes, timestamp now) {
  for (const auto x : {frame_size::whole, frame_size::encoded}) {
    const auto at = static_cast<std::size_t>(x);
    auto is = sizes[at];
    // Encoded pages can do without frames of their own, so they get the first extent by its age like any other.
    if (x == frame_size::encoded && is.extents == 0)
      is = {1, 0, now};
    exchange_.notified(holder_of(x), {wishes && now < short_until_[at], is.extents, is.free_extents, is.oldest_use},
                       now);
  }
}

void frame_sizes::noticed(const std::array<report, 2>& sizes, timestamp now) {
  notify(sizes, false, now);
}

void frame_sizes::reported(const std::array<report, 2>& sizes, timestamp now) {
  // A decision follows each report, and must not be made by an earlier state of the other size.
  notify(sizes, false, now);
  notify(sizes, true, now);
}

std::optional<frame_size> frame_sizes::take_order(timestamp now) {
  const auto orders = exchange_.take_orders();
  if (orders.empty())
    return std::nullopt;
  // A rank empties one extent at a time.
  for (std::size_t i = 1; i < orders.size(); ++i)
    exchange_.refused(orders[i].from, now);
  giving_ = static_cast<frame_size>(orders.front().from - 1);
  return giving_;
}

frame_size frame_sizes::given(extent_number extent, timestamp now) {
  auto to = *std::exchange(giving_, std::nullopt);
  rest_until_ = later(now, exchange_rest);
  exchange_.given_back(holder_of(to), extent, now);
  for (const auto& x : exchange_.take_assignments()) {
    to = static_cast<frame_size>(x.to - 1);
    exchange_.accepted(x, true, now);
  }
  // Otherwise it is not needed any more, and remains where it was.
  static_cast<void>(exchange_.take_returns());
  return to;
}

void frame_sizes::refused(timestamp now) {
  rest_until_ = later(now, exchange_rest);
  exchange_.refused(holder_of(*std::exchange(giving_, std::nullopt)), now);
}

} // namespace troupe
