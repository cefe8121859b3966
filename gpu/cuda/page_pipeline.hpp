#pragma once

#include "codec/cuda/page_codec_kernels.hpp"
#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/encoded_page_kernels.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_parts.hpp"
#include "gpu/cuda/part_sizes.hpp"
#include "gpu/page_mover.hpp"

#include <array>
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

/// What a call has to know of the cache whose pages it moves.
struct moved_cache {
  device_plan plan;
  part_sizes parts;
};

/// The streams of all calls of one direction. Calls are submitted as a whole, one after the other. With separate
/// streams for each call, two concurrent calls took 8 % longer than one after the other: each stream with a wait for
/// another stream costs the running copy 1 to 2 %. So the kernels of all calls share a stream as well. Only a scatter
/// without calls ahead uses a second one for every other part, so that the kernels of its last parts run side by side.
struct shared_streams {
  page_streams streams;
  /// Held while a call is submitted.
  std::mutex submitting;
};

/// Carries out calls of one direction, one at a time, for any of the movers of a device. It has staging memory for two
/// parts, so that the bytes of one are copied while the kernel of the next runs.
///
/// Used by one thread at a time, in which the device must be current.
class page_pipeline {
public:
  /// `shared` belongs to all pipelines of this direction and device, and outlives them.
  static result<std::unique_ptr<page_pipeline>> create(move_direction direction, shared_streams& shared);

  /// Makes sure that it has this memory at least. After an error it has what it had, or more.
  result<void> reserve(const pipeline_memory& memory);

  /// Moves the pages of a valid list and waits for the end, also after a failure: nothing is in progress when it
  /// returns. Sets checksums and verdicts of the moves, all of which have this encoding. In a gather, a page whose
  /// bytes have no encoding is `raw` afterwards and has not been moved: it remains for another call. Error: `internal`
  /// where the memory for the cache has not been reserved.
  result<void> run(const moved_cache& what, std::span<block_move> moves, page_encoding encoding,
                   const call_surroundings& around);

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

  page_pipeline(move_direction direction, shared_streams& shared) : direction_(direction), shared_(&shared) {}

  result<void> allocate();
  void note_outcome(std::span<block_move> moves) const;
  /// Submits all work for these pages to the streams.
  result<void> submit(const page_list& pages, const call_surroundings& around);
  /// `queue` is for the kernels. `wakes`: this part wakes the sleeping thread of the call when it starts.
  result<void> submit_gather(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                             bool wakes);
  result<void> submit_scatter(std::size_t number, cudaStream_t queue, const page_part& part, const page_list& pages,
                              bool wakes);
  /// The kernels of a part. Encoded pages pass through `coding_.plain`, unless they are encoded at once.
  result<void> launch_gather_of(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> launch_scatter_of(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> gather_encoded(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> scatter_encoded(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  encoded_launch encoded_launch_with(const half& with, const page_part& part) const;
  result<void> encode(const half& with, cudaStream_t queue, const page_part& part, const page_list& pages);
  result<void> decode(const half& with, cudaStream_t queue, const page_part& part);
  codec::cuda::page_batch batch_of(const half& with, const page_part& part) const;
  bool is_encoded() const noexcept { return encoding_ != page_encoding::raw; }
  bool is_encoded_at_once() const noexcept { return is_encoded() && what_.parts.encoded_at_once; }
  /// Whether the kernels of parts share no memory, so that those of two parts may run side by side.
  bool are_parts_apart() const noexcept { return !is_encoded() || is_encoded_at_once(); }

  result<void> wake_behind(cudaStream_t what);
  launch launch_with(const half& with, const page_part& part, const kernel_arguments& arguments,
                     std::uint64_t page_bytes) const;
  result<void> copy_pages(const half& with, const page_part& part, const page_list& pages) const;
  result<void> wait();
  /// Waits for all streams that calls use, including work of others.
  result<void> wait_for_streams() const;

  move_direction direction_;
  shared_streams* shared_;
  /// For kernels of every other part of a scatter without calls ahead.
  stream aside_;
  pipeline_memory memory_;
  std::array<half, 2> halves_;
  /// The last events of the call; null where there are none.
  std::array<cudaEvent_t, 2> ends_{};
  /// Occurs shortly before the end of a call that is long or has others ahead; the rest is waited for by polling.
  event wake_up_;
  bool will_sleep_ = false;
  /// Checksums that kernels write, one per page of a call.
  pinned_memory<io::page_checksum> sums_;

  /// The cache of the call in progress, its encoding, and the bytes of its pages as they are stored.
  moved_cache what_;
  page_encoding encoding_ = page_encoding::raw;
  std::uint64_t stored_bytes_ = 0;
  /// Where pages can have an encoding: the pages of a part as they are, unless they are encoded at once, in the order
  /// of the kernels' stream, which is one for such pages; scratch memory for the encoder, and its counters. What the
  /// encoder says of each page of a call: 1 for bytes without an encoding; or the decoder: 1 for a page that no encoder
  /// wrote.
  struct encoding_memory {
    device_memory<std::byte> plain;
    device_memory<std::byte> scratch;
    device_memory<std::uint32_t> progress;
    pinned_memory<std::uint32_t> refused;
  } coding_;
};

} // namespace troupe::cuda
