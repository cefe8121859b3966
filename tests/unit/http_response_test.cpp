#include "http/server/response.hpp"
#include "http/server/response_writer.hpp"
#include "tests/catch.hpp"

#include <type_traits>
#include <utility>
#include <vector>

namespace http_response_test {

using namespace troupe;
using namespace troupe::http;

namespace {

/// Writes down what responders do.
class recorder final : public answer_sink {
public:
  void deliver(exchange_id id, response&& answer) noexcept override {
    calls.push_back(std::to_string(id.connection) + "." + std::to_string(id.number) + " " + answer.body);
  }
  void drop(exchange_id id) noexcept override {
    calls.push_back(std::to_string(id.connection) + "." + std::to_string(id.number) + " dropped");
  }

  std::vector<std::string> calls;
};

using calls = std::vector<std::string>;

std::string written(const response& x, const framing& how) {
  std::string out;
  append_response(out, x, how);
  return out;
}

template <class T>
concept can_send_twice = requires(T& x) {
  x.send(response{});
};

static_assert(!std::is_copy_constructible_v<responder> && !std::is_copy_assignable_v<responder>);
static_assert(std::is_nothrow_move_constructible_v<responder>);
static_assert(!can_send_twice<responder>);

} // namespace

TEST_CASE("http response: a responder answers once", "[http]") {
  const auto sink = std::make_shared<recorder>();
  {
    responder first{sink, {1, 2}};
    responder second{std::move(first)};
    std::move(second).send(response::json("{}"));
    std::move(second).send(response::json("again"));
    std::move(first).send(response::json("moved from"));
  }
  CHECK(sink->calls == calls{"1.2 {}"});
}

TEST_CASE("http response: a responder that is dropped answers with an error", "[http]") {
  const auto sink = std::make_shared<recorder>();
  { const responder unused{sink, {1, 1}}; }
  responder first{sink, {1, 2}};
  responder second{sink, {1, 3}};
  first = std::move(second);
  { const responder gone{std::move(second)}; }
  CHECK(sink->calls == calls{"1.1 dropped", "1.2 dropped"});
  std::move(first).fail(status::conflict, "no");
  CHECK(sink->calls.back() == R"(1.3 {"detail":"no"})");
}

TEST_CASE("http response: responses have the headers they need and no others", "[http]") {
  const framing plain{.date = "Date: now\r\n"};
  CHECK(written(response::json("{}"), plain) ==
        "HTTP/1.1 200 OK\r\nDate: now\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  CHECK(written(response::no_content(), plain) == "HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n");
  CHECK(written({}, plain) == "HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 0\r\n\r\n");
  CHECK(written(response::json("{}"), {.is_head = true}) ==
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n");
  CHECK(written({}, {.keep_alive = false}) == "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  CHECK(written({}, {.is_http_1_0 = true}) == "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(written({}, {.keep_alive = false, .is_http_1_0 = true}) ==
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  CHECK(written(response::failure(status::header_fields_too_large, "a \"b\""), {}) ==
        "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\n"
        "Content-Length: 20\r\n\r\n{\"detail\":\"a \\\"b\\\"\"}");
  // 204 has no body, whatever a handler puts there.
  auto wrong = response::no_content();
  wrong.body = "x";
  CHECK(written(wrong, {}) == "HTTP/1.1 204 No Content\r\n\r\n");
}

TEST_CASE("http response: a header value cannot inject another header", "[http]") {
  response x;
  x.add_header("X\n-Name", "value\r\nSet-Cookie: a\n");
  CHECK(x.headers == "X -Name: value  Set-Cookie: a \r\n");
}

TEST_CASE("http response: every error has a status", "[http]") {
  for (std::uint8_t i = 1; i < errc_count; ++i) {
    const auto code = static_cast<errc>(i);
    INFO(to_string(code));
    CHECK(static_cast<int>(status_of(code)) >= 400);
    CHECK(reason(status_of(code)) != "Unknown");
  }
  CHECK(response::failure(error{errc::not_found, "gone"}).code == status::not_found);
  CHECK(response::failure(error{errc::not_found, "gone"}).body == R"({"detail":"gone"})");
}

} // namespace http_response_test
