#pragma once

#include "io/numa.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace troupe::io {

/// Which extent of an arena is lent next, of those that nobody has. One that has come back goes before one that never
/// was lent, since clients have registered it with their devices; of the former the last one first, of the latter in
/// the order in which the host gave them.
///
/// Whoever wishes for a NUMA node gets the first of those that lie there, and where none does, the first of all. Lent
/// memory stays where it is for long: so as long as the host is to give some of that node, and does give, it is better
/// to wait for it than to take another.
///
/// Plain state. Nodes are nothing where nobody knows where memory lies.
class extent_shelf {
public:
  using node = std::optional<numa_node>;

  /// The host is to give one, which is to lie there.
  void expect(node where);
  /// It has given one of which that was expected, and which lies here.
  void arrive(std::uint32_t number, node expected, node where);
  void come_back(std::uint32_t number, node where);
  /// Whether what is expected may take long.
  void host_is_short(bool x) noexcept { short_ = x; }

  /// The extent to lend, for the time until it comes back. Nothing if there is none, or none but such as are worse than
  /// what is expected.
  std::optional<std::uint32_t> take(node wish);

  /// How many the host is to give still.
  std::uint64_t expected() const noexcept;

private:
  struct entry {
    std::uint32_t number = 0;
    node where;
  };

  /// In the order in which they are lent, as far as nobody wishes.
  std::deque<entry> ready_;
  std::map<node, std::uint64_t> expected_;
  bool short_ = false;
};

} // namespace troupe::io
