#pragma once

#include "base/error.hpp"

#include <cstdint>

namespace troupe {

/// How many of the wanted connections fit, if `open` of `limit` descriptors are in use, `spare` are for other
/// connections, and the rest of the node, mainly its store, keeps its reserve.
std::uint32_t connections_within(std::uint64_t limit, std::uint64_t open, std::uint32_t spare,
                                 std::uint32_t wanted) noexcept;

/// The hard and the soft limit of descriptors of this process.
struct descriptor_limit {
  std::uint64_t before = 0;
  std::uint64_t now = 0;
};

/// Raises the soft limit as far as the process may.
result<descriptor_limit> raise_descriptor_limit();

/// The number of open descriptors of this process.
std::uint64_t open_descriptors();

/// Descriptors that a part of this process will open, connection by connection, and that other parts must not count as
/// free; `set_aside_descriptors` is the total. Thread-safe.
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
