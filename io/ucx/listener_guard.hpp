#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::io {

/// Who may connect to a listener: these IPv4 addresses, in the byte order of the host; nobody, if there are none.
struct admitted_peers {
  std::vector<std::uint32_t> addresses{};
};

/// UCX opens a listener on each interface, in whatever process has a worker, and over TCP it writes wherever who
/// connects tells it to: it knows no authentication, and keys of memory are not looked at. So before the address of a
/// worker is told to anybody, the kernel is told to drop what comes from elsewhere: a filter on the listener that sees
/// each packet, so that no connection comes about.
///
/// Made before the worker is, applied after it.
class listener_guard {
public:
  explicit listener_guard(admitted_peers who);

  /// To the listeners that have appeared since, and whose ports are in the address of the worker: how many those are.
  /// Errors: `io_error` where the kernel takes no filter.
  result<std::size_t> apply(std::span<const std::uint8_t> address);

  /// Nobody can connect any more, and the connections that came about end.
  void shut();

private:
  admitted_peers who_;
  /// Of the listeners, in the byte order of the network; what they accept has them as well.
  std::set<std::uint16_t> ports_;
  /// Sockets that were there before, by descriptor and inode.
  std::set<std::pair<int, std::uint64_t>> before_;
};

} // namespace troupe::io
