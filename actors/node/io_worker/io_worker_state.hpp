#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/page.hpp"
#include "io/page_store.hpp"
#include "messages/io_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

struct io_worker_options {
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// Of lengths of pages and of their places in segments.
  std::uint64_t alignment = io::page_alignment;
  /// Longest time a batch may take, whatever the client asks for.
  duration deadline_max{};
  std::uint32_t batch_pages_max = 256;
  /// Pages under way at once; a batch beyond that is refused with limit_exceeded.
  std::uint32_t pages_in_flight_max = 4096;
  /// Per client.
  std::uint64_t segment_bytes_max = 0;
  std::uint32_t segments_max = 64;
  /// Segments are numbered from the one after this. Differs between runs and workers, so that an order for a segment of
  /// an earlier run finds none.
  std::uint64_t first_segment = 0;
};

/// The rules of the io worker of one slab: what may be read and written, by whom, and when a slot is at rest.
///
/// Fencing. Before a slot is given to another key, its allocator fences it: the worker answers when no transfer
/// touches the slot any more, and from then on refuses transfers that name the old generation. A writer that was
/// thought dead, or an order that was late on its way, can therefore never reach a slot of somebody else. (A fencing
/// token, as in Kleppmann, "How to do distributed locking", 2016.)
///
/// Segments. Page buffers lie in memory that the node made and shares with one client. A segment that is closed, by
/// its client or because the client died, is let go when the last transfer in it has ended.
///
/// Plain state: the actor gives `requests` to the store of pages and `answers` to whom they belong.
class io_worker_state {
public:
  using batch_id = std::uint64_t;
  using fence_id = std::uint64_t;

  struct finished_batch {
    batch_id batch = 0;
    io_reply reply;
  };

  explicit io_worker_state(const io_worker_options& options);

  /// Whether this client may have another segment of this size: limit_exceeded, shutting_down, expired (the client is
  /// gone: its request was late on its way, and nobody would close the segment) or ok.
  result<void> may_open_segment(owner_id owner, std::uint64_t bytes) const;

  /// A segment that was made; `buffer` is its id at the store.
  std::uint64_t add_segment(owner_id owner, std::span<std::byte> memory, std::uint32_t buffer);

  /// No new transfers in it; it appears in `take_idle_segments` when the last has ended. not_found if there is none.
  result<void> close_segment(std::uint64_t segment);

  /// Closes the client's segments and lets it open no others.
  void owner_died(owner_id owner);

  /// Segments that are closed and at rest, to be unregistered and freed. Each is returned once.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> take_idle_segments();

  /// Starts a batch, or says why not as a whole. Items that may not be transferred (another's slot, stale generation,
  /// outside of the segment) are answered with their own code and never reach the store. A batch of which nothing is
  /// left is in `take_finished` at once.
  result<batch_id> begin(io::operation op, const io_batch& batch, timestamp now);

  /// From the store.
  void complete(std::span<const io::completion> completions);

  /// Waits for transfers of these slots and refuses later ones of these generations. In `take_fenced` when at rest.
  fence_id fence(std::span<const slot_ref> slots);

  /// From now on, every batch is refused.
  void drain() { draining_ = true; }
  bool draining() const noexcept { return draining_; }

  /// Writes are refused from now on; reads are tried, since what is left may be sound.
  void slab_is_damaged() { damaged_ = true; }
  bool damaged() const noexcept { return damaged_; }

  /// Transfers under way.
  std::size_t in_flight() const noexcept { return transfers_.size(); }

  std::vector<io::page_request> take_requests() { return std::exchange(requests_, {}); }
  std::vector<finished_batch> take_finished() { return std::exchange(finished_, {}); }
  std::vector<fence_id> take_fenced() { return std::exchange(fenced_, {}); }

  io_stats stats() const;

private:
  struct segment {
    owner_id owner = 0;
    std::span<std::byte> memory;
    std::uint32_t buffer = 0;
    std::size_t in_flight = 0;
    bool closed = false;
  };
  struct batch {
    io::operation op = io::operation::read;
    std::uint64_t segment = 0;
    std::size_t waiting = 0;
    io_reply reply;
  };
  struct transfer {
    batch_id owner = 0;
    std::uint32_t position = 0;
    slot_number slot = 0;
    std::uint64_t bytes = 0;
  };
  struct fence_record {
    std::size_t waiting = 0;
  };

  errc check(const segment& s, const io_item& item, io::operation op) const;
  void slot_at_rest(slot_number slot);
  void finish_if_done(batch_id id);

  /// How many of the dead are remembered, or as many as may be attached, should they all die at once. Their late
  /// requests come within seconds of their death.
  static constexpr std::size_t dead_owners_min = 1024;

  // A transfer is a page that the store was told to move and has not completed. It belongs to one batch, one segment
  // and one slot, each of which counts its own: `batch::waiting`, `segment::in_flight`, `busy_slots_`. All of these are
  // counted up together in `begin`, before the request leaves, and down together in `complete`, where it has come back:
  // at any time the sum over batches, that over segments and that over slots is the number of transfers. So a batch is
  // answered, a segment let go and a fence passed at 0, and neither the store nor the kernel touches it any more then.
  // Nothing else ends a transfer: no deadline, no death of its owner, no closed segment.

  io_worker_options options_;
  /// Owner ids are not used again. The one that died last is at the end.
  std::deque<owner_id> dead_owners_;
  /// Per slot: transfers of this generation and older are refused.
  std::vector<generation_number> fenced_generation_;
  /// Transfers under way, of whatever generation; slots at rest are not here.
  std::unordered_map<slot_number, std::uint32_t> busy_slots_;
  /// Of busy slots only. A fence has as many entries here as `fence_record::waiting` says. No new transfer of a slot
  /// can hold it up: when the fence is made, `fenced_generation_` is raised first.
  std::unordered_map<slot_number, std::vector<fence_id>> fence_waiters_;
  std::unordered_map<fence_id, fence_record> fences_;
  std::unordered_map<std::uint64_t, segment> segments_;
  std::unordered_map<batch_id, batch> batches_;
  std::unordered_map<std::uint64_t, transfer> transfers_;
  std::vector<io::page_request> requests_;
  std::vector<finished_batch> finished_;
  std::vector<fence_id> fenced_;
  io_stats stats_;
  std::uint64_t last_segment_;
  std::uint64_t last_tag_ = 0;
  batch_id last_batch_ = 0;
  fence_id last_fence_ = 0;
  bool draining_ = false;
  bool damaged_ = false;
};

} // namespace troupe
