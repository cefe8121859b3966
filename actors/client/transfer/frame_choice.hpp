#pragma once

#include <cstddef>

namespace troupe::transfer {

/// Which frames to request for pages that are saved: those for encoded pages, which memory has more of, or whole ones.
/// A page without an encoding is gathered twice if its frame was one for encoded pages. So these are requested as long
/// as nearly all pages of the last order were stored encoded.
///
/// Which pages of whole frames are encoded is the copy engine's choice, which tries it now and then.
class frame_choice {
public:
  /// `expected`: pages are expected to have an encoding, before any was looked at.
  explicit frame_choice(bool expected) : encoded_(expected) {}

  /// Whether to request frames for encoded pages.
  bool encoded() const noexcept { return encoded_; }

  /// An order of so many pages has ended, and so many of them are stored encoded.
  void note(std::size_t pages, std::size_t encoded) noexcept {
    if (pages > 0)
      encoded_ = encoded * 5 >= pages * 4;
  }

private:
  bool encoded_;
};

} // namespace troupe::transfer
