#pragma once

#include "io/memory/arena.hpp"
#include "io/memory/handed_memory.hpp"
#include "io/memory/shared_memory.hpp"

/// The encoding of the name by which a client on the same host finds the arena of a node.

namespace troupe::io {

/// Encodes the three numbers in four bytes each, little-endian, then the proof.
shared_memory_name encode(const arena_name& x);
/// Error: `invalid_argument` if the text is too short.
result<arena_name> decode_arena_name(std::span<const std::uint8_t> text);

/// Maps arenas of nodes on this host: from the descriptors that were handed over, or, without a source of descriptors,
/// from what this process finds under the name, which is its own arena. It never tries both: a process number means
/// another process elsewhere.
class arena_finder final : public shared_memory_finder {
public:
  /// `handed`: null for a node of this process.
  explicit arena_finder(std::shared_ptr<const handed_memory> handed = nullptr) : handed_(std::move(handed)) {}

  result<std::shared_ptr<shared_memory>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) override;

private:
  std::shared_ptr<const handed_memory> handed_;
};

} // namespace troupe::io
