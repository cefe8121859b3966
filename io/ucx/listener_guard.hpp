#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::io {

/// The IPv4 addresses that may connect to a listener, in host byte order; none if empty.
struct admitted_peers {
  std::vector<std::uint32_t> addresses{};
};

/// Restricts the listeners of UCX with packet filters. UCX opens a listener on each interface in every process with a
/// worker, and over TCP a connection may write anywhere: UCX has no authentication and does not check memory keys. So
/// before the address of a worker is published, a filter on the listener drops all packets of other senders, so that
/// they cannot connect.
///
/// Constructed before the worker is, applied after it.
class listener_guard {
public:
  explicit listener_guard(admitted_peers who);

  /// Applies the filter to the listeners that have appeared since construction and whose ports are in the address of
  /// the worker; returns their number. Errors: `io_error` where the kernel refuses the filter.
  result<std::size_t> apply(std::span<const std::uint8_t> address);

  /// Refuses all new connections, and ends the existing ones.
  void shut();

private:
  admitted_peers who_;
  /// The ports of the listeners, in network byte order; accepted connections have the same ones.
  std::set<std::uint16_t> ports_;
  /// The sockets that existed before, by descriptor and inode.
  std::set<std::pair<int, std::uint64_t>> before_;
};

} // namespace troupe::io
