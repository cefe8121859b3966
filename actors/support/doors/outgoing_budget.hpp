#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe {

/// Bytes on their way to clients of other processes, as far as they lie in this one: what CAF keeps for a connection
/// whose peer reads slowly, or not at all, has no bound of its own. Who has large answers takes room for them first,
/// and the connections count what they have taken over and not sent yet, whatever it is.
///
/// Thread-safe.
class outgoing_budget : public std::enable_shared_from_this<outgoing_budget> {
public:
  /// Of one message, and of all that is on its way.
  outgoing_budget(std::uint64_t message_bytes_max, std::uint64_t most) noexcept
      : message_bytes_max_(message_bytes_max), most_(most) {}

  /// A longer one would end the connection that it is sent to.
  std::uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }

  /// Room for a message, for as long as the claim lives, which is until its connection counts it; null if there is
  /// none. One that is larger than all the room goes alone.
  std::shared_ptr<const void> take(std::uint64_t bytes) {
    bytes = std::min(bytes, most_);
    auto used = used_.load(std::memory_order_relaxed);
    do
      if (used > most_ - bytes)
        return nullptr;
    while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return std::shared_ptr<const void>(static_cast<const void*>(this),
                                       [self = shared_from_this(), bytes](const void*) { self->sent(bytes); });
  }
  /// Who asked has been told to come again.
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  /// A connection has so many more bytes to send, or fewer.
  void unsent(std::uint64_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void sent(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  /// So much is on its way that who does not read stands in the way of others.
  bool is_tight() const noexcept { return used() > most_ / 2; }

private:
  const std::uint64_t message_bytes_max_;
  const std::uint64_t most_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> refused_{0};
};

} // namespace troupe
