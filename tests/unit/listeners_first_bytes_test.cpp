#include "actors/support/listeners/first_bytes.hpp"
#include "base/bound_socket.hpp"
#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

namespace listeners_first_bytes_test {

using namespace troupe;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using spoken = spoken_protocol;

std::optional<spoken> spoken_by(std::string_view text) {
  return protocol_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

/// Two ends of a connection.
struct connection {
  connection() {
    std::array<int, 2> both{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()) == 0);
    here = unique_descriptor(both[0]);
    there = unique_descriptor(both[1]);
  }
  void answers(std::string_view text) const {
    REQUIRE(::send(there.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }

  unique_descriptor here;
  unique_descriptor there;
};

std::string why_not(const connection& x, bool encrypted) {
  const auto checked = check_first_bytes(x.here.get(), encrypted, seconds(20));
  return checked ? std::string() : checked.error().text;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("listeners first bytes: protocols are distinguished by their first bytes, as soon as these suffice",
          "[listeners]") {
  CHECK_FALSE(spoken_by(""));
  CHECK(spoken_by(std::string_view("\0\0\0", 3)) == spoken::actors);
  CHECK_FALSE(spoken_by("\x16"));
  CHECK(spoken_by("\x16\x03\x03") == spoken::tls);
  CHECK(spoken_by("\x15\x03") == spoken::tls);
  CHECK(spoken_by("\x15\x04") == spoken::other);
  CHECK_FALSE(spoken_by("HTT"));
  CHECK(spoken_by("HTTP/1.1 400") == spoken::http);
  CHECK(spoken_by("HTTQ") == spoken::other);
  CHECK(spoken_by("SSH-2.0") == spoken::ssh);
  CHECK(spoken_by("\xff") == spoken::zmq);
  CHECK(spoken_by("220 mail") == spoken::other);
}

TEST_CASE("listeners first bytes: what answers at an address is named, and TLS at one end only", "[listeners]") {
  const auto said = [](std::string_view text, bool encrypted) {
    const connection x;
    x.answers(text);
    return why_not(x, encrypted);
  };
  const std::string_view actors("\0\0\0\0", 4);
  CHECK(said(actors, false).empty());
  CHECK(has(said(actors, true), "speaks without TLS"));
  CHECK(said("\x16\x03\x03", true).empty());
  CHECK(has(said("\x16\x03\x03", false), "it requires TLS"));
  for (const bool encrypted : {false, true}) {
    CHECK(has(said("HTTP/1.1 400 Bad Request\r\n\r\n", encrypted), "an HTTP server answers there"));
    CHECK(has(said("\xff", encrypted), "a ZeroMQ socket answers there"));
    CHECK(has(said("SSH-2.0-x", encrypted), "an SSH server answers there"));
    CHECK(has(said("hello", encrypted), "speaks another protocol"));
  }
}

TEST_CASE("listeners first bytes: the check takes no bytes, and distinguishes an end from silence", "[listeners]") {
  connection x;
  CHECK(check_first_bytes(x.here.get(), false, milliseconds(1)));
  const std::string_view actors("\0\0\0\0", 4);
  x.answers(actors);
  CHECK(why_not(x, false).empty());
  std::array<char, 8> taken{};
  CHECK(::recv(x.here.get(), taken.data(), taken.size(), MSG_DONTWAIT) == 4);
  // Too few bytes to know are no reason to refuse.
  x.answers("\x16");
  CHECK(why_not(x, false).empty());
  CHECK(::recv(x.here.get(), taken.data(), taken.size(), MSG_DONTWAIT) == 1);
  x.there.reset();
  CHECK(has(why_not(x, false), "it closed the connection before it sent anything"));
}

TEST_CASE("listeners first bytes: the wait for the first bytes of a listener can be cancelled", "[listeners]") {
  const connection x;
  int asked = 0;
  const auto checked = check_first_bytes(x.here.get(), false, seconds(60), [&] { return ++asked > 1; });
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().code == errc::cancelled);
  CHECK(asked == 2);
  auto listening = bound_socket::open("actors", "127.0.0.1", 0);
  REQUIRE(listening);
  REQUIRE(listening->listen());
  const auto where = resolve_host("127.0.0.1", listening->port());
  REQUIRE(where);
  // It connects, and is cancelled while it waits for the answer, or before it connects.
  for (const int after : {1, 0}) {
    asked = 0;
    const auto silent = check_silent_listener(*where, seconds(60), [&] { return ++asked > after; });
    REQUIRE_FALSE(silent.has_value());
    CHECK(silent.error().code == errc::cancelled);
  }
}

TEST_CASE("listeners first bytes: a listener that sends nothing by itself is tried once more, and its answer names it",
          "[listeners]") {
  auto listening = bound_socket::open("actors", "127.0.0.1", 0);
  REQUIRE(listening);
  REQUIRE(listening->listen());
  const auto where = resolve_host("127.0.0.1", listening->port());
  REQUIRE(where);
  const unique_descriptor listener(listening->release());
  const std::string answer = GENERATE("HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x03", "");
  // The question is complete for a server of either kind.
  auto server = std::async(std::launch::async, [&] {
    const unique_descriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, 64> question{};
    const auto got = ::recv(accepted.get(), question.data(), question.size(), 0);
    ::send(accepted.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return std::string(question.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  });
  const auto checked = check_silent_listener(*where, seconds(20));
  const auto question = server.get();
  CHECK(question.starts_with("\x16\x03\x01"));
  CHECK(question.ends_with("\r\n\r\n"));
  CHECK(checked.has_value() == answer.empty());
  if (!checked)
    CHECK(has(checked.error().text, answer.front() == 'H' ? "an HTTP server" : "it requires TLS"));
}

} // namespace listeners_first_bytes_test
