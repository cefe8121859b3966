#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <atomic>
#include <memory>
#include <string_view>

namespace troupe {

/// Time that advances while the machine sleeps, and while this process is stopped (CLOCK_BOOTTIME). Its origin is its
/// own: compare it only with results of this function.
timestamp boot_time() noexcept;

/// Says whether this node may write to its data directory, which other nodes may take over. A node that has not renewed
/// its claim in time may not, and detects that by its clock, whatever delayed the renewal. Thread-safe, and cheap
/// enough to check before each write. Users hold one that is never null: `always_open` where no other node can take the
/// directory over.
class write_gate {
public:
  /// Closed initially.
  write_gate() = default;
  write_gate(const write_gate&) = delete;
  write_gate& operator=(const write_gate&) = delete;

  /// The gate of directories that no other node can take over. One for the process.
  static const std::shared_ptr<const write_gate>& always_open();

  /// Opens the gate until then, by `boot_time`, unless it was shut for good. Never shortens the time.
  void open_until(timestamp until) noexcept;
  /// Closes the gate for good.
  void shut() noexcept { shut_.store(true, std::memory_order_seq_cst); }

  bool is_open() const noexcept;
  bool is_open_at(timestamp now) const noexcept;
  bool is_shut() const noexcept { return shut_.load(std::memory_order_seq_cst); }
  /// Checks whether an action, "write 'a'", may change the data directory now; `code` is the error where it may not.
  result<void> check(std::string_view doing, errc code = errc::io_error) const;

private:
  std::atomic<timestamp::rep> until_{timestamp::min().time_since_epoch().count()};
  std::atomic<bool> shut_{false};
};

/// The reason of a closed gate in errors.
inline constexpr std::string_view no_claim = "this node's claim on its data directory is not valid";

} // namespace troupe
