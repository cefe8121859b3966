#include "base/host_identity.hpp"

#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
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

std::uint32_t address_of(const sockaddr* x) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(x)->sin_addr.s_addr);
}

constexpr bool is_loopback(std::uint32_t address) {
  return address >> 24U == 127;
}

} // namespace

const std::string& host_identity() {
  static const std::string identity = read_identity();
  return identity;
}

std::vector<std::uint32_t> host_addresses() {
  std::vector<std::uint32_t> out;
  const auto all = interfaces();
  for (const auto* x = all.get(); x != nullptr; x = x->ifa_next)
    if (x->ifa_addr != nullptr && x->ifa_addr->sa_family == AF_INET && !is_loopback(address_of(x->ifa_addr)))
      out.push_back(address_of(x->ifa_addr));
  return out;
}

std::optional<std::uint32_t> address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &wanted, &found) != 0 || found == nullptr)
    return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
  const unique_descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t length = sizeof own;
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return std::nullopt;
  return ntohl(own.sin_addr.s_addr);
}

std::string interface_towards(const std::string& host) {
  const auto source = address_towards(host);
  const auto all = interfaces();
  for (const auto* x = all.get(); source && x != nullptr; x = x->ifa_next)
    if (x->ifa_addr != nullptr && x->ifa_addr->sa_family == AF_INET && address_of(x->ifa_addr) == *source)
      return x->ifa_name;
  return {};
}

bool is_loopback_name(const std::string& host) {
  const auto source = address_towards(host);
  return source && is_loopback(*source);
}

} // namespace troupe
