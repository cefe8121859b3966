#pragma once

#include "io/engine/engine.hpp"
#include "io/usrbio/mount.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::io::usrbio {

/// A ring for one direction, used by one thread.
///
/// It never waits in the library, whose waits end at a time of the wall clock and last longer when that is set back.
/// Its depth is 0, so that the daemon takes what there is: with a negative depth and a time limit, or a positive depth,
/// it would never take an incomplete batch. Reading a hole is an error.
class transfer_ring {
public:
  /// Errors: `io_error` with the daemon's error, `unsupported`.
  static result<std::unique_ptr<transfer_ring>> open(const std::shared_ptr<mount>& at, operation direction,
                                                     std::uint32_t entries);

  transfer_ring(const transfer_ring&) = delete;
  transfer_ring& operator=(const transfer_ring&) = delete;
  /// The daemon, which has mapped the ring's memory as well, may still write results of transfers into it.
  ~transfer_ring();

  /// Returns 0 or -errno; -EAGAIN: the ring is full. The daemon may begin before `submit`.
  int prepare(const iov& memory, std::byte* data, std::uint64_t length, int descriptor, std::uint64_t offset,
              std::uint64_t handle);

  void submit();

  /// Returns at once with the ended transfers, as far as there is room. `handle_of` returns the handle.
  std::span<const cqe> reap(std::span<cqe> room);
  static std::uint64_t handle_of(const cqe& x) noexcept { return reinterpret_cast<std::uintptr_t>(x.userdata); }

private:
  explicit transfer_ring(std::shared_ptr<mount> at) : mount_(std::move(at)) {}

  std::shared_ptr<mount> mount_;
  ior ring_;
  bool open_ = false;
  bool reads_ = false;
};

} // namespace troupe::io::usrbio
