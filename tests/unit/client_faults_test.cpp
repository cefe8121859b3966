#include "tests/catch.hpp"
#include "tests/unit/client_support.hpp"
#include "tests/unit/http_certificates.hpp"

#include <cerrno>
#include <netinet/in.h>
#include <thread>
#include <unistd.h>

namespace troupe::test {

namespace {

/// A socket at a free port of the loopback interface, bound and not yet listening.
int bound_socket(std::uint16_t& port) {
  const auto socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(socket >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  socklen_t size = sizeof(address);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return socket;
}

/// Sends the same bytes to every client that has sent something, and closes; or never reacts to connections.
class rude_server {
public:
  /// Nothing: connections are never answered.
  explicit rude_server(std::string_view answer) : answer_(answer), socket_(bound_socket(port_)) {
    REQUIRE(::listen(socket_, 16) == 0);
    if (!answer_.empty())
      thread_ = std::thread{[this] { serve(); }};
  }
  ~rude_server() {
    ::shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable())
      thread_.join();
    ::close(socket_);
  }
  rude_server(const rude_server&) = delete;
  rude_server& operator=(const rude_server&) = delete;

  std::uint16_t port() const { return port_; }
  int served() const { return served_; }

private:
  void serve() {
    for (;;) {
      const auto connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0)
        return;
      char buffer[4096];
      static_cast<void>(::recv(connection, buffer, sizeof(buffer), 0));
      ++served_;
      static_cast<void>(::send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL));
      ::shutdown(connection, SHUT_RDWR);
      ::close(connection);
    }
  }

  std::string answer_;
  std::uint16_t port_ = 0;
  int socket_;
  std::atomic<int> served_{0};
  std::thread thread_;
};

} // namespace

std::uint16_t closed_port() {
  std::uint16_t port = 0;
  ::close(bound_socket(port));
  return port;
}

} // namespace troupe::test

namespace client_faults_test {

using namespace troupe;
using namespace troupe::test;
using http::response;

namespace {

const std::string yes = R"({"exists":[true]})";
const std::vector<std::string> a_key{"a"};

} // namespace

TEST_CASE("http client faults: a request to a server that does not answer times out", "[client]") {
  scripted_server server({response::json(yes)});
  server.hold();
  auto options = client_options(server.port());
  options.answer_time = std::chrono::milliseconds{30};
  options.retries = 1;
  const auto client = make_client(options);
  const auto failed = client->batch_key_exists(a_key);
  CHECK(code_of(failed) == errc::timeout);
  CHECK(text_of(failed).find("(after 2 attempts)") != std::string::npos);
  CHECK(server.wait_for_requests(2).size() == 2);
  // The late answer may still arrive: the connection is not reused.
  CHECK(client->idle_connections() == 0);
  // It may have arrived, and is not sent again.
  CHECK(code_of(client->confirm_write_for_keys(0, {}, std::vector<slot_number>{1})) == errc::timeout);
  CHECK(server.wait_for_requests(3).size() == 3);
}

TEST_CASE("http client faults: a request to a server that accepts and then stays silent times out", "[client]") {
  const rude_server server("");
  auto options = client_options(server.port());
  options.answer_time = std::chrono::milliseconds{30};
  options.retries = 1;
  CHECK(code_of(make_client(options)->batch_key_exists(a_key)) == errc::timeout);
  options.url = "https://127.0.0.1:" + std::to_string(server.port());
  options.connect_time = std::chrono::milliseconds{30};
  CHECK(code_of(make_client(options)->batch_key_exists(a_key)) == errc::timeout);
}

TEST_CASE("http client faults: a truncated response is an error", "[client]") {
  for (const auto* half : {"HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"exists\":[true]",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{\"exists\":[true]}\r\n",
                           "something else\r\n\r\n"}) {
    INFO(half);
    const rude_server server(half);
    CHECK(code_of(make_client(client_options(server.port()))->batch_key_exists(a_key)) == errc::unreachable);
    CHECK(server.served() == 4);
  }
}

TEST_CASE("http client faults: the client reconnects to a server that closes after each response", "[client]") {
  const rude_server server("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 17\r\n\r\n" + yes);
  const auto client = make_client(client_options(server.port()));
  for (int i = 1; i <= 3; ++i) {
    CHECK(client->batch_key_exists(a_key));
    CHECK(client->idle_connections() == 0);
    CHECK(server.served() == i);
  }
}

TEST_CASE("http client faults: bytes after a response are not taken for the next one", "[client]") {
  const rude_server server("HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n" + yes +
                           "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"exists\":[false]}");
  const auto client = make_client(client_options(server.port()));
  for (int i = 0; i < 3; ++i)
    CHECK(client->batch_key_exists(a_key).value() == std::vector<bool>{true});
}

TEST_CASE("http client faults: a restarted server is found again at once", "[client]") {
  scripted_server server({response::json(yes)});
  const auto waited = std::make_shared<pauses>();
  const auto client = make_client(client_options(server.port(), waited));
  for (int i = 0; i < 3; ++i) {
    CHECK(client->batch_key_exists(a_key));
    CHECK(client->idle_connections() == 1);
    server.stop();
    server.start();
  }
  CHECK(client->batch_key_exists(a_key));
  CHECK(waited->all.empty());
  CHECK(server.requests().size() == 4);
}

TEST_CASE("http client faults: a call waits for a free connection and then reports that none was free", "[client]") {
  scripted_server server({response::json(yes)});
  server.hold();
  auto options = client_options(server.port());
  options.connections = 1;
  options.connect_time = std::chrono::milliseconds{200};
  options.answer_time = std::chrono::seconds{60};
  options.retries = 0;
  const auto client = make_client(options);
  std::thread first{[&] { static_cast<void>(client->batch_key_exists(a_key)); }};
  server.wait_for_requests(1);
  CHECK(code_of(client->batch_key_exists(a_key)) == errc::limit_exceeded);
  server.stop(); // which ends the first
  first.join();
}

TEST_CASE("http client faults: connections that were idle for long are not reused", "[client]") {
  scripted_server server({response::json(yes)});
  auto options = client_options(server.port());
  options.max_idle_time = duration::zero();
  const auto client = make_client(options);
  CHECK(client->batch_key_exists(a_key));
  CHECK(client->batch_key_exists(a_key));
  CHECK(server.connections_made() == 2);
}

TEST_CASE("http client faults: with TLS both sides verify the certificate of the other", "[client]") {
  if (!http::knows_localhost()) {
    WARN("skipped: this machine has no name \"localhost\"");
    return;
  }
  const http::scratch_directory directory;
  const http::identity authority("authority");
  const http::identity stranger("stranger");
  const http::identity served("localhost", authority);
  const http::identity caller("caller", authority);
  auto config = http::test_config();
  config.tls.certificate = directory.write("server.pem", served.certificate());
  config.tls.key = directory.write("server.key", served.key());
  const auto authority_file = directory.write("ca.pem", authority.certificate());

  scripted_server server({response::json(yes)}, config);
  auto options = client_options(server.port());
  options.retries = 0;
  options.url = "https://localhost:" + std::to_string(server.port());
  options.ca = authority_file;
  const auto client = make_client(options);
  CHECK(text_of(client->batch_key_exists(a_key)) == "");
  CHECK(client->batch_key_exists(a_key));
  CHECK(server.connections_made() == 1);
  server.stop();
  server.start();
  CHECK(client->batch_key_exists(a_key));

  // Another name than the certificate's, another authority, none that the system trusts.
  auto wrong = options;
  wrong.url = "https://127.0.0.1:" + std::to_string(server.port());
  CHECK(code_of(make_client(wrong)->batch_key_exists(a_key)) == errc::unreachable);
  wrong = options;
  wrong.ca = directory.write("stranger.pem", stranger.certificate());
  CHECK(code_of(make_client(wrong)->batch_key_exists(a_key)) == errc::unreachable);
  wrong.ca.reset();
  CHECK(code_of(make_client(wrong)->batch_key_exists(a_key)) == errc::unreachable);
  // Without TLS, a server that requires it gives a clear error.
  wrong = options;
  wrong.url = "http://localhost:" + std::to_string(server.port());
  wrong.ca.reset();
  const auto plain = make_client(wrong)->batch_key_exists(a_key);
  CHECK(code_of(plain) == errc::invalid_argument);
  CHECK(text_of(plain).find("this port speaks TLS") != std::string::npos);

  // The server requires client certificates.
  config.tls.client_ca = authority_file;
  scripted_server strict({response::json(yes)}, config);
  options.url = "https://localhost:" + std::to_string(strict.port());
  CHECK(code_of(make_client(options)->batch_key_exists(a_key)) == errc::unreachable);
  options.certificate = directory.write("caller.pem", caller.certificate());
  CHECK(code_of(metadata_client::make(options)) == errc::invalid_argument);
  options.key = directory.write("other.key", served.key());
  CHECK(code_of(metadata_client::make(options)) == errc::invalid_argument);
  options.key = directory.write("caller.key", caller.key());
  CHECK(make_client(options)->batch_key_exists(a_key));
  CHECK(strict.requests().size() == 1);
}

} // namespace client_faults_test
