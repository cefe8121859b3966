#include "http/server/output_buffer.hpp"
#include "http/server/request_clock.hpp"
#include "tests/catch.hpp"

#include <memory>
#include <string>

namespace http_output_buffer_test {

using namespace troupe;
using namespace troupe::http;

TEST_CASE("http: a claim is held until the last byte of its answer is written", "[http]") {
  output_buffer out;
  auto first = response::json("1");
  const auto claimed = std::make_shared<int>(1);
  first.claim = claimed;
  const auto length = out.append(first, {});
  CHECK(length == out.size());
  first.claim.reset();
  CHECK(claimed.use_count() == 2);
  const std::string sent(out.begin_write());
  CHECK(sent.size() == length);
  CHECK(sent.ends_with("1"));
  CHECK(out.is_empty());
  // The second answer comes while the first one is being written.
  auto second = response::json("2");
  const auto other = std::make_shared<int>(2);
  second.claim = other;
  CHECK(out.append(second, {}) == length);
  second.claim.reset();
  CHECK(claimed.use_count() == 2);
  out.written();
  CHECK(claimed.use_count() == 1);
  CHECK(other.use_count() == 2);
  CHECK(out.begin_write().ends_with("2"));
  out.written();
  CHECK(other.use_count() == 1);
}

TEST_CASE("http: bytes of no answer are written in order with the answers", "[http]") {
  output_buffer out;
  out.append("HTTP/1.1 100 Continue\r\n\r\n");
  out.append(response::json("{}"), {});
  const auto all = out.begin_write();
  CHECK(all.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "));
  CHECK(all.ends_with("{}"));
}

TEST_CASE("http: the wait for the rest of a request counts from its first byte", "[http]") {
  request_clock clock;
  const auto begun = clock.read();
  CHECK(clock.begin_wait(false) == begun);
  clock.bytes_arrived();
  const auto first = clock.begin_wait(true);
  CHECK(first == clock.arrival());
  clock.bytes_arrived();
  CHECK(clock.begin_wait(true) == first);
  clock.next_request();
  clock.bytes_arrived();
  CHECK(clock.begin_wait(true) == clock.arrival());
  // Without a byte, the wait is that of an idle connection.
  const auto idle = clock.read();
  CHECK(clock.begin_wait(false) == idle);
}

TEST_CASE("http: of requests that arrive together, only the first has not waited", "[http]") {
  request_clock clock;
  clock.bytes_arrived();
  clock.begin_handling();
  CHECK(clock.handled() == clock.arrival());
  clock.read();
  clock.begin_handling();
  CHECK(clock.handled() >= clock.latest());
  clock.refuse();
  CHECK(clock.handled() == clock.arrival());
}

} // namespace http_output_buffer_test
