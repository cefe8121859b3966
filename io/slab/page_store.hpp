#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "io/engine/engine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::io {

/// One transfer between a slot and memory, or a trim of a part of a slot.
struct page_request {
  operation op = operation::read;
  /// The slot. Its generation tells one content from the next, for stores that keep copies or check it; a file needs
  /// only the slot.
  slot_ref where;
  std::byte* data = nullptr;
  /// Bytes from the start of the slot, at most the slot; a multiple of the store's alignment, as is `data`.
  std::uint64_t length = 0;
  /// The id from `add_buffer` of the buffer that contains [data, data + length).
  std::uint32_t buffer = 0;
  /// Is returned in the completion. Unique among the requests that have not been completed.
  std::uint64_t tag = 0;
  /// `timestamp::max()` means none.
  timestamp deadline = timestamp::max();
  /// Where the bytes begin in the slot; not 0 only for trims.
  std::uint64_t from = 0;
};

/// The properties and abilities of a store.
struct page_store_traits {
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// The alignment of memory and of transfer lengths.
  std::uint64_t alignment = 0;
  /// Whether transfers bypass the page cache: then a completed write is on the device (its own cache aside). Otherwise
  /// it survives the process, but not always a power loss.
  bool direct = false;
  /// Identifies the store among all that ever existed in the same place: an emptied store gets another number.
  incarnation_number incarnation = 0;
  /// The store's place for logs.
  std::string place;
  /// Whether slots have to be written to their ends: what was never written cannot be read there.
  bool whole_slots = false;
};

/// Slots that follow each other: the first one, and the one behind the last.
struct slot_range {
  std::uint64_t first = 0;
  std::uint64_t end = 0;

  friend bool operator==(const slot_range&, const slot_range&) = default;
};

/// Disk space of a store: for how many whole pages it is, and the slots that were given their part of it lately. These
/// occupy all of it at once, although nothing has been written to them.
struct slab_grant {
  std::uint64_t pages = 0;
  std::vector<slot_range> slots;
};

/// Makes more slots of a store usable, up to the number in its traits. Stays valid without the store. Used by one
/// thread at a time, which may differ from the store's; blocks for as long as the file system takes.
class store_growth {
public:
  virtual ~store_growth() = default;

  /// The number of usable slots, which are the first ones. Never decreases, also over restarts.
  virtual std::uint64_t slots() const noexcept = 0;
  virtual std::uint64_t slot_bytes() const noexcept = 0;

  /// Makes `slots` usable, with disk space for whole pages. Error: `no_space` (the disk is full, and nothing has
  /// changed).
  virtual result<void> grow(std::uint64_t slots) = 0;

  /// For how many whole pages there is disk space: as many as there are slots, except in a sparse store, whose slots
  /// have less where their pages are encoded. May be called by any thread.
  virtual std::uint64_t granted() const noexcept { return slots(); }
  virtual bool is_sparse() const noexcept { return false; }
  /// The same number, and the slots that were given disk space since this was called last, or since the store was
  /// opened. For the one who counts what slots occupy; may be called by any thread.
  virtual slab_grant take_granted() { return {granted(), {}}; }
  /// Makes `slots` usable without more disk space. Only for a sparse store.
  virtual result<void> extend(std::uint64_t slots) {
    return fail(errc::unsupported,
                "a store with whole slots cannot have " + std::to_string(slots) + " of them without disk space");
  }
};

/// Storage for the pages of one rank of one namespace, read and written by slot. `io_worker_state` decides beforehand
/// whether a slot may be touched; a store only moves bytes.
///
/// Every submitted request is completed exactly once, by the sink the store was made with, on a thread of the store's
/// own, as for an `engine`. One thread at a time calls the functions here.
class page_store {
public:
  virtual ~page_store() = default;

  /// Constant.
  virtual const page_store_traits& traits() const noexcept = 0;

  /// Registers memory, as `engine::add_buffer`.
  virtual result<std::uint32_t> add_buffer(std::span<std::byte> bytes) = 0;

  /// The caller guarantees that no request in the buffer is in progress.
  virtual void remove_buffer(std::uint32_t buffer) = 0;

  /// Queues the requests in order and returns.
  virtual void submit(std::span<const page_request> requests) = 0;

  /// Cancels all requests, waits until the last has been completed, and ends the store's threads.
  virtual void stop() = 0;

  /// `ok`, or a sentence that says how the store has changed since it was opened: writes from then on cannot be relied
  /// on. Is called every second.
  virtual result<void> health() const = 0;

  /// Null where all slots are usable.
  virtual std::shared_ptr<store_growth> growth() const { return nullptr; }

  /// The bytes that each usable slot of a sparse store occupies on the disk, at most; empty for others. May wait for
  /// the disk.
  virtual std::vector<std::uint64_t> occupied() const { return {}; }

  /// A description of the transfers for logs.
  virtual std::string describe() const = 0;
};

} // namespace troupe::io
