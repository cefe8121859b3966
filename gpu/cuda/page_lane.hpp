#pragma once

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/page_mover.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::cuda {

/// Memory of the host that is locked and mapped for devices.
struct locked_range {
  std::byte* host = nullptr;
  std::size_t bytes = 0;
  /// The same byte for a device.
  std::byte* device = nullptr;
};

/// Carries out calls of one direction, one at a time: two streams with staging memory each, so that the bytes of one
/// part are on the bus while the kernel of the other is at work.
///
/// For one thread at a time; the device must be current in it.
class page_lane {
public:
  static result<std::unique_ptr<page_lane>> create(const device_plan& plan, move_direction direction,
                                                   std::uint64_t part_bytes);

  /// Moves pages of a valid list and waits for the end, also where something fails: then nothing is under way any
  /// more. Sets checksums and verdicts of the moves.
  result<void> run(std::span<block_move> moves, std::span<const locked_range> locked, std::uint64_t direct_bytes,
                   const device_events& events);

private:
  /// What one stream works with.
  struct half {
    stream queue;
    device_memory<std::byte> pages;
    device_memory<page_progress> progress;
    device_memory<std::uint32_t> verdicts;
  };

  page_lane(const device_plan& plan, move_direction direction) : plan_(plan), direction_(direction) {}

  /// Pages in one stream's staging memory, and how they are copied.
  struct part {
    std::span<const block_move> moves;
    /// Where each page lies in staging memory.
    std::vector<std::uint64_t> offsets;
    /// Whether a page is one piece with the one before: staging memory repeats their distance.
    std::vector<bool> joined;
  };

  std::uint64_t part_bytes_for(std::size_t number, std::uint64_t bytes_left) const noexcept;
  /// The first pages of the list that fit into a part.
  part make_part(std::span<const block_move> moves, std::uint64_t bytes, std::span<const locked_range> locked) const;
  bool follows(const block_move& a, const block_move& b, std::span<const locked_range> locked) const noexcept;
  result<void> submit(std::span<block_move> moves, std::span<const locked_range> locked, bool direct,
                      const device_events& events);
  result<void> submit_part(half& with, const part& what, std::size_t first, std::span<const locked_range> locked,
                           bool direct);
  result<void> copy_pages(const half& with, const part& what) const;
  result<void> signal(const device_events& events);
  result<void> wait();

  device_plan plan_;
  move_direction direction_;
  /// Of each half's staging memory.
  std::uint64_t staging_bytes_ = 0;
  std::size_t most_pages_ = 0;
  std::array<half, 2> halves_;
  /// The half that has the last part of a call.
  std::size_t last_ = 0;
  /// Happens a little before the end of a call, which is then waited for awake; unless a call is too short for that.
  event nearly_done_;
  bool will_be_long_ = false;
  event joined_;
  /// Written by kernels, one per page of a call.
  pinned_memory<io::page_checksum> sums_;
};

} // namespace troupe::cuda
