#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::test {

/// TCP ports of the loopback interface that no socket uses, all different. They lie below the range from which the
/// kernel chooses ports for sockets that ask for any: between this call and the use of a port, only another caller that
/// draws the same number can take it.
std::vector<std::uint16_t> free_ports(std::size_t count);
std::uint16_t free_port();

} // namespace troupe::test
