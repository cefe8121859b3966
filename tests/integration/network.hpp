#pragma once

#include "tests/integration/support.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::test {

/// Hosts on one network: a network namespace for each, with a cable to a switch that lives in this process, for as long
/// as this object does. The switch simulates the faults of the network: it delays, loses and reorders packets, has
/// little bandwidth, and separates hosts, without special support by the kernel. Its random decisions come from a seed.
///
/// Empty where this user may not create network namespaces.
class network {
public:
  explicit network(std::size_t hosts, std::uint64_t seed = 1);
  network(const network&) = delete;
  network& operator=(const network&) = delete;
  ~network();

  explicit operator bool() const noexcept { return switch_ != nullptr; }

  /// The command prefix that runs a program on that host.
  arguments on(std::size_t host) const;
  launch on(std::size_t host, launch what) const;
  static std::string address(std::size_t host) { return "10.231.9." + std::to_string(host + 1); }

  /// Limits for the traffic from a host and to it, both.
  struct quality {
    std::chrono::microseconds delay{0};
    /// More than that at most: packets overtake each other.
    std::chrono::microseconds jitter{0};
    /// The number of lost packets in a million.
    std::uint32_t lost = 0;
    /// 0: no limit.
    std::uint64_t bytes_per_second = 0;
  };
  void set_quality(std::size_t host, const quality& x);
  /// Pulls the cable, or puts it back: the host sees that it has no link.
  void cable(std::size_t host, bool there);
  /// Whether two hosts can reach each other; both reach the others, and neither sees a link that is down.
  void reach(std::size_t a, std::size_t b, bool can);
  /// Packets that went through so far, and that were lost.
  std::uint64_t carried() const;
  std::uint64_t lost() const;

private:
  class network_switch;

  void remove() const;
  std::string host_name(std::size_t host) const { return name_ + '-' + std::to_string(host); }

  std::string name_;
  std::size_t hosts_;
  std::unique_ptr<network_switch> switch_;
};

} // namespace troupe::test
