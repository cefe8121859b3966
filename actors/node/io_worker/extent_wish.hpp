#pragma once

#include "base/clock.hpp"

namespace troupe {

/// Whether a rank requests an extent from the arena, and when it may do so next.
///
/// Invariant: no extent is requested before the time that the last refusal set, and an extent that was announced is
/// waited for only for a bounded time from the first announcement on.
class extent_wish {
public:
  /// Whether an extent is requested, and neither `added` nor `refused` has followed.
  bool requested() const noexcept { return requested_; }
  /// Whether an announced extent has not arrived yet.
  bool on_its_way() const noexcept { return on_its_way_; }

  /// An extent has arrived. More may be available, so the next one may be requested at once.
  void added() noexcept;
  /// There is no extent now. It may be requested again a second later; with `on_its_way` soon.
  void refused(bool on_its_way, timestamp now) noexcept;

  /// Whether an extent may be requested.
  bool may_request(timestamp now) const noexcept { return now >= next_; }
  void request() noexcept { requested_ = true; }
  /// Requests an extent, if that may be done. Returns whether the caller should wait for an extent, a requested or an
  /// announced one, before it evicts pages.
  bool request_or_wait(timestamp now) noexcept;

private:
  /// The earliest time for the next request.
  timestamp next_ = timestamp::min();
  /// Until when an announced extent is waited for.
  timestamp due_ = timestamp::min();
  bool on_its_way_ = false;
  bool requested_ = false;
};

} // namespace troupe
