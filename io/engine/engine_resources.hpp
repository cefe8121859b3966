#pragma once

#include "base/error.hpp"
#include "io/engine/engine.hpp"

#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe::io {

/// The registered files and buffers of an engine, by id. Not thread-safe.
class engine_resources {
public:
  engine_resources(std::uint32_t max_files, std::uint32_t max_buffers);

  result<std::uint32_t> add_file(int descriptor);
  void remove_file(std::uint32_t file);

  result<std::uint32_t> add_buffer(std::span<std::byte> bytes);
  void remove_buffer(std::uint32_t buffer);

  /// -1 if there is no such file.
  int descriptor(std::uint32_t file) const noexcept { return file < files_.size() ? files_[file] : -1; }

  /// Empty if there is no such buffer.
  std::span<std::byte> buffer(std::uint32_t id) const noexcept {
    return id < buffers_.size() ? buffers_[id] : std::span<std::byte>{};
  }

  /// `ok` if the request names a known file and lies within a known buffer and within the limits of a file.
  errc check(const request& what) const noexcept;

private:
  std::vector<int> files_;
  std::vector<std::span<std::byte>> buffers_;
};

/// Maps the system's error of a transfer to a code.
errc status_of(int system_errno) noexcept;

/// The most that one attempt of a transfer may request, since one system call moves less than 2 GiB. The rest of a
/// longer request follows as after a short transfer.
inline constexpr std::uint64_t largest_transfer = 1ULL << 30U;

/// Whether the transfer may be given to the system now.
inline bool is_allowed(const std::shared_ptr<const write_gate>& gate, operation op) noexcept {
  return op == operation::read || gate->is_open();
}

/// How `fallocate` carries out a trim: the file keeps its length.
inline constexpr int trim_mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

/// The verdict on one finished attempt of a transfer; the same rules apply to every engine.
struct progress {
  /// Whether the request is to be retried, with the rest.
  bool again = false;
  errc status = errc::ok;
  int system_errno = 0;
};

/// Consecutive attempts without progress after which a request fails. A kernel that asks for retries that often never
/// ends, and the request's slot and buffer would never be free.
inline constexpr std::uint32_t max_fruitless_tries = 1000;

/// Judges one outcome of read or write (`outcome`: bytes, or -errno) of `what`, and adds to `done` and `fruitless`.
progress judge_transfer(const request& what, std::int64_t outcome, std::uint64_t& done, std::uint32_t& fruitless);

/// The final status of a request that ended as `status`, if it was cancelled before that (`abandoned` not `ok`).
errc final_status(errc status, errc abandoned) noexcept;

} // namespace troupe::io
