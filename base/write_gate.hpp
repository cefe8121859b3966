#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <atomic>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Time that goes on while the machine sleeps, and while this process is stopped (CLOCK_BOOTTIME). Has a zero of its
/// own: to be compared with what this has returned, and with nothing else.
timestamp boot_time() noexcept;

/// Whether this node may write to its data directory, where others may take that over: who has not renewed its claim in
/// time may not, and finds so by its clock, whatever kept it from renewing. Thread-safe, and cheap enough to be asked
/// before each write.
class write_gate {
public:
  /// Closed at first.
  write_gate() = default;
  write_gate(const write_gate&) = delete;
  write_gate& operator=(const write_gate&) = delete;

  /// Open until then, by `boot_time`, unless it was shut for good. Never earlier than it was.
  void open_until(timestamp until) noexcept;
  /// For good.
  void shut() noexcept { shut_.store(true, std::memory_order_seq_cst); }

  bool is_open() const noexcept { return is_open_at(boot_time()); }
  bool is_open_at(timestamp now) const noexcept;
  bool is_shut() const noexcept { return shut_.load(std::memory_order_seq_cst); }

private:
  std::atomic<timestamp::rep> until_{timestamp::min().time_since_epoch().count()};
  std::atomic<bool> shut_{false};
};

/// Why a closed gate keeps something from being written.
inline constexpr std::string_view no_claim = "this node's claim on its data directory is not valid";

/// Whether something may be done, "write 'a'", that changes the data directory; `code` where it may not. Nobody can
/// take the directory over where there is no gate.
result<void> check_gate(const write_gate* gate, std::string_view doing, errc code = errc::io_error);

} // namespace troupe
