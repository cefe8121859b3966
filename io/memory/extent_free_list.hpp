#pragma once

#include "io/memory/numa.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace troupe::io {

/// A list of the free extents of an arena that chooses which one is assigned next. Returned extents precede those that
/// were never assigned, since clients have registered them with their devices. Returned ones are taken last in, first
/// out; new ones in the order in which the host provided them.
///
/// A caller that prefers a NUMA node gets the first extent there, or the first of all if there is none. Assigned memory
/// stays in place for long: as long as the host is still to provide some of that node, and does provide, it is better
/// to wait for it than to take another one.
///
/// Plain state. `node` is empty where the placement of memory is unknown.
class extent_free_list {
public:
  using node = std::optional<numa_node>;

  /// The host will provide an extent, planned for that node.
  void expect(node where);
  /// The host has provided an extent that was planned for `expected` and is on `where`.
  void arrive(std::uint32_t number, node expected, node where);
  void come_back(std::uint32_t number, node where);
  /// Whether expected extents may take long.
  void host_is_short(bool x) noexcept { short_ = x; }

  /// The extent to assign until it is returned. Nothing if there is none, or only such as are worse than an expected
  /// one.
  std::optional<std::uint32_t> take(node wish);

  /// How many extents the host still has to provide.
  std::uint64_t expected() const noexcept;

private:
  struct entry {
    std::uint32_t number = 0;
    node where;
  };

  /// In the order of assignment where no NUMA node is preferred.
  std::deque<entry> ready_;
  std::map<node, std::uint64_t> expected_;
  bool short_ = false;
};

} // namespace troupe::io
