#pragma once

#include "actors/node/io_worker/frame_number.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// The set of free frames of a rank. Frames are taken in ascending order, each right after the one taken before if that
/// is free: pages that are saved together then lie side by side, and a device copies neighbours in one piece. (Frames
/// are freed from the end of a chain of pages, or of several chains, so taking them in the order in which they became
/// free would be the worst order.)
///
/// Taking a frame reads at most one word for every 4,096 frames, plus a few instructions.
class free_frames {
public:
  bool empty() const noexcept { return size_ == 0; }
  std::uint64_t size() const noexcept { return size_; }
  bool contains(frame_number f) const noexcept;

  /// Adds a frame that was not free.
  void insert(frame_number f);
  /// Removes a frame that was free.
  void erase(frame_number f) noexcept;
  /// Takes a frame; there must be one.
  frame_number take() noexcept;

private:
  static constexpr std::uint32_t word_bits = 64;

  /// The first free frame from `f` on, or `no_frame`.
  frame_number at_or_behind(std::uint64_t f) const noexcept;

  /// One bit per frame.
  std::vector<std::uint64_t> words_;
  /// One bit per word of `words_` that is not 0.
  std::vector<std::uint64_t> filled_;
  std::uint64_t size_ = 0;
  /// The number after the frame that was taken last.
  std::uint64_t next_ = 0;
};

} // namespace troupe
