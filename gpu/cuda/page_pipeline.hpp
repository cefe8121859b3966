#pragma once

#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_parts.hpp"
#include "gpu/page_mover.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
  /// Of calls of this direction that began before and are under way.
  std::uint64_t bytes_ahead = 0;
};

/// The streams that pages of one direction go through.
struct page_streams {
  stream copies;
  stream kernels;

  static result<page_streams> make(move_direction direction);
};

/// The streams of all calls of one direction, but for those that wait for an engine. Calls go through them whole, one
/// behind the other. With streams for each call, two calls at once took 8 % longer than one after the other: each
/// stream in which something waits for another one costs the copy that is on the bus 1 to 2 %. So the kernels of all
/// calls share a stream as well. Only a scatter that nobody is before has another one for every other part: where it
/// ends, the kernels of its last parts are at work side by side.
struct shared_streams {
  page_streams streams;
  /// Held by whoever puts a call into them.
  std::mutex submitting;
  /// Of calls that are under way.
  std::atomic<std::uint64_t> bytes{0};
};

/// Carries out calls of one direction, one at a time. It has staging memory for two parts, so that the bytes of one are
/// on the bus while the kernel of the next is at work.
///
/// For one thread at a time; the device must be current in it.
class page_pipeline {
public:
  /// `shared`: of all pipelines of this direction and device; outlives them.
  static result<std::unique_ptr<page_pipeline>> create(const device_plan& plan, move_direction direction,
                                                       std::uint64_t part_bytes, shared_streams& shared);

  /// Moves pages of a valid list and waits for the end, also where something fails: then nothing is under way any
  /// more. Sets checksums and verdicts of the moves.
  result<void> run(std::span<block_move> moves, const call_surroundings& around, const device_events& events);

private:
  /// What the kernels of every other part work with.
  struct half {
    device_memory<std::byte> pages;
    device_memory<page_progress> progress;
    device_memory<std::uint32_t> verdicts;
    /// A part is in staging memory, and is out of it again.
    event filled;
    event emptied;
  };

  page_pipeline(const device_plan& plan, move_direction direction, shared_streams& shared)
      : plan_(plan), direction_(direction), shared_(&shared), streams_(&own_) {}

  result<void> allocate(std::uint64_t part_bytes);
  /// Puts all work for these pages into the streams.
  result<void> submit(const page_list& pages, const call_surroundings& around, const device_events& events);
  /// The same, into the streams of this call.
  result<void> submit_parts(const page_list& pages, const call_surroundings& around);
  /// Has the kernels of this call wait for the engine, in streams of their own, where that is not ready yet.
  result<void> await_engine(const device_events& events);
  /// `queue`: for the kernels. `wakes`: the thread that sleeps over the call is woken when this part is under way.
  result<void> submit_gather(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                             bool wakes);
  result<void> submit_scatter(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                              bool wakes);
  result<void> wake_behind(cudaStream_t what);
  launch launch_with(const half& with, const page_part& part, const kernel_arguments& arguments) const;
  result<void> copy_pages(const half& with, const page_part& part, const page_list& pages) const;
  result<void> wait();
  /// Of all streams of this call, whatever else is in them.
  result<void> wait_for_streams() const;
  device_plan plan_;
  move_direction direction_;
  /// Of each half's staging memory.
  std::uint64_t staging_bytes_ = 0;
  std::size_t most_pages_ = 0;
  shared_streams* shared_;
  /// For calls that wait for an engine, which may take as long as it likes.
  page_streams own_;
  /// Those of this call.
  page_streams* streams_;
  std::array<half, 2> halves_;
  /// What happens last in the call; null where there is nothing.
  std::array<cudaEvent_t, 2> ends_{};
  /// Happens a little before the end of a call that takes long or has others before it, or when the engine lets a call
  /// begin; what is left then is waited for awake.
  event wake_up_;
  bool will_sleep_ = false;
  /// Written by kernels, one per page of a call.
  pinned_memory<io::page_checksum> sums_;
};

} // namespace troupe::cuda
