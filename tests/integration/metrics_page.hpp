#pragma once

#include "http_client/connection.hpp"
#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <string>

namespace troupe::test {

/// One request to a node that serves HTTP, by itself.
inline client_detail::answer http(const serving_node& node, const std::string& method, const std::string& path) {
  const auto port = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  const auto where = client_detail::parse_url("http://127.0.0.1:" + std::to_string(port));
  REQUIRE(where);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  auto open = client_detail::connection::open(*where, nullptr, deadline);
  REQUIRE(open);
  auto answer = (*open)->exchange(method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                                  1U << 24U, deadline);
  REQUIRE(answer);
  return *answer;
}

/// The sum of all series of the node's metrics that begin like this; there is at least one.
inline double sum_of_metric(const serving_node& node, const std::string& beginning) {
  const auto page = http(node, "GET", "/metrics").body;
  double out = 0;
  auto at = page.find("\n" + beginning);
  INFO(page);
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = page.find("\n" + beginning, at + 1)) {
    const auto line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    out += std::stod(line.substr(line.rfind(' ')));
  }
  return out;
}

} // namespace troupe::test
