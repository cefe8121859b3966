#include "io/tcp/memory_place.hpp"

#include "io/tcp/memory_frames.hpp"

#include <algorithm>
#include <span>

namespace troupe::io::tcp {

namespace {

constexpr std::uint8_t format_of_one = 3;
constexpr std::uint8_t format_of_several = 4;
/// Format, encryption and connections.
constexpr std::size_t head_bytes = 3;
constexpr std::size_t port_bytes = 2;
constexpr std::size_t ipv4_bytes = 4;
constexpr std::size_t ipv6_bytes = 16;

std::uint8_t octet(std::uint32_t x) {
  return static_cast<std::uint8_t>(x);
}

void add_port(std::vector<std::uint8_t>& out, const endpoint& x) {
  out.push_back(octet(x.port >> 8U));
  out.push_back(octet(x.port));
}

endpoint endpoint_in(std::span<const std::uint8_t> bytes) {
  endpoint out;
  out.port = static_cast<std::uint16_t>(bytes[0] << 8U | bytes[1]);
  const auto address = bytes.subspan(port_bytes);
  if (address.size() == ipv4_bytes)
    out.address = host_address::of_ipv4(0);
  std::ranges::copy(address, out.address.bytes.end() - static_cast<std::ptrdiff_t>(address.size()));
  return out;
}

std::vector<endpoint> endpoints_in(std::span<const std::uint8_t> bytes, bool several) {
  std::vector<endpoint> out;
  if (!several) {
    if (bytes.size() == port_bytes + ipv4_bytes || bytes.size() == port_bytes + ipv6_bytes)
      out.push_back(endpoint_in(bytes));
    return out;
  }
  constexpr auto each = port_bytes + ipv6_bytes;
  if (bytes.empty() || bytes[0] < 2 || bytes[0] > addresses_most || bytes.size() != 1 + bytes[0] * each)
    return out;
  for (std::size_t at = 1; at < bytes.size(); at += each)
    out.push_back(endpoint_in(bytes.subspan(at, each)));
  return out;
}

} // namespace

std::vector<std::uint8_t> memory_place::bytes() const {
  const bool several = where.size() > 1;
  std::vector<std::uint8_t> out{several ? format_of_several : format_of_one, octet(encrypted ? 1 : 0), octet(streams)};
  if (several)
    out.push_back(octet(static_cast<std::uint32_t>(where.size())));
  for (const auto& x : where) {
    add_port(out, x);
    const auto bytes = std::span(x.address.bytes);
    for (const auto byte : !several && x.address.is_ipv4() ? bytes.last(ipv4_bytes) : bytes.first(ipv6_bytes))
      out.push_back(byte);
  }
  return out;
}

result<memory_place> memory_place::parse(const remote_memory_name& name) {
  const auto x = std::span(name.address);
  memory_place out;
  if (x.size() > head_bytes && (x[0] == format_of_one || x[0] == format_of_several))
    out.where = endpoints_in(x.subspan(head_bytes), x[0] == format_of_several);
  const bool sound = !out.where.empty() && x[1] <= 1 && x[2] >= 1 && x[2] <= streams_most &&
                     name.key.size() == token_bytes && name.bytes > 0;
  if (!sound)
    return fail(errc::invalid_argument, "this is not a name of memory over TCP: node and client are configured for "
                                        "different transports (remote.transport)");
  out.encrypted = x[1] == 1;
  out.streams = x[2];
  return out;
}

} // namespace troupe::io::tcp
