#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "io/memory/shared_memory.hpp"
#include "messages/io_messages.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace troupe {

/// The arena of a node, as mapped by this process, and its registration with the device. Extents are registered one by
/// one, when the first page of each is moved, or ahead of that: locking a whole arena takes seconds.
///
/// Safe for calls of several threads at once.
class mapped_arena {
public:
  /// `info` has been checked against the memory.
  mapped_arena(const arena_info& info, std::shared_ptr<io::shared_memory> memory, std::shared_ptr<page_mover> mover);
  mapped_arena(const mapped_arena&) = delete;
  mapped_arena& operator=(const mapped_arena&) = delete;
  /// Unregisters what was registered.
  ~mapped_arena();

  const arena_info& info() const noexcept { return info_; }
  /// Whether `info` describes this arena.
  bool is(const arena_info& info) const noexcept;

  /// `length` bytes from `offset` on; empty where they are not in one extent.
  std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t length) const noexcept;
  bool begins_extent(std::uint64_t offset) const noexcept { return offset % info_.extent_bytes == 0; }

  /// Registers the extent with this byte. One caller does so while others wait. Errors: those of `page_mover::prepare`,
  /// for all callers that waited; later callers try again.
  result<void> prepare(std::uint64_t offset);

  /// Starts a thread that registers all extents, where that takes time, so that the first requests need not; without
  /// those that it would allocate in the place of the node. Where a registration delays the calls of the whole process
  /// to its device, by 1 to 2 ms for 64 MiB, the thread pauses four times as long after each. It ends with the first
  /// error, which a request for an extent gets again. Without a thread nothing is registered ahead. Call it once.
  void prepare_ahead();

private:
  struct extent {
    enum class knowledge : std::uint8_t { none, under_way, prepared };
    knowledge device = knowledge::none;
    /// The error of the last attempt.
    std::optional<error> failure;
  };

  std::span<std::byte> bytes_of(std::size_t number) const noexcept;
  void prepare_all(const std::stop_token& stop);

  arena_info info_;
  std::shared_ptr<io::shared_memory> memory_;
  std::shared_ptr<page_mover> mover_;
  /// Guards the extents; not held during a registration.
  std::mutex mutex_;
  std::condition_variable tried_;
  std::vector<extent> extents_;
  std::condition_variable_any stopped_;
  /// Destroyed first.
  std::jthread ahead_;
};

} // namespace troupe
