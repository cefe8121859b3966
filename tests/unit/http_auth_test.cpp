#include "tests/unit/http_support.hpp"

#include <atomic>
#include <thread>

namespace http_auth_test {

using namespace troupe;
using namespace troupe::http;

namespace {

const std::string reader = "rrrrrrrrrrrrrrrr";
const std::string writer = "wwwwwwwwwwwwwwww";
const std::string admin = "aaaaaaaaaaaaaaaa";
const std::string all_tokens = "read " + reader + "\nwrite " + writer + "\nadmin " + admin + "\n";

/// A route per role, which answers with the role of the caller.
router sample() {
  router r;
  for (const auto x : {role::none, role::read, role::write, role::admin})
    r.add(method::post, "/" + std::string{to_string(x)},
          {"r", x,
           [](const request& q, responder reply) {
             std::move(reply).send(response::text(std::string{to_string(q.caller())}));
           },
           0});
  return r;
}

std::string bearer(std::string_view token) {
  return "Authorization: Bearer " + std::string{token} + "\r\n";
}

/// The status, and the caller's role as the handler saw it.
std::string ask(client& c, std::string_view path, std::string_view headers) {
  const auto x = c.call(post(path, "body", headers));
  return std::to_string(x.code) + (x.code == 200 ? " " + x.body : "");
}

} // namespace

TEST_CASE("http auth: each role may do what the roles below it may, and no more", "[http][auth]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto s = started(config, sample());
  client c{s->port()};
  const std::vector<std::pair<std::string, std::vector<std::string>>> matrix{
      {"", {"200 none", "401", "401", "401"}},
      {bearer("xxxxxxxxxxxxxxxx"), {"200 none", "401", "401", "401"}},
      {"Authorization: Basic " + admin + "\r\n", {"200 none", "401", "401", "401"}},
      {bearer(reader), {"200 read", "200 read", "403", "403"}},
      {bearer(writer), {"200 write", "200 write", "200 write", "403"}},
      {bearer(admin), {"200 admin", "200 admin", "200 admin", "200 admin"}},
  };
  const std::vector<std::string> paths{"/none", "/read", "/write", "/admin"};
  // All on one connection: what one request was allowed is nothing to the next.
  for (const auto& [headers, expected] : matrix)
    for (std::size_t i = 0; i < paths.size(); ++i) {
      INFO(headers << paths[i]);
      CHECK(ask(c, paths[i], headers) == expected[i]);
    }
}

TEST_CASE("http auth: a refused caller learns which role is missing", "[http][auth]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto s = started(config, sample());
  client c{s->port()};
  const auto anonymous = c.call(post("/read", ""));
  CHECK(anonymous.has("WWW-Authenticate: Bearer realm=\"troupe\"\r\n"));
  CHECK(anonymous.body == R"({"detail":"this needs a token: send \"Authorization: Bearer …\""})");
  const auto unknown = c.call(post("/read", "", bearer("xxxxxxxxxxxxxxxx")));
  CHECK(unknown.has("WWW-Authenticate: Bearer realm=\"troupe\", error=\"invalid_token\"\r\n"));
  const auto low = c.call(post("/admin", "", bearer(reader)));
  CHECK(low.body == R"({"detail":"this needs the role \"admin\", the token has \"read\""})");
  // Unknown paths do not require a token, so the answer does not distinguish them.
  CHECK(c.call(post("/nothing", "")).code == 404);
}

TEST_CASE("http auth: a refused caller cannot make the server buffer a large body", "[http][auth]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto s = started(config, sample());
  client c{s->port()};
  // Answered although most of it has not been sent.
  c.send("POST /write HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\nxxx");
  CHECK(c.must_read().code == 401);
  CHECK(c.ends());
  client chunked{s->port()};
  chunked.send("POST /write HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
  CHECK(chunked.must_read().code == 401);
  CHECK(chunked.ends());
}

TEST_CASE("http auth: without a tokens file every caller may do everything except from a web page", "[http][auth]") {
  const auto s = started(test_config(), sample());
  client c{s->port()};
  CHECK(ask(c, "/admin", "") == "200 admin");
  CHECK(ask(c, "/admin", bearer("whatever")) == "200 admin");
  CHECK(ask(c, "/admin", "Origin: http://example.com\r\n") == "403");
  CHECK(ask(c, "/none", "Origin: http://example.com\r\n") == "200 admin");
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto with_tokens = started(config, sample());
  client d{with_tokens->port()};
  CHECK(ask(d, "/admin", "Origin: http://example.com\r\n" + bearer(admin)) == "200 admin");
}

TEST_CASE("http auth: reloaded tokens apply from the next request on", "[http][auth]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto s = started(config, sample());
  client c{s->port()};
  CHECK(ask(c, "/admin", bearer(admin)) == "200 admin");
  directory.write("tokens", "read " + admin + "\n");
  CHECK(ask(c, "/admin", bearer(admin)) == "200 admin");
  REQUIRE(s->reload_tokens());
  CHECK(ask(c, "/admin", bearer(admin)) == "403");
  CHECK(ask(c, "/read", bearer(admin)) == "200 read");
  CHECK(ask(c, "/read", bearer(reader)) == "401");
  // A file with a mistake changes nothing.
  for (const auto& broken : {std::string{"nonsense"}, std::string{}, "read " + reader + "\nread " + reader}) {
    directory.write("tokens", broken);
    CHECK_FALSE(s->reload_tokens());
    CHECK(ask(c, "/read", bearer(admin)) == "200 read");
    CHECK(ask(c, "/read", bearer(reader)) == "401");
  }
}

TEST_CASE("http auth: tokens can be reloaded while they are used", "[http][auth]") {
  const scratch_directory directory;
  auto config = test_config();
  config.tokens_file = directory.write("tokens", all_tokens);
  const auto s = started(config, sample());
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      client c{s->port()};
      while (!is_over)
        if (c.call(post("/write", "x", bearer(writer))).code != 200)
          ++wrong;
    });
  for (int i = 0; i < 200; ++i)
    CHECK(s->reload_tokens());
  is_over = true;
  for (auto& x : threads)
    x.join();
  CHECK(wrong == 0);
}

} // namespace http_auth_test
