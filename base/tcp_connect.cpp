#include "base/tcp_connect.hpp"

#include "base/connect_race.hpp"
#include "base/name_lookups.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using std::chrono::milliseconds;

constexpr int still_open = -1;

/// One attempt; `code` is its error number once it has failed.
struct connecting {
  unique_descriptor socket;
  std::size_t address = 0;
  int code = still_open;
};

std::string cause_of(int code) {
  switch (code) {
  case ECONNREFUSED:
    return "connection refused";
  case ETIMEDOUT:
  case still_open:
    return "timed out";
  default:
    return std::generic_category().message(code);
  }
}

connecting begin(const std::vector<socket_address>& all, std::size_t which) {
  const auto& to = all[which];
  connecting out{unique_descriptor(::socket(to.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), which};
  if (out.socket && ::connect(out.socket.get(), reinterpret_cast<const sockaddr*>(&to.name), to.size) == 0)
    out.code = 0;
  else if (!out.socket || (errno != EINPROGRESS && errno != EINTR))
    out.code = errno;
  return out;
}

/// The causes: one if all addresses have the same, else each with its address.
error failure_of(const std::vector<connecting>& tried, const std::vector<socket_address>& all) {
  constexpr std::size_t named_most = 4;
  std::string text;
  const bool same =
      std::ranges::all_of(tried, [&](const connecting& x) { return cause_of(x.code) == cause_of(tried.front().code); });
  for (std::size_t i = 0; i < (same ? std::min<std::size_t>(tried.size(), 1) : tried.size()); ++i) {
    if (i == named_most) {
      text += ", and " + std::to_string(tried.size() - i) + " more addresses";
      break;
    }
    text += (i > 0 ? ", " : "") + (same ? "" : all[tried[i].address].text() + ": ") + cause_of(tried[i].code);
  }
  const bool silent =
      std::ranges::all_of(tried, [](const connecting& x) { return x.code == still_open || x.code == ETIMEDOUT; });
  return {silent ? errc::timeout : errc::unreachable, std::move(text)};
}

/// Waits until an attempt has ended, or `until`.
void wait_for_one(std::vector<connecting>& tried, timestamp until) {
  std::vector<pollfd> what;
  std::vector<connecting*> which;
  for (auto& x : tried)
    if (x.code == still_open) {
      what.push_back({x.socket.get(), POLLOUT, 0});
      which.push_back(&x);
    }
  const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  if (::poll(what.data(), what.size(), static_cast<int>(std::clamp<long long>(left.count(), 0, 60'000))) <= 0)
    return;
  for (std::size_t i = 0; i < what.size(); ++i)
    if (what[i].revents != 0) {
      socklen_t size = sizeof which[i]->code;
      if (::getsockopt(what[i].fd, SOL_SOCKET, SO_ERROR, &which[i]->code, &size) != 0)
        which[i]->code = errno;
    }
}

/// Blocks for as long as the resolver takes; not with AI_NUMERICHOST.
result<std::vector<socket_address>> ask_resolver(const std::string& host, std::uint16_t port, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  if (const auto code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); code != 0)
    return fail(errc::unreachable, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
  std::vector<socket_address> out;
  for (const auto* x = found; x != nullptr; x = x->ai_next) {
    socket_address one;
    one.size = std::min<socklen_t>(x->ai_addrlen, sizeof one.name);
    std::copy_n(reinterpret_cast<const char*>(x->ai_addr), one.size, reinterpret_cast<char*>(&one.name));
    out.push_back(one);
  }
  return out;
}

} // namespace

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

socket_address socket_address::of(const host_address& address, std::uint16_t port) noexcept {
  socket_address out;
  if (address.is_ipv4()) {
    sockaddr_in x{};
    x.sin_family = AF_INET;
    x.sin_port = htons(port);
    x.sin_addr.s_addr = htonl(address.ipv4());
    out.size = sizeof x;
    std::memcpy(&out.name, &x, sizeof x);
  } else {
    sockaddr_in6 x{};
    x.sin6_family = AF_INET6;
    x.sin6_port = htons(port);
    std::memcpy(&x.sin6_addr, address.bytes.data(), address.bytes.size());
    out.size = sizeof x;
    std::memcpy(&out.name, &x, sizeof x);
  }
  return out;
}

std::uint16_t socket_address::port() const noexcept {
  return ntohs(is_ipv6() ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                         : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

std::string socket_address::text() const {
  std::array<char, NI_MAXHOST> out{};
  return ::getnameinfo(reinterpret_cast<const sockaddr*>(&name), size, out.data(), out.size(), nullptr, 0,
                       NI_NUMERICHOST) == 0
             ? out.data()
             : "an address";
}

bool is_numeric_host(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> out{};
  return ::inet_pton(AF_INET, host.c_str(), out.data()) == 1 || ::inet_pton(AF_INET6, host.c_str(), out.data()) == 1;
}

bool is_ipv6_socket(int descriptor) noexcept {
  int family = AF_INET;
  socklen_t size = sizeof family;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_INET6;
}

result<std::vector<socket_address>> resolve_host(const std::string& host, std::uint16_t port, duration limit,
                                                 const std::function<bool()>& cancelled) {
  if (auto numeric = ask_resolver(host, port, AI_NUMERICHOST))
    return numeric;
  // Never destroyed: detached threads may ask while the process ends.
  static auto& lookups = *new name_lookups;
  auto out = lookups.ask(
      endpoint_text(host, port), [host, port] { return ask_resolver(host, port, 0); }, limit, cancelled);
  if (out || out.error().code == errc::cancelled)
    return out;
  const auto& why = out.error();
  return fail(why.code, "the host \"" + host + "\" cannot be resolved: " +
                            (why.code == errc::timeout ? "no name server has answered in time" : why.text));
}

result<unique_descriptor> connect_to_any(const std::vector<socket_address>& addresses, duration limit,
                                         const std::function<bool()>& cancelled) {
  constexpr auto look_again = milliseconds(100);
  std::vector<bool> families;
  families.reserve(addresses.size());
  for (const auto& x : addresses)
    families.push_back(x.is_ipv6());
  connect_race race(families);
  std::vector<connecting> tried;
  auto now = std::chrono::steady_clock::now();
  const auto until = later(now, limit);
  while (now < until && !race.is_over()) {
    if (cancelled && cancelled())
      return fail(errc::cancelled, "cancelled");
    while (const auto next = race.start(now)) {
      tried.push_back(begin(addresses, *next));
      if (tried.back().code == still_open || tried.back().code == 0)
        continue;
      tried.back().socket.reset();
      race.on_failed(now);
    }
    wait_for_one(tried, std::min({until, race.wake(), cancelled ? now + look_again : until}));
    now = std::chrono::steady_clock::now();
    for (auto& x : tried) {
      if (x.code == 0)
        return std::move(x.socket);
      if (x.code != still_open && x.socket) {
        x.socket.reset();
        race.on_failed(now);
      }
    }
  }
  // The time may be over before the first attempt.
  if (tried.empty())
    return addresses.empty() ? fail(errc::unreachable, "no address") : fail(errc::timeout, "timed out");
  return tl::unexpected<error>(failure_of(tried, addresses));
}

} // namespace troupe
