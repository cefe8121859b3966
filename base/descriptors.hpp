#pragma once

#include "base/error.hpp"

#include <cstdint>

namespace troupe {

/// How many connections fit, of those that are wanted, if `open` of `limit` descriptors are taken already, `spare` are
/// for connections beyond those, and the rest of the node keeps what it may come to need: its store, above all.
std::uint32_t connections_within(std::uint64_t limit, std::uint64_t open, std::uint32_t spare,
                                 std::uint32_t wanted) noexcept;

/// How many descriptors this process might have, and how many it may have now.
struct descriptor_limit {
  std::uint64_t before = 0;
  std::uint64_t now = 0;
};

/// Raises the limit as far as the process may raise it itself.
result<descriptor_limit> raise_descriptor_limit();

/// How many it has.
std::uint64_t open_descriptors();

/// Descriptors that a part of this process will open, connection by connection, and that no other part is to count as
/// free: those that are set aside at all are in `set_aside_descriptors`. Thread-safe.
class descriptors_set_aside {
public:
  descriptors_set_aside() = default;
  explicit descriptors_set_aside(std::uint32_t count) noexcept;
  descriptors_set_aside(descriptors_set_aside&& other) noexcept;
  descriptors_set_aside& operator=(descriptors_set_aside&& other) noexcept;
  ~descriptors_set_aside();

private:
  std::uint32_t count_ = 0;
};

std::uint64_t set_aside_descriptors() noexcept;

} // namespace troupe
