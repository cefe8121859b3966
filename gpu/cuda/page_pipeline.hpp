#pragma once

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_parts.hpp"
#include "gpu/page_mover.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::cuda {

/// What a kernel is told about the pages of a part.
struct kernel_arguments {
  std::vector<page_job> jobs;
  std::vector<std::uint32_t> blocks;
};

/// What a call needs to know of the others.
struct call_surroundings {
  /// Memory that is locked for the device.
  std::span<const locked_range> locked;
  /// Lists of at most this size are moved by kernels alone.
  std::uint64_t direct_bytes = 0;
  /// No other call of this direction is under way.
  bool alone = true;
};

/// Carries out calls of one direction, one at a time. One stream has all copies. Two more, with staging memory each,
/// have the kernels of one part after the other in turn, so that the bytes of one part are on the bus while the kernel
/// of the next is at work.
///
/// For one thread at a time; the device must be current in it.
class page_pipeline {
public:
  /// `shared_copies`: a stream for the copies of all pipelines of this direction, one after the other; each has one of
  /// its own if null. It outlives the pipeline.
  static result<std::unique_ptr<page_pipeline>> create(const device_plan& plan, move_direction direction,
                                                       std::uint64_t part_bytes, cudaStream_t shared_copies);

  /// Moves pages of a valid list and waits for the end, also where something fails: then nothing is under way any
  /// more. Sets checksums and verdicts of the moves.
  result<void> run(std::span<block_move> moves, const call_surroundings& around, const device_events& events);

private:
  /// What the kernels of every other part work with.
  struct half {
    stream queue;
    device_memory<std::byte> pages;
    device_memory<page_progress> progress;
    device_memory<std::uint32_t> verdicts;
    /// A part is in staging memory, and is out of it again.
    event filled;
    event emptied;
  };

  page_pipeline(const device_plan& plan, move_direction direction, cudaStream_t shared_copies)
      : plan_(plan), direction_(direction), shared_copies_(shared_copies) {}

  result<void> allocate(std::uint64_t part_bytes);
  /// Puts all work for these pages into the streams.
  result<void> submit(const page_list& pages, const call_surroundings& around, const device_events& events);
  result<void> await_engine(const device_events& events);
  result<void> submit_gather(half& with, const page_part& part, const page_list& pages, bool reused);
  result<void> submit_scatter(half& with, const page_part& part, const page_list& pages, bool reused);
  launch launch_with(const half& with, const page_part& part, const kernel_arguments& arguments) const;
  result<void> copy_pages(const half& with, const page_part& part, const page_list& pages) const;
  result<void> wait();

  device_plan plan_;
  move_direction direction_;
  /// Of each half's staging memory.
  std::uint64_t staging_bytes_ = 0;
  std::size_t most_pages_ = 0;
  cudaStream_t shared_copies_;
  stream own_copies_;
  /// The one that the copies of this call go to.
  cudaStream_t copies_ = nullptr;
  std::array<half, 2> halves_;
  /// The streams whose end is the end of the call; null where there is none.
  std::array<cudaStream_t, 3> ends_{};
  /// Happens a little before the end of a long call, or when the engine lets a call begin; what is left then is waited
  /// for awake.
  event wake_up_;
  bool will_sleep_ = false;
  /// Written by kernels, one per page of a call.
  pinned_memory<io::page_checksum> sums_;
};

} // namespace troupe::cuda
