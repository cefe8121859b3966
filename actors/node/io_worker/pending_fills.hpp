#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "base/error.hpp"
#include "messages/io_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The answers to fills, which may wait until pages are in the slab.
///
/// Invariant: a fill that is not answered has as many entries with frames as its count says, and is answered once, when
/// `written` has been called for the last of them. Calls for frames that no fill waits for have no effect.
class pending_fills {
public:
  struct answer {
    /// The number of the request.
    std::uint64_t request = 0;
    io_reply reply;
  };
  /// A page of a fill whose result is that of writing this frame.
  struct unwritten {
    frame_number frame = no_frame;
    std::uint32_t position = 0;
  };

  /// Answers the request when all these pages are written; at once if there are none. `reply` has a result for each of
  /// their positions, which is replaced.
  void add(std::uint64_t request, io_reply reply, std::span<const unwritten> pages);
  /// The page in this frame was written, or never will be.
  void written(frame_number f, errc code);
  /// The page has moved to another frame, which no fill waits for.
  void moved(frame_number from, frame_number to);
  /// The answers since the last call, in the order in which they became known.
  std::vector<answer> take_answers();

private:
  struct waiting_fill {
    io_reply reply;
    std::size_t waiting = 0;
  };
  struct waiter {
    std::uint64_t request = 0;
    std::uint32_t position = 0;
  };

  std::unordered_map<std::uint64_t, waiting_fill> fills_;
  std::unordered_map<frame_number, std::vector<waiter>> waiters_;
  std::vector<answer> answers_;
};

} // namespace troupe
