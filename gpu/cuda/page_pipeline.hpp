#pragma once

#include "codec/cuda/page_codec_kernels.hpp"
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

/// The kernel arguments for the pages of a part.
struct kernel_arguments {
  std::vector<page_job> jobs;
  std::vector<std::uint32_t> blocks;
};

/// What a call has to know about other calls.
struct call_surroundings {
  /// Memory that is locked for the device.
  std::span<const locked_range> locked;
  /// Lists of at most this size are moved by kernels alone.
  std::uint64_t direct_bytes = 0;
  /// Bytes of earlier calls of this direction that are in progress.
  std::uint64_t bytes_ahead = 0;
};

/// The streams for pages of one direction.
struct page_streams {
  stream copies;
  stream kernels;

  static result<page_streams> make(move_direction direction);
};

/// The streams of all calls of one direction, except those that wait for an engine. Calls are submitted as a whole, one
/// after the other. With separate streams for each call, two concurrent calls took 8 % longer than one after the other:
/// each stream with a wait for another stream costs the running copy 1 to 2 %. So the kernels of all calls share a
/// stream as well. Only a scatter without calls ahead uses a second one for every other part, so that the kernels of
/// its last parts run side by side.
struct shared_streams {
  page_streams streams;
  /// Held while a call is submitted.
  std::mutex submitting;
  /// Bytes of calls in progress.
  std::atomic<std::uint64_t> bytes{0};
};

/// Carries out calls of one direction, one at a time. It has staging memory for two parts, so that the bytes of one are
/// copied while the kernel of the next runs.
///
/// Used by one thread at a time, in which the device must be current.
class page_pipeline {
public:
  /// `shared` belongs to all pipelines of this direction and device, and outlives them. `codes`: whether it takes
  /// encoded pages.
  static result<std::unique_ptr<page_pipeline>> create(const device_plan& plan, move_direction direction,
                                                       std::uint64_t part_bytes, bool codes, shared_streams& shared);

  /// Moves the pages of a valid list and waits for the end, also after a failure: nothing is in progress when it
  /// returns. Sets checksums and verdicts of the moves, all of which have this encoding. In a gather, a page whose
  /// bytes have no encoding is `raw` afterwards and has not been moved: it remains for another call.
  result<void> run(std::span<block_move> moves, page_encoding encoding, const call_surroundings& around,
                   const device_events& events);

private:
  /// The resources for the kernels of every other part.
  struct half {
    device_memory<std::byte> pages;
    device_memory<page_progress> progress;
    device_memory<std::uint32_t> verdicts;
    /// The part was copied into staging memory, and was moved out of it.
    event filled;
    event emptied;
  };

  page_pipeline(const device_plan& plan, move_direction direction, shared_streams& shared)
      : plan_(plan), direction_(direction), shared_(&shared), streams_(&own_) {}

  result<void> allocate(std::uint64_t part_bytes);
  result<void> allocate_for_encoding();
  void note_outcome(std::span<block_move> moves) const;
  /// Submits all work for these pages to the streams.
  result<void> submit(const page_list& pages, const call_surroundings& around, const device_events& events);
  /// The same, to the streams of this call.
  result<void> submit_parts(const page_list& pages, const call_surroundings& around);
  /// Makes the kernels of this call wait for the engine, in separate streams, if the engine is not ready yet.
  result<void> await_engine(const device_events& events);
  /// `queue` is for the kernels. `wakes`: this part wakes the sleeping thread of the call when it starts.
  result<void> submit_gather(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                             bool wakes);
  result<void> submit_scatter(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                              bool wakes);
  /// The kernels of a part. Those for encoded pages pass through `coding_.plain`.
  result<void> launch_gather_of(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> launch_scatter_of(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> encode(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> decode(const half& with, cudaStream_t queue, const page_part& part);
  codec::cuda::page_batch batch_of(const half& with, const page_part& part) const;
  bool is_encoded() const noexcept { return encoding_ != page_encoding::raw; }

  result<void> wake_behind(cudaStream_t what);
  launch launch_with(const half& with, const page_part& part, const kernel_arguments& arguments,
                     std::uint64_t page_bytes) const;
  result<void> copy_pages(const half& with, const page_part& part, const page_list& pages) const;
  result<void> wait();
  /// Waits for all streams of this call, including work of others.
  result<void> wait_for_streams() const;
  device_plan plan_;
  move_direction direction_;
  /// Bytes of each half's staging memory.
  std::uint64_t staging_bytes_ = 0;
  std::size_t most_pages_ = 0;
  shared_streams* shared_;
  /// For calls that wait for an engine, which may take arbitrarily long.
  page_streams own_;
  /// The streams of this call.
  page_streams* streams_;
  std::array<half, 2> halves_;
  /// The last events of the call; null where there are none.
  std::array<cudaEvent_t, 2> ends_{};
  /// Occurs shortly before the end of a call that is long or has others ahead, or when the engine lets a call begin;
  /// the rest is waited for by polling.
  event wake_up_;
  bool will_sleep_ = false;
  /// Checksums that kernels write, one per page of a call.
  pinned_memory<io::page_checksum> sums_;

  /// The encoding of the call in progress, and the bytes of its pages as they are stored.
  page_encoding encoding_ = page_encoding::raw;
  std::uint64_t stored_bytes_ = 0;
  /// Only where pages can have an encoding: the pages of a part as they are, in the order of the kernels' stream, which
  /// is one for encoded pages. Then scratch memory for the encoder, and what it says of each page of a call: 1 for
  /// bytes without an encoding; or the decoder: 1 for a page that no encoder wrote.
  struct encoding_memory {
    device_memory<std::byte> plain;
    device_memory<std::byte> scratch;
    pinned_memory<std::uint32_t> refused;
    std::size_t pages = 0;
  } coding_;
};

} // namespace troupe::cuda
