#pragma once

#include "actors/node/io_worker/frame_number.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// The free frames of a rank. They are taken upwards, each behind the one that was taken before as long as that is
/// free: pages that are saved together lie side by side then, and a device copies neighbours in one piece. (What is
/// freed together is a chain of pages from its end, or the ends of several: the order in which frames become free is
/// the worst one to take them in.)
///
/// Taking one looks at a word for every 4,096 frames at most; the rest is a few instructions.
class free_frames {
public:
  bool empty() const noexcept { return size_ == 0; }
  std::uint64_t size() const noexcept { return size_; }
  bool contains(frame_number f) const noexcept;

  /// A frame that was not free.
  void insert(frame_number f);
  /// A frame that was free.
  void erase(frame_number f) noexcept;
  /// There must be one.
  frame_number take() noexcept;

private:
  static constexpr std::uint32_t word_bits = 64;

  /// The first free one from there on, or `no_frame`.
  frame_number at_or_behind(std::uint64_t f) const noexcept;

  /// A bit for each frame.
  std::vector<std::uint64_t> words_;
  /// A bit for each of these words that is not 0.
  std::vector<std::uint64_t> filled_;
  std::uint64_t size_ = 0;
  /// Behind the one that was taken last.
  std::uint64_t next_ = 0;
};

} // namespace troupe
