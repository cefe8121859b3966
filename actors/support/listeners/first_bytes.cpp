#include "actors/support/listeners/first_bytes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t enough_bytes = 12;

/// How often to check whether the caller has cancelled.
constexpr auto look_again = std::chrono::milliseconds(100);

bool has_prefix(std::span<const std::uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::equal(text.begin(), text.end(), bytes.begin(), [](char a, std::uint8_t b) {
           return static_cast<std::uint8_t>(a) == b;
         });
}

std::chrono::milliseconds left_until(timestamp until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(0), std::chrono::minutes(1));
}

} // namespace

std::optional<spoken_protocol> protocol_of(std::span<const std::uint8_t> bytes) noexcept {
  if (bytes.empty())
    return std::nullopt;
  switch (bytes.front()) {
  case 0:
    return spoken_protocol::actors;
  case 0x15:
  case 0x16:
    return bytes.size() < 2 ? std::nullopt
                            : std::optional(bytes[1] == 3 ? spoken_protocol::tls : spoken_protocol::other);
  case 0xff:
    return spoken_protocol::zmq;
  default:
    break;
  }
  for (const auto& [text, what] : {std::pair("HTTP/", spoken_protocol::http), std::pair("SSH-", spoken_protocol::ssh)})
    if (const auto size = std::min(bytes.size(), std::string_view(text).size());
        has_prefix(bytes, std::string_view(text).substr(0, size)))
      return size == std::string_view(text).size() ? std::optional(what) : std::nullopt;
  return spoken_protocol::other;
}

std::string why_no_node(spoken_protocol what, bool encrypted) {
  switch (what) {
  case spoken_protocol::actors:
    return encrypted ? "the node there speaks without TLS, and this side has certificates (actors.tls): configure TLS "
                       "at both ends, or at neither"
                     : "";
  case spoken_protocol::tls:
    return encrypted ? ""
                     : "it requires TLS, and this side has no certificates: set actors.tls (an HTTPS server answers "
                       "like this, too)";
  case spoken_protocol::http:
    return "an HTTP server answers there, and not a node: nodes are reached at actors.port, which is not http.port";
  case spoken_protocol::zmq:
    return "a ZeroMQ socket answers there, such as lmcache.port or events.endpoint, and not a node: nodes are reached "
           "at "
           "actors.port";
  case spoken_protocol::ssh:
    return "an SSH server answers there, and not a node: nodes are reached at actors.port";
  case spoken_protocol::other:
    break;
  }
  return "what answers there speaks another protocol, and is not a node: nodes are reached at actors.port";
}

result<void> check_first_bytes(int socket, bool encrypted, duration limit, const std::function<bool()>& cancelled) {
  const auto until = later(std::chrono::steady_clock::now(), limit);
  std::array<std::uint8_t, enough_bytes> bytes{};
  std::size_t known = 0;
  for (;;) {
    if (cancelled && cancelled())
      return fail(errc::cancelled, "cancelled");
    pollfd what{socket, POLLIN, 0};
    const auto left = left_until(until);
    const auto pause = cancelled ? std::min<std::chrono::milliseconds>(left, look_again) : left;
    const auto ready = ::poll(&what, 1, static_cast<int>(pause.count()));
    if (ready == 0 && pause < left)
      continue;
    if (ready <= 0)
      return {};
    const auto got = ::recv(socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got == 0)
      return fail(errc::unreachable,
                  "it closed the connection before it sent anything: it is not a node, or has reached "
                  "its limit of connections (actors.max_connections)");
    if (got < 0)
      return errno == EAGAIN || errno == EINTR ? result<void>()
                                               : fail(errc::unreachable, system_error(errno, "connection ended").text);
    const auto spoken = protocol_of(std::span(bytes).first(static_cast<std::size_t>(got)));
    if (spoken)
      if (auto why = why_no_node(*spoken, encrypted); !why.empty())
        return fail(errc::unreachable, std::move(why));
    // Too few bytes to know: poll would report them again at once.
    if (spoken || static_cast<std::size_t>(got) == std::exchange(known, static_cast<std::size_t>(got)))
      return {};
  }
}

result<void> check_silent_listener(const std::vector<socket_address>& where, duration limit,
                                   const std::function<bool()>& cancelled) {
  // The head of a TLS record whose message makes no sense: an alert is the answer. Its end ends a request of HTTP.
  constexpr std::string_view question{"\x16\x03\x01\x00\x06\x01??\r\n\r\n\r\n", 14};
  const auto until = later(std::chrono::steady_clock::now(), limit);
  const auto socket = connect_to_any(where, limit, cancelled);
  if (!socket && socket.error().code == errc::cancelled)
    return tl::unexpected<error>(socket.error());
  if (!socket || ::send(socket->get(), question.data(), question.size(), MSG_NOSIGNAL) < 0)
    return {};
  auto found = check_first_bytes(socket->get(), false, until - std::chrono::steady_clock::now(), cancelled);
  if (!found && found.error().code == errc::cancelled)
    return found;
  std::uint8_t first = 0;
  // What closes such a connection without a word may be anything.
  if (!found && ::recv(socket->get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
    return {};
  return found;
}

} // namespace troupe
