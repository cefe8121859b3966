#pragma once

#include "io/usrbio/mount.hpp"
#include "io/usrbio/transfer_ring.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::io::usrbio {

/// The resources of an engine at one daemon: two rings, and memory for copies. Belongs to the engine's thread.
class session {
public:
  /// Returns the daemon's error.
  static result<std::unique_ptr<session>> open(const std::shared_ptr<mount>& at, session_number number,
                                               std::uint32_t depth);

  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  session_number number() const noexcept { return number_; }
  transfer_ring& ring(operation of) noexcept { return of == operation::read ? *reads_ : *writes_; }

  /// Memory of `copy_bytes` for a copy, which the daemon can access; nothing where all is in use.
  static constexpr std::uint64_t copy_bytes = std::uint64_t{1} << 20U;
  std::optional<std::uint32_t> take_copy();
  void give_copy(std::uint32_t which);
  std::byte* copy(std::uint32_t which) const noexcept;
  /// Allocates memory for copies; returns the daemon's error.
  result<void> make_copies();
  const iov& copies() const noexcept { return copies_; }

  /// Transfers that the daemon has not answered.
  std::uint32_t under_way = 0;
  /// Set when the daemon is lost: the time at which its transfers count as ended.
  timestamp over = timestamp::max();

private:
  session(std::shared_ptr<mount> at, session_number number) : mount_(std::move(at)), number_(number) {}

  std::shared_ptr<mount> mount_;
  session_number number_;
  std::unique_ptr<transfer_ring> reads_;
  std::unique_ptr<transfer_ring> writes_;
  iov copies_;
  std::vector<std::uint32_t> free_copies_;
};

/// Memory that is registered with an engine.
struct known_buffer {
  /// Its place in a file in /dev/shm; otherwise its bytes are copied.
  std::optional<shared_mapping> mapping;
  std::shared_ptr<const shared_region> region;
};

/// A transfer that has left the queue.
struct flight {
  /// The session whose daemon has it; null: it is unsent.
  session* of = nullptr;
  std::optional<std::uint32_t> copy;
  std::uint64_t length = 0;

  void give_copy_back(session& whose) {
    if (copy)
      whose.give_copy(*std::exchange(copy, std::nullopt));
  }
};

} // namespace troupe::io::usrbio
