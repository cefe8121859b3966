#include "base/host_identity.hpp"

#include "base/tcp_connect.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <optional>
#include <sys/socket.h>

namespace troupe {

namespace {

std::string read_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code failed;
  const auto ns = std::filesystem::read_symlink("/proc/self/ns/pid", failed);
  return boot.empty() || failed ? std::string{} : boot + " " + ns.string();
}

using interface_list = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

interface_list interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    first = nullptr;
  return {first, [](ifaddrs* x) {
            if (x != nullptr)
              ::freeifaddrs(x);
          }};
}

std::optional<host_address> address_of(const ifaddrs& x) {
  return x.ifa_addr == nullptr ? std::nullopt : host_address::of(*x.ifa_addr);
}

} // namespace

const std::string& host_identity() {
  static const std::string identity = read_identity();
  return identity;
}

std::vector<host_address> host_addresses() {
  std::vector<host_address> out;
  const auto all = interfaces();
  for (const auto* x = all.get(); x != nullptr; x = x->ifa_next)
    if (const auto address = address_of(*x); address && !address->is_loopback() && !address->is_link_local())
      out.push_back(*address);
  return out;
}

result<host_address> address_towards(const std::string& host, std::uint16_t port, duration limit) {
  const auto all = resolve_host(host, port);
  if (!all)
    return tl::unexpected<error>(all.error());
  const auto connected = connect_to_any(*all, limit);
  if (!connected)
    return tl::unexpected<error>(connected.error());
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const name = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(connected->get(), name, &length) != 0)
    return tl::unexpected<error>(system_error(errno, "cannot read the address of a connection"));
  const auto address = host_address::of(*name);
  return address ? result<host_address>(*address) : fail(errc::unsupported, "neither an IPv4 nor an IPv6 address");
}

bool is_on_network_of(const host_address& own, const host_address& other) {
  const auto all = interfaces();
  for (const auto* x = all.get(); x != nullptr; x = x->ifa_next) {
    if (address_of(*x) != own || x->ifa_netmask == nullptr || own.is_ipv4() != other.is_ipv4())
      continue;
    const auto mask = host_address::of(*x->ifa_netmask);
    bool same = mask.has_value();
    for (std::size_t i = 0; same && i < mask->bytes.size(); ++i)
      same = ((own.bytes[i] ^ other.bytes[i]) & mask->bytes[i]) == 0;
    if (same)
      return true;
  }
  return false;
}

std::string interface_with(const host_address& address) {
  const auto all = interfaces();
  for (const auto* x = all.get(); x != nullptr; x = x->ifa_next)
    if (address_of(*x) == address)
      return x->ifa_name;
  return {};
}

} // namespace troupe
