#include "io/tcp/memory_place.hpp"

#include "io/tcp/memory_frames.hpp"

#include <algorithm>

namespace troupe::io::tcp {

namespace {

constexpr std::uint8_t this_format = 2;
constexpr std::size_t head_bytes = 5;
constexpr std::size_t ipv4_bytes = 4;

} // namespace

std::vector<std::uint8_t> memory_place::bytes() const {
  const auto octet = [](std::uint32_t x) { return static_cast<std::uint8_t>(x); };
  const auto address = where.address;
  return {this_format,           encrypted ? std::uint8_t{1} : std::uint8_t{0},
          octet(streams),        octet(where.port >> 8U),
          octet(where.port),     octet(address >> 24U),
          octet(address >> 16U), octet(address >> 8U),
          octet(address)};
}

result<memory_place> memory_place::parse(const remote_memory_name& name) {
  const auto& x = name.address;
  const bool sound = x.size() == head_bytes + ipv4_bytes && x[0] == this_format && x[1] <= 1 && x[2] >= 1 &&
                     x[2] <= streams_most && name.key.size() == token_bytes && name.bytes > 0;
  if (!sound)
    return fail(errc::invalid_argument, "this is not a name of memory over TCP: node and client are configured for "
                                        "different transports (remote.transport)");
  memory_place out;
  out.encrypted = x[1] == 1;
  out.streams = x[2];
  out.where.port = static_cast<std::uint16_t>(x[3] << 8U | x[4]);
  for (std::size_t i = 0; i < ipv4_bytes; ++i)
    out.where.address = out.where.address << 8U | x[head_bytes + i];
  return out;
}

} // namespace troupe::io::tcp
