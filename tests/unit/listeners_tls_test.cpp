#include "actors/support/listeners/first_bytes.hpp"
#include "actors/support/listeners/tls_channel.hpp"
#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"
#include "tests/unit/http_certificates.hpp"
#include "tests/unit/io_support.hpp"

#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/socket.h>

namespace listeners_tls_test {

using namespace troupe;
using namespace troupe::test;
using http::identity;

namespace {

using outcome = tls_channel::outcome;

/// Files of one side.
struct credentials {
  scratch_directory directory;
  tls_identity files{directory / "certificate", directory / "key", directory / "ca"};

  credentials(const identity& own, const identity& trusted) {
    std::ofstream(files.certificate) << own.certificate();
    std::ofstream(files.key) << own.key();
    std::ofstream(files.authorities) << trusted.certificate();
  }
};

/// Two ends of a connection, each driven as a multiplexer would.
struct two_sides {
  two_sides(const tls_identity& client_files, const tls_identity& server_files) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    client_end = unique_descriptor(ends[0]);
    server_end = unique_descriptor(ends[1]);
    client_context = *tls_context::load(client_files);
    server_context = *tls_context::load(server_files);
    server = tls_channel::start(*server_context, server_end.get(), tls_channel::side::server);
    client = tls_channel::start(*client_context, client_end.get(), tls_channel::side::client);
    REQUIRE(server);
    REQUIRE(client);
  }

  static std::string take(tls_channel& from, outcome& last) {
    std::array<char, 4096> bytes{};
    std::size_t got = 0;
    last = from.read(got, bytes.data(), bytes.size());
    return {bytes.data(), got};
  }

  /// Both sides read until each has got as much as it should, or one fails.
  bool exchange(const std::string& to_client, const std::string& to_server) {
    std::string at_client;
    std::string at_server;
    auto client_said = outcome::later;
    auto server_said = outcome::later;
    for (int i = 0; i < 100 && client_said != outcome::failed && server_said != outcome::failed; ++i) {
      at_server += take(*server, server_said);
      at_client += take(*client, client_said);
      if (at_client == to_client && at_server == to_server)
        return true;
    }
    return false;
  }

  static void say(tls_channel& to, const std::string& what) {
    std::size_t put = 0;
    REQUIRE(to.write(put, what.data(), what.size()) == outcome::done);
    REQUIRE(put == what.size());
  }

  unique_descriptor client_end;
  unique_descriptor server_end;
  std::shared_ptr<tls_context> client_context;
  std::shared_ptr<tls_context> server_context;
  std::unique_ptr<tls_channel> client;
  std::unique_ptr<tls_channel> server;
};

} // namespace

TEST_CASE("listeners tls: a client leaves the first bytes of an answer in the socket, where they say what answers",
          "[listeners][tls]") {
  const identity ours("ours");
  const credentials files(identity("engine", ours), ours);
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const unique_descriptor here(ends[0]);
  const unique_descriptor there(ends[1]);
  // It speaks first, and so before the client could look.
  const std::string_view greeting = "SSH-2.0-server\r\n";
  REQUIRE(::send(there.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size()));
  const auto context = *tls_context::load(files.files);
  const auto client = tls_channel::start(*context, here.get(), tls_channel::side::client);
  REQUIRE(client);
  std::array<char, 16> sent{};
  CHECK(::recv(there.get(), sent.data(), sent.size(), 0) > 0);
  const auto checked = check_first_bytes(here.get(), true, std::chrono::seconds(20));
  REQUIRE_FALSE(checked);
  CHECK(checked.error().text.find("an SSH server answers there") != std::string::npos);
}

TEST_CASE("listeners tls: both sides with certificates of one authority can send, even before the handshake has ended",
          "[listeners][tls]") {
  const identity ours("ours");
  const credentials node(identity("node", ours), ours);
  const credentials engine(identity("engine", ours), ours);
  two_sides x(engine.files, node.files);
  two_sides::say(*x.server, "welcome"); // as CAF does: the server speaks first
  two_sides::say(*x.client, "hello");
  CHECK(x.exchange("welcome", "hello"));
  two_sides::say(*x.client, std::string(3000, 'x'));
  CHECK(x.exchange("", std::string(3000, 'x')));
}

TEST_CASE("listeners tls: a side with a certificate of another authority is refused", "[listeners][tls]") {
  const identity ours("ours");
  const identity theirs("theirs");
  const credentials node(identity("node", ours), ours);
  const bool foreign_certificate = GENERATE(true, false);
  const credentials engine(identity("engine", foreign_certificate ? theirs : ours),
                           foreign_certificate ? ours : theirs);
  two_sides x(engine.files, node.files);
  two_sides::say(*x.server, "welcome");
  two_sides::say(*x.client, "hello");
  CHECK_FALSE(x.exchange("welcome", "hello"));
}

TEST_CASE("listeners tls: data that is not TLS fails at once", "[listeners][tls]") {
  const identity ours("ours");
  const credentials node(identity("node", ours), ours);
  two_sides x(node.files, node.files);
  const std::string noise(64, 'n');
  REQUIRE(::send(x.client_end.get(), noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
  auto said = outcome::later;
  for (int i = 0; i < 10 && said == outcome::later; ++i)
    two_sides::take(*x.server, said);
  CHECK(said == outcome::failed);
}

TEST_CASE("listeners tls: files that are not certificates are named in the error", "[listeners][tls]") {
  const identity ours("ours");
  const identity other("other");
  const credentials good(identity("node", ours), ours);
  REQUIRE(tls_context::load(good.files));
  for (const int which : {0, 1, 2}) {
    auto files = good.files;
    auto& file = which == 0 ? files.certificate : which == 1 ? files.key : files.authorities;
    file = good.directory / "absent";
    CHECK(missing(tls_context::load(files).error().text, {file.c_str()}) == "");
    std::ofstream(good.directory / "garbage") << "-----BEGIN NOTHING-----\n";
    file = good.directory / "garbage";
    CHECK(missing(tls_context::load(files).error().text, {file.c_str()}) == "");
  }
  auto files = good.files;
  files.key = good.directory / "of-another";
  std::ofstream(files.key) << other.key();
  CHECK_FALSE(tls_context::load(files));
}

} // namespace listeners_tls_test
