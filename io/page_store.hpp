#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "io/engine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace troupe::io {

/// One transfer between a slot and memory.
struct page_request {
  operation op = operation::read;
  /// The generation tells one content of the slot from the next, to who keeps copies or checks; a file needs only the
  /// slot.
  slot_ref where;
  std::byte* data = nullptr;
  /// From the start of the slot, and no longer than it; a multiple of the store's alignment, as `data` is.
  std::uint64_t length = 0;
  /// From `add_buffer`: the buffer that contains [data, data + length).
  std::uint32_t buffer = 0;
  /// Comes back in the completion. Unique among the requests that have not been completed.
  std::uint64_t tag = 0;
  /// `timestamp::max()` for none.
  timestamp deadline = timestamp::max();
};

/// What a store is, and what it can do.
struct page_store_traits {
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// Of memory and lengths of transfers.
  std::uint64_t alignment = 0;
  /// Whether transfers bypass the page cache: then what was written is on the device (its own cache aside) when it is
  /// completed. Otherwise it outlives the process, but maybe not a loss of power.
  bool direct = false;
  /// Which store it is, among all there ever were in the same place: a store that was emptied is another one.
  incarnation_number incarnation = 0;
  /// Where people find it, for logs.
  std::string place;
};

/// What makes more slots of a store usable, up to the number in its traits. Stays valid without the store. One thread
/// at a time, which may be another than the store's; blocks for as long as the file system takes.
class store_growth {
public:
  virtual ~store_growth() = default;

  /// So many slots can be used now, the first ones. Never fewer than before, also over restarts.
  virtual std::uint64_t slots() const noexcept = 0;
  virtual std::uint64_t slot_bytes() const noexcept = 0;

  /// Makes it so many. `no_space`: the place where they lie is full, and nothing has changed.
  virtual result<void> grow(std::uint64_t slots) = 0;
};

/// Where the pages of one rank of one namespace lie: bytes that are read and written by slot. Whether a slot may be
/// touched is decided before (by `io_worker_state`); a store only moves bytes.
///
/// Every submitted request is completed exactly once, by the sink the store was made with: on a thread of the store's
/// own, as for an `engine`. One thread at a time calls the functions here.
class page_store {
public:
  virtual ~page_store() = default;

  /// Do not change.
  virtual const page_store_traits& traits() const noexcept = 0;

  /// Makes memory known, as `engine::add_buffer`.
  virtual result<std::uint32_t> add_buffer(std::span<std::byte> bytes) = 0;

  /// The caller guarantees that no request in the buffer is under way.
  virtual void remove_buffer(std::uint32_t buffer) = 0;

  /// Queues the requests in order and returns.
  virtual void submit(std::span<const page_request> requests) = 0;

  /// Gives up all requests, waits until the last has been completed, and ends the store's threads.
  virtual void stop() = 0;

  /// ok, or that the store is not what it was when it was opened, in a sentence: nothing that is written from then on
  /// can be relied on. Asked every second.
  virtual result<void> health() const = 0;

  /// Null where all slots can be used.
  virtual std::shared_ptr<store_growth> growth() const { return nullptr; }

  /// For logs: how bytes are moved.
  virtual std::string describe() const = 0;
};

} // namespace troupe::io
