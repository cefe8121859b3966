#pragma once

#include "actors/node/io_worker/extent_wish.hpp"
#include "actors/node/memory/memory_broker_state.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Which frames of a rank are for encoded pages: what is known of the pages, and how the two sizes of frames share the
/// rank's extents.
///
/// Pages. A page in the slab is read into a frame of the size that it needs. That is known of pages that were filled or
/// read in this run. Of others, the size of the page before is assumed: a wrong assumption costs a second read, or a
/// frame that is larger than necessary.
///
/// Extents. A rank has a whole extent before it gets one for encoded pages, and keeps the last one, so that every page
/// finds a frame. Beyond that, the two sizes compete like ranks of a node, by the rules of `memory_broker_state`: an
/// extent goes to the size that is short of frames if the oldest page of the other one has been unused for clearly
/// longer, or if it has a whole extent of free frames. Between two of these exchanges is a rest, since pages are moved.
///
/// Plain state; not thread-safe.
class frame_sizes {
public:
  using extent_number = std::uint32_t;

  /// The state of the frames of one size.
  struct report {
    std::uint32_t extents = 0;
    /// Free frames, in extents.
    std::uint64_t free_extents = 0;
    std::optional<timestamp> oldest_use;
  };

  /// `enabled`: there are frames for encoded pages; otherwise all frames are whole.
  frame_sizes(std::uint64_t slots, bool enabled);

  bool enabled() const noexcept { return enabled_; }

  // -- pages ---------------------------------------------------------------------------------------------------------

  /// The page of the slot needs a frame of this size.
  void note(slot_number slot, frame_size needed);
  /// The size of the frame for a stored page, as far as it is known.
  frame_size of_stored(slot_number slot) const noexcept;
  /// Whether that is certain.
  bool is_known(slot_number slot) const noexcept { return enabled_ && known_[slot] != unknown; }
  /// What most pages need at present.
  frame_size usual() const noexcept { return usual_; }

  // -- extents -------------------------------------------------------------------------------------------------------

  /// The request for an extent of the arena, for the size that was wished last.
  extent_wish& wish() noexcept { return wish_; }
  const extent_wish& wish() const noexcept { return wish_; }
  void set_wished(frame_size x) noexcept { wished_ = x; }
  /// The size of the frames of an extent that was added; `asked`: on request.
  /// `has_whole`: there are whole frames that stay.
  frame_size of_new_extent(bool asked, bool has_whole) const noexcept;

  /// There was neither a frame of this size nor an extent. It counts for some seconds.
  void is_short(frame_size x, timestamp now);
  /// Updates the state of both sizes, whole frames first, which `noticed` does without a decision.
  void noticed(const std::array<report, 2>& sizes, timestamp now);
  /// The same; `take_order` may have something afterwards.
  void reported(const std::array<report, 2>& sizes, timestamp now);
  /// Whether `reported` may make a difference.
  bool competes(timestamp now) const noexcept {
    return !giving_ && now >= rest_until_ && (now < short_until_[0] || now < short_until_[1]);
  }
  /// Whether an exchange is in progress, or may begin soon.
  bool may_exchange(timestamp now) const noexcept { return is_giving() || now < rest_until_; }
  /// The size that is to give an extent; `given` or `refused` follows, once.
  std::optional<frame_size> take_order(timestamp now);
  /// Whether that has not followed yet.
  bool is_giving() const noexcept { return giving_.has_value(); }
  /// Returns the size to which the extent goes.
  frame_size given(extent_number extent, timestamp now);
  void refused(timestamp now);

  /// The first inconsistency, or an empty text. For tests.
  std::string check() const { return exchange_.check(); }

private:
  static constexpr std::uint8_t unknown = 0xff;

  void notify(const std::array<report, 2>& sizes, bool wishes, timestamp now);
  static memory_broker_state::holder holder_of(frame_size x) noexcept {
    return static_cast<memory_broker_state::holder>(x) + 1;
  }

  bool enabled_;
  /// By slot, as `frame_size`; empty if all frames are whole.
  std::vector<std::uint8_t> known_;
  frame_size usual_ = frame_size::whole;
  frame_size wished_ = frame_size::whole;
  /// Counts in extents instead of bytes.
  memory_broker_state exchange_{memory_broker_options{}};
  std::array<timestamp, 2> short_until_{timestamp::min(), timestamp::min()};
  std::optional<frame_size> giving_;
  timestamp rest_until_ = timestamp::min();
  extent_wish wish_;
};

} // namespace troupe
