#pragma once

#include "io/engine.hpp"
#include "io/usrbio/mount.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::io::usrbio {

/// One ring of one direction, used by one thread.
///
/// It never waits in the library: the library's waits end at a time of the wall clock, and when that is set back they
/// last as much longer. Its depth is 0, so that the daemon takes what there is: with a depth below 0 and a time limit
/// it would never take a batch that is not full, and with one above 0 nor. It gives no read a hole as zeroes.
class transfer_ring {
public:
  /// Error: `io_error` with what the daemon said, `unsupported`.
  static result<std::unique_ptr<transfer_ring>> open(const std::shared_ptr<mount>& at, operation direction,
                                                     std::uint32_t entries);

  transfer_ring(const transfer_ring&) = delete;
  transfer_ring& operator=(const transfer_ring&) = delete;
  /// The daemon may still write results of what is under way into the ring's memory, which it has mapped as well.
  ~transfer_ring();

  /// 0, or -errno; -EAGAIN: the ring is full. The daemon may begin before `submit`.
  int prepare(const iov& memory, std::byte* data, std::uint64_t length, int descriptor, std::uint64_t offset,
              std::uint64_t handle);

  void submit();

  /// What has ended, as far as there is room; at once. `handle_of` gives back the handle.
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
