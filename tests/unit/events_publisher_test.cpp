#include "base/local_socket.hpp"
#include "events/publisher.hpp"
#include "events/subscriber_connections.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/unit/raw_zmq_peer.hpp"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <vector>

/// The sockets of the publisher: what subscribers may do to them.

namespace events_publisher_test {

using namespace troupe;
using namespace troupe::events;
using test::raw_zmq_peer;

namespace {

publisher_options on_free_ports() {
  publisher_options out;
  out.endpoint = "tcp://127.0.0.1:0";
  out.replay_endpoint = "tcp://127.0.0.1:0";
  out.rules.counts = std::make_shared<counters>();
  return out;
}

std::uint16_t port_of(const std::string& endpoint) {
  return static_cast<std::uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1)));
}

} // namespace

TEST_CASE("connections of subscribers: no more than the limit stay, and another one when one has ended", "[events]") {
  subscriber_connections x(2, 100);
  for (const int descriptor : {5, 6, 7})
    x.begun(descriptor);
  const auto all = x.unknown();
  REQUIRE(all.size() == 3);
  CHECK(x.identify(all[0], 105));
  CHECK(x.identify(all[1], 106));
  CHECK_FALSE(x.identify(all[2], 107));
  CHECK(x.unknown().empty());
  CHECK(x.staying().size() == 2);
  x.ended(7);
  x.begun(7);
  CHECK_FALSE(x.identify(x.unknown().at(0), 117));
  x.ended(5);
  x.begun(8);
  CHECK(x.identify(x.unknown().at(0), 108));
  // One that has ended before it was known is nothing, and what was found of it is not the next one's.
  x.begun(9);
  const auto gone = x.unknown().at(0);
  x.begun(9);
  CHECK(x.identify(gone, 109));
  CHECK(x.unknown().size() == 1);
  CHECK(x.size() == 4);
}

TEST_CASE("connections of subscribers: one that sends too much may not stay, and not the next one of its descriptor",
          "[events]") {
  subscriber_connections x(8, 100);
  x.begun(5);
  CHECK(x.identify(x.unknown().at(0), 105));
  const auto first = x.staying().at(0);
  CHECK(x.may_stay(first, 100));
  CHECK(x.staying().size() == 1);
  CHECK_FALSE(x.may_stay(first, 101));
  CHECK(x.staying().empty());
  x.begun(5);
  CHECK(x.identify(x.unknown().at(0), 205));
  // A late look at the first one is not about the second.
  CHECK_FALSE(x.may_stay(first, 101));
  CHECK(x.staying().at(0).cookie == 205);
}

TEST_CASE("events publisher: a publisher closes connections that send too much, and serves the others", "[events]") {
  const auto how = on_free_ports();
  auto opened = publisher::open(how);
  REQUIRE(opened);
  (*opened)->serve();
  const auto& counts = *how.rules.counts;
  const auto connected = [&](const std::string& endpoint, std::string_view kind) {
    auto out = std::make_unique<raw_zmq_peer>(port_of(endpoint));
    out->shake_hands(kind);
    out->wait_until_ready();
    return out;
  };
  const auto good = connected((*opened)->endpoint(), "SUB");
  REQUIRE(test::eventually([&] { return counts.subscribers == 1; }));
  std::string what;
  const bool to_replay = GENERATE(false, true);
  const auto bad =
      to_replay ? connected((*opened)->replay_endpoint(), "DEALER") : connected((*opened)->endpoint(), "SUB");
  if (to_replay) {
    // A message that does not end: frames without bytes, each with another one to come.
    for (int i = 0; i < 32768; ++i)
      what.append({"\x01\x00", 2});
  } else {
    // Subscriptions, each of them another one.
    for (int i = 0; i < 256; ++i)
      what.append("\x00\xff", 2).append(1, '\x01').append(std::string(253, static_cast<char>(i))).append(1, 'x');
  }
  bool open = true;
  for (int i = 0; i < 8192 && open; ++i)
    open = bad->send(what);
  CHECK_FALSE(open);
  CHECK(test::eventually([&] { return counts.refused_connections == 1; }));
  CHECK(counts.subscribers >= 1);
  CHECK(good->send(std::string("\x00\x02\x01y", 4)));
  (*opened)->stop();
}

TEST_CASE("events publisher: a publisher counts the subscribers that are there, and no connection that was none",
          "[events]") {
  const auto how = on_free_ports();
  auto opened = publisher::open(how);
  REQUIRE(opened);
  (*opened)->serve();
  const auto& counts = *how.rules.counts;
  const auto port = port_of((*opened)->endpoint());
  std::vector<std::unique_ptr<raw_zmq_peer>> all;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    all.push_back(std::make_unique<raw_zmq_peer>(port));
    all.back()->shake_hands("SUB");
    REQUIRE(test::eventually([&] { return counts.subscribers == i; }));
  }
  for (int i = 0; i < 5; ++i) {
    const raw_zmq_peer silent(port);
    const raw_zmq_peer other(port);
    CHECK(other.send("GET / HTTP/1.1\r\n\r\n"));
  }
  all.pop_back();
  REQUIRE(test::eventually([&] { return counts.subscribers == 2; }));
  // The connections that were none have ended before it.
  all.push_back(std::make_unique<raw_zmq_peer>(port));
  all.back()->shake_hands("SUB");
  CHECK(test::eventually([&] { return counts.subscribers == 3; }));
  (*opened)->stop();
}

TEST_CASE("events publisher: a publisher binds its Unix sockets again when their files were removed", "[events]") {
  const test::scratch_directory directory;
  auto how = on_free_ports();
  const auto events = directory.path() / "events";
  const auto replay = directory.path() / "replay";
  how.endpoint = "ipc://" + events.string();
  how.replay_endpoint = "ipc://" + replay.string();
  auto opened = publisher::open(how);
  REQUIRE(opened);
  (*opened)->serve();
  CHECK((*opened)->sockets_are_there());
  const auto connected = connect_local(events);
  REQUIRE(connected);
  for (const auto& lost : {std::vector{events}, std::vector{replay}, std::vector{events, replay}}) {
    for (const auto& path : lost)
      REQUIRE(std::filesystem::remove(path));
    CHECK_FALSE((*opened)->sockets_are_there());
    REQUIRE((*opened)->reopen_sockets());
    CHECK((*opened)->sockets_are_there());
    for (const auto& path : {events, replay}) {
      CHECK(connect_local(path));
      CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
            (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    }
  }
  // The first connection has been there all the time.
  std::array<char, 256> buffer{};
  ssize_t got = 1;
  while (got > 0)
    got = ::recv(connected->get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  CHECK(got < 0);
  CHECK(errno == EAGAIN);
  // Another file is left alone, until it is moved away.
  REQUIRE(std::filesystem::remove(events));
  std::ofstream(events) << "something else";
  CHECK_FALSE((*opened)->sockets_are_there());
  CHECK((*opened)->reopen_sockets().error().code == errc::busy);
  CHECK(std::filesystem::file_size(events) == 14);
  REQUIRE(std::filesystem::remove(events));
  CHECK((*opened)->reopen_sockets());
  // Where the directory is missing, it fails until it is back.
  std::filesystem::remove_all(directory.path());
  CHECK_FALSE((*opened)->reopen_sockets());
  CHECK_FALSE((*opened)->sockets_are_there());
  std::filesystem::create_directory(directory.path());
  CHECK((*opened)->reopen_sockets());
  CHECK((*opened)->sockets_are_there());
  (*opened)->stop();
}

TEST_CASE("events publisher: a publisher closes connections beyond its limit", "[events]") {
  const auto how = on_free_ports();
  auto opened = publisher::open(how);
  REQUIRE(opened);
  (*opened)->serve();
  std::vector<std::unique_ptr<raw_zmq_peer>> all;
  for (int i = 0; i < 128; ++i)
    all.push_back(std::make_unique<raw_zmq_peer>(port_of((*opened)->endpoint())));
  all.front()->shake_hands("SUB");
  all.front()->wait_until_ready();
  const raw_zmq_peer more(port_of((*opened)->endpoint()));
  CHECK(more.ends());
  CHECK(how.rules.counts->refused_connections >= 1);
  // The first of them is still there.
  CHECK(all.front()->send(std::string("\x00\x02\x01y", 4)));
  (*opened)->stop();
}

} // namespace events_publisher_test
