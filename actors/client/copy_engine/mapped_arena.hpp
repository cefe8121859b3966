#pragma once

#include "base/error.hpp"
#include "gpu/page_mover.hpp"
#include "io/shared_memory.hpp"
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

/// The arena of a node, as this process has mapped it, and what the device knows of it. A device learns of memory
/// extent by extent, when the first page of each is moved, or ahead of that: locking a whole arena takes seconds.
///
/// The calls of several threads at once are safe.
class mapped_arena {
public:
  /// `info` has been checked against the memory.
  mapped_arena(const arena_info& info, std::shared_ptr<io::shared_memory> memory, std::shared_ptr<page_mover> mover);
  mapped_arena(const mapped_arena&) = delete;
  mapped_arena& operator=(const mapped_arena&) = delete;
  /// The device forgets what it was told of.
  ~mapped_arena();

  const arena_info& info() const noexcept { return info_; }
  /// Whether a node means this one by it.
  bool is(const arena_info& info) const noexcept;

  /// That many bytes from there on; empty where they do not lie in one extent.
  std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t length) const noexcept;
  bool begins_extent(std::uint64_t offset) const noexcept { return offset % info_.extent_bytes == 0; }

  /// The device knows the extent with this byte from now on. One caller tells it, others wait. Errors: those of
  /// `page_mover::prepare`, for all who waited; whoever comes later tries again.
  result<void> prepare(std::uint64_t offset);

  /// From now on a thread of its own tells the device of all extents, where that takes time, which would be that of the
  /// first requests. Each one holds up the calls of the whole process to its device, by 1 to 2 ms for 64 MiB; so the
  /// thread rests four times as long in between. It ends with the first error, which whoever needs an extent meets
  /// again. Without a thread nothing is registered ahead. To be called once.
  void prepare_ahead();

private:
  struct extent {
    enum class knowledge : std::uint8_t { none, under_way, prepared };
    knowledge device = knowledge::none;
    /// How the last try failed.
    std::optional<error> failure;
  };

  std::span<std::byte> bytes_of(std::size_t number) const noexcept;
  void prepare_all(const std::stop_token& stop);

  arena_info info_;
  std::shared_ptr<io::shared_memory> memory_;
  std::shared_ptr<page_mover> mover_;
  /// Guards the extents; not held while a device is told of one.
  std::mutex mutex_;
  std::condition_variable tried_;
  std::vector<extent> extents_;
  std::condition_variable_any stopped_;
  /// Ends before all else does.
  std::jthread ahead_;
};

} // namespace troupe
