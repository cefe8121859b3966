#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::io {

/// Memory that a node and one client on the same host share: pages are gathered into it by the one and written to disk
/// from it by the other without a copy between. Lives as long as anybody maps it; its size is sealed, so neither side
/// can pull memory away from under the other.
///
/// Behind the memory lies a page with a random number, the proof. A process and a descriptor mean something else in
/// every process namespace, so what is found under them is believed to be this memory only if the number is in it: it
/// cannot be guessed, and is told to one client. Transfers do not reach that page.
class arena final : public shared_memory {
public:
  /// New memory of `bytes` (rounded up to `page_alignment`), zeroed and really there: a host short of memory is an
  /// error here (`limit_exceeded`) and not a signal later. In huge pages where the kernel permits.
  ///
  /// `memory_node`: the NUMA node that the memory should come from, that of the device which will read and write it, or
  /// -1. Where that node has no memory left, or does not exist, another one's is as good.
  static result<std::shared_ptr<arena>> create(std::uint64_t bytes, std::int32_t memory_node = -1);

  /// The arena that process `process` made and holds open as `descriptor`, of exactly `bytes` and with this `proof`.
  /// The caller must run on the same host and be permitted to look into that process, in practice as the same user.
  /// Nothing can be written to what was found before it has proved to be the arena.
  ///
  /// Errors: `unreachable` (no such process or descriptor here, or no permission), `identity_mismatch` (something
  /// else, such as an arena of another node), `io_error`.
  static result<std::shared_ptr<arena>> map(std::int32_t process, std::int32_t descriptor, std::uint64_t bytes,
                                            std::span<const std::uint8_t> proof);

  ~arena() override;

  std::span<std::byte> bytes() noexcept override { return bytes_; }

  /// For the peer's `map`; valid as long as the arena lives.
  int descriptor() const noexcept { return descriptor_.get(); }

  /// For the peer's `map`, and for nobody else.
  const std::vector<std::uint8_t>& proof() const noexcept { return proof_; }

private:
  arena(unique_descriptor descriptor, std::vector<std::uint8_t> proof, std::span<std::byte> bytes) noexcept;

  static result<std::shared_ptr<arena>> adopt(unique_descriptor descriptor, std::vector<std::uint8_t> proof,
                                              std::uint64_t bytes);

  unique_descriptor descriptor_;
  std::vector<std::uint8_t> proof_;
  std::span<std::byte> bytes_;
};

} // namespace troupe::io
