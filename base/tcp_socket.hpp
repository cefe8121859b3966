#pragma once

#include <cstdint>

namespace troupe {

/// The port a socket is bound to; 0 if it is not a TCP socket.
std::uint16_t bound_port(int descriptor) noexcept;

} // namespace troupe
