#pragma once

#include "base/byte_budget.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe {

/// A budget for bytes that wait in this process to be sent to clients in other processes. CAF sets no bound on what it
/// buffers for a connection whose peer reads slowly or not at all. Senders of large answers reserve room first, and
/// connections count all bytes that they have taken over and not sent yet.
///
/// Thread-safe.
class outgoing_budget {
public:
  /// The limits for one message and for all unsent bytes together.
  outgoing_budget(std::uint64_t message_bytes_max, std::uint64_t most)
      : message_bytes_max_(message_bytes_max), bytes_(std::make_shared<byte_budget>(most)) {}

  /// A longer message would end the connection that it is sent to.
  std::uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }

  /// Reserves room for a message for as long as the result lives, which is until its connection counts the message;
  /// null if there is no room. A message that is larger than the whole budget is sent when nothing else waits.
  std::shared_ptr<const void> take(std::uint64_t bytes) { return shared_claim(bytes_, bytes); }
  /// Counts a request that was rejected for lack of room; the caller retries it.
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  /// A connection has `bytes` more, or fewer, bytes to send.
  void unsent(std::uint64_t bytes) noexcept { bytes_->take_anyway(bytes); }
  void sent(std::uint64_t bytes) noexcept { bytes_->give_back(bytes); }

  std::uint64_t used() const noexcept { return bytes_->used(); }
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  /// Whether so much is unsent that connections that do not read block others.
  bool is_tight() const noexcept { return bytes_->is_tight(); }

private:
  const std::uint64_t message_bytes_max_;
  const std::shared_ptr<byte_budget> bytes_;
  std::atomic<std::uint64_t> refused_{0};
};

} // namespace troupe
