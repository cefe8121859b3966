#include "tests/catch.hpp"
#include "tests/http_client/metadata_client.hpp"
#include "tests/integration/support.hpp"

#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace log_test {

/// A blocked log: its pipe is full, as when a collector hangs.

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr std::uint32_t ranks = 64; // each makes a line

std::filesystem::path service_config(const scratch_directory& directory) {
  const nlohmann::json config{{"data_dir", (directory / "data").string()},
                              {"statistics_interval", "0 s"},
                              {"actors", {{"socket", "off"}}},
                              {"http", {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}}},
                              {"hf3fs", {{"vllm", true}}}};
  return write_config(directory.path(), config);
}

std::string url_of(const serving_node& node) {
  const auto port = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  return "http://127.0.0.1:" + std::to_string(port);
}

/// The body of an answer.
std::string get(int port, const std::string& path) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const auto request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  REQUIRE(::send(connection, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
  std::string out;
  std::array<char, 4096> some{};
  for (ssize_t n = 0; (n = ::recv(connection, some.data(), some.size(), 0)) > 0;)
    out.append(some.data(), static_cast<std::size_t>(n));
  ::close(connection);
  const auto body = out.find("\r\n\r\n");
  REQUIRE(body != std::string::npos);
  return out.substr(body + 4);
}

/// The value of a metric without labels.
std::uint64_t metric(const std::string& page, const std::string& name) {
  const auto at = page.find("\n" + name + " ");
  INFO(page);
  REQUIRE(at != std::string::npos);
  return std::stoull(page.substr(at + name.size() + 2));
}

} // namespace

TEST_CASE("log: dropped log lines are counted and reported when the log is read again") {
  const scratch_directory directory;
  // One line for each rank at each tick, more than are kept in no time.
  auto config = node_config(directory.path(), {.ranks = 64, .slots = 16});
  config["statistics_interval"] = "1 ms";
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  launch how;
  how.unread_stderr = true;
  serving_node node(write_config(directory.path(), config), {}, how);
  const auto port = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  const auto dropped = [&] { return metric(get(port, "/metrics"), "troupe_log_dropped_lines_total"); };
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (dropped() == 0)
    REQUIRE(std::chrono::steady_clock::now() < deadline);
  node.program().read_stderr();
  const auto notified = node.program().wait_for_line(stream::err, " warning log: ");
  CHECK(notified.text.find("dropped: the log was not read in time") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("log: a node with a blocked log pipe answers requests and can be stopped") {
  const scratch_directory directory;
  launch how;
  how.unread_stderr = true;
  serving_node node(service_config(directory), {}, how);
  for (const auto* ns : {"one", "two", "three"}) {
    metadata_client_options options;
    options.url = url_of(node) + "/hf3fs/" + ns;
    options.retries = 0;
    auto client = metadata_client::make(options);
    REQUIRE(client);
    for (rank_number rank = 0; rank < ranks; ++rank) {
      const auto answered = (*client)->initialize(rank, 8);
      INFO("namespace " << ns << ", rank " << rank);
      REQUIRE(answered);
    }
  }

  SECTION("it is read again: no line that fits into the queue is missing") {
    node.program().read_stderr();
    for (const auto* ns : {"one", "two", "three"})
      for (rank_number rank = 0; rank < ranks; ++rank)
        node.program().wait_for_line(stream::err, "rank " + std::to_string(rank) + " of namespace 'hf3fs-" +
                                                      std::string(ns) + "' registered with 8 pages");
    CHECK(node.stop() == 0);
    CHECK(node.log().find("dropped") == std::string::npos);
    CHECK(node.log().find("stopped") != std::string::npos);
  }
  SECTION("it is never read: the node stops on request") {
    CHECK(node.stop() == 0);
  }
}

} // namespace log_test
