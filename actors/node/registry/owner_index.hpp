#pragma once

#include "base/identifiers.hpp"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace troupe {

/// An index from owners to their numbered objects (leases, reservations), so that all objects of a disconnected owner
/// are found at once. Lists are linked through an array by number: an owner costs one map entry, an object 8 bytes.
class owner_index {
public:
  static constexpr std::uint32_t none = 0xffffffff;

  void add(owner_id owner, std::uint32_t id);
  void remove(owner_id owner, std::uint32_t id);

  /// Returns the first number of the owner, or `none`; `next` gives the others.
  std::uint32_t first(owner_id owner) const;
  std::uint32_t next(std::uint32_t id) const noexcept { return neighbours_[id].next; }

  std::uint64_t count(owner_id owner) const;
  std::uint64_t resident_bytes() const noexcept;

private:
  struct neighbours {
    std::uint32_t previous = none;
    std::uint32_t next = none;
  };

  struct list {
    std::uint32_t first = none;
    std::uint32_t count = 0;
  };

  std::unordered_map<owner_id, list> owners_;
  std::vector<neighbours> neighbours_;
};

} // namespace troupe
