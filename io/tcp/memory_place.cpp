#include "io/tcp/memory_place.hpp"

#include "io/tcp/memory_frames.hpp"

#include <algorithm>
#include <span>

namespace troupe::io::tcp {

namespace {

constexpr std::uint8_t this_format = 3;
constexpr std::size_t head_bytes = 5;
constexpr std::size_t ipv4_bytes = 4;
constexpr std::size_t ipv6_bytes = 16;

} // namespace

std::vector<std::uint8_t> memory_place::bytes() const {
  const auto octet = [](std::uint32_t x) { return static_cast<std::uint8_t>(x); };
  std::vector<std::uint8_t> out;
  out.reserve(head_bytes + ipv6_bytes);
  for (const auto x : {this_format, encrypted ? std::uint8_t{1} : std::uint8_t{0}, octet(streams),
                       octet(where.port >> 8U), octet(where.port)})
    out.push_back(x);
  const auto bytes = std::span(where.address.bytes);
  for (const auto x : where.address.is_ipv4() ? bytes.last(ipv4_bytes) : bytes.first(ipv6_bytes))
    out.push_back(x);
  return out;
}

result<memory_place> memory_place::parse(const remote_memory_name& name) {
  const auto& x = name.address;
  const bool four = x.size() == head_bytes + ipv4_bytes;
  const bool sound = (four || x.size() == head_bytes + ipv6_bytes) && x[0] == this_format && x[1] <= 1 && x[2] >= 1 &&
                     x[2] <= streams_most && name.key.size() == token_bytes && name.bytes > 0;
  if (!sound)
    return fail(errc::invalid_argument, "this is not a name of memory over TCP: node and client are configured for "
                                        "different transports (remote.transport)");
  memory_place out;
  out.encrypted = x[1] == 1;
  out.streams = x[2];
  out.where.port = static_cast<std::uint16_t>(x[3] << 8U | x[4]);
  if (four)
    out.where.address = host_address::of_ipv4(0);
  std::copy(x.begin() + head_bytes, x.end(), out.where.address.bytes.end() - (four ? ipv4_bytes : ipv6_bytes));
  return out;
}

} // namespace troupe::io::tcp
