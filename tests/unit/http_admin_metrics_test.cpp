#include "http/admin.hpp"
#include "http/server/request_metrics.hpp"
#include "tests/unit/http_support.hpp"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace http_admin_metrics_test {

using namespace troupe;
using namespace troupe::http;

namespace {

/// The value of a series by the text before it; none if there is no such line.
std::optional<double> value(const std::string& page, const std::string& series) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(series + " "))
      return std::strtod(line.c_str() + series.size(), nullptr);
  return std::nullopt;
}

std::string page_of(const request_metrics& x) {
  return to_text(x.collect());
}

request_record record(std::string_view route, duration total, status code = status::ok) {
  return {route, code, duration{1000}, total, 10, 20};
}

std::string bucket(const std::string& labels, const std::string& bound) {
  return "troupe_http_request_seconds_bucket{" + labels + ",le=\"" + bound + "\"}";
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++out;
  return out;
}

} // namespace

TEST_CASE("http admin metrics: durations fall into the bucket whose bound they do not exceed", "[http][metrics]") {
  duration_histogram h;
  const std::vector<std::pair<std::int64_t, std::size_t>> samples{
      {-5, 0},
      {0, 0},
      {32'000, 0},
      {32'001, 1},
      {64'000, 1},
      {64'001, 2},
      {std::int64_t{32'000} << 20U, 20},
      {(std::int64_t{32'000} << 20U) + 1, 21},
      {std::int64_t{1} << 62U, 21},
  };
  for (const auto& [ns, expected] : samples) {
    INFO(ns);
    std::array<std::uint64_t, duration_histogram::bounds + 1> before{};
    std::array<std::uint64_t, duration_histogram::bounds + 1> after{};
    std::uint64_t sum_before = 0;
    std::uint64_t sum_after = 0;
    h.add_to(before, sum_before);
    h.add(duration{ns});
    h.add_to(after, sum_after);
    for (std::size_t i = 0; i < after.size(); ++i)
      CHECK(after[i] - before[i] == (i == expected ? 1 : 0));
    CHECK(sum_after - sum_before == static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)));
  }
}

TEST_CASE("http admin metrics: requests are counted by route and class of status", "[http][metrics]") {
  request_metrics m;
  m.request_finished(record("match", std::chrono::microseconds{40}));
  m.request_finished(record("match", std::chrono::microseconds{64}));
  m.request_finished(record("match", std::chrono::seconds{60}, status::conflict));
  m.request_finished(record("unmatched", std::chrono::microseconds{1}, status::not_found));
  m.request_finished(record("match", std::chrono::microseconds{1}, status::service_unavailable));
  const auto page = page_of(m);
  INFO(page);
  const std::string ok = R"(route="match",status="2xx")";
  CHECK(value(page, bucket(ok, "3.2e-05")) == 0);
  CHECK(value(page, bucket(ok, "6.4e-05")) == 2);
  CHECK(value(page, bucket(ok, "+Inf")) == 2);
  CHECK(value(page, "troupe_http_request_seconds_count{" + ok + "}") == 2);
  CHECK(std::abs(value(page, "troupe_http_request_seconds_sum{" + ok + "}").value_or(0) - 104e-6) < 1e-9);
  const std::string conflict = R"(route="match",status="4xx")";
  CHECK(value(page, "troupe_http_request_seconds_count{" + conflict + "}") == 1);
  CHECK(value(page, bucket(conflict, "+Inf")) == 1);
  CHECK(value(page, R"(troupe_http_request_seconds_count{route="match",status="5xx"})") == 1);
  CHECK(value(page, R"(troupe_http_request_seconds_count{route="unmatched",status="4xx"})") == 1);
  CHECK(count_of(page, "troupe_http_request_seconds_count{") == 4);
  CHECK(value(page, "troupe_http_queue_seconds_count") == 5);
  CHECK(value(page, "troupe_http_received_bytes_total") == 50);
  CHECK(value(page, "troupe_http_sent_bytes_total") == 100);
}

TEST_CASE("http admin metrics: connections and items are counted", "[http][metrics]") {
  request_metrics m;
  for (int i = 0; i < 5; ++i)
    m.connection_opened();
  m.connection_closed();
  m.connection_refused();
  m.items().add(errc::full, 3);
  m.shared_items()->add(errc::busy);
  const auto page = page_of(m);
  CHECK(value(page, "troupe_http_connections") == 4);
  CHECK(value(page, "troupe_http_connections_total") == 5);
  CHECK(value(page, "troupe_http_refused_connections_total") == 1);
  CHECK(value(page, R"(troupe_http_items_total{code="full"})") == 3);
  CHECK(value(page, R"(troupe_http_items_total{code="busy"})") == 1);
  CHECK_FALSE(value(page, R"(troupe_http_items_total{code="ok"})"));
}

TEST_CASE("http admin metrics: routes beyond the limit are counted together", "[http][metrics]") {
  request_metrics m;
  constexpr std::size_t routes = request_metrics::max_routes + 50;
  for (std::size_t i = 0; i < routes; ++i)
    m.request_finished(record("route " + std::to_string(i), duration{1}));
  const auto page = page_of(m);
  CHECK(count_of(page, "troupe_http_request_seconds_count{") == request_metrics::max_routes + 1);
  CHECK(value(page, R"(troupe_http_request_seconds_count{route="other",status="2xx"})") == 50);
}

TEST_CASE("http admin metrics: no count is lost with concurrent writers and a reader", "[http][metrics]") {
  request_metrics m;
  constexpr int threads = 40; // more than count apart from each other
  constexpr int rounds = 2000;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        m.connection_opened();
        m.request_finished(record("route " + std::to_string((t + i) % 20), std::chrono::microseconds{i}));
        m.items().add(errc::ok, 2);
        m.connection_closed();
      }
    });
  for (int i = 0; i < 20; ++i)
    CHECK(value(page_of(m), "troupe_http_connections").value_or(-1) >= 0);
  for (auto& x : all)
    x.join();
  const auto page = page_of(m);
  double sum = 0;
  for (int i = 0; i < 20; ++i)
    sum += value(page, "troupe_http_request_seconds_count{route=\"route " + std::to_string(i) + "\",status=\"2xx\"}")
               .value_or(0);
  CHECK(sum == threads * rounds);
  CHECK(count_of(page, "troupe_http_request_seconds_count{") == 20);
  CHECK(value(page, "troupe_http_queue_seconds_count") == threads * rounds);
  CHECK(value(page, "troupe_http_connections") == 0);
  CHECK(value(page, R"(troupe_http_items_total{code="ok"})") == 2.0 * threads * rounds);
}

TEST_CASE("http admin metrics: a server with metrics reports itself at /metrics", "[http][metrics]") {
  request_metrics m;
  router r;
  admin_options options;
  options.metrics.push_back(source_of(m));
  add_admin_routes(r, options);
  const auto s = started(test_config(), std::move(r), &m);
  client c{s->port()};
  CHECK(c.call(get("/health")).code == 200);
  CHECK(c.call(get("/nowhere")).code == 404);
  const auto page = c.call(get("/metrics")).body;
  INFO(page);
  CHECK(value(page, R"(troupe_http_request_seconds_count{route="health",status="2xx"})") == 1);
  CHECK(value(page, R"(troupe_http_request_seconds_count{route="unmatched",status="4xx"})") == 1);
  CHECK(value(page, "troupe_http_connections") == 1);
  CHECK(value(page, "troupe_http_received_bytes_total").value_or(0) > 0);
  CHECK(value(page, "troupe_http_sent_bytes_total").value_or(0) > 0);
  // Each name is explained once.
  CHECK(count_of(page, "# TYPE troupe_http_request_seconds histogram") == 1);
  CHECK(count_of(page, "# TYPE troupe_http_connections gauge") == 1);
}

} // namespace http_admin_metrics_test
