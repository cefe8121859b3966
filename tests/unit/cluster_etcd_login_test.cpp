#include "actors/cluster/etcd/etcd_access.hpp"
#include "actors/cluster/etcd/etcd_rules.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

/// Logging in to an etcd: when, and what follows.

namespace cluster_etcd_login_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using nlohmann::json;
using test::ms;
using test::t0;

constexpr duration lease = 10000 * ms;
constexpr duration longest_pause = 800 * ms;

etcd_reply gives(const std::string& token) {
  return {200, R"({"header":{"revision":"1"},"token":")" + token + R"("})"};
}

/// The messages are as etcd 3.4 was seen to send them.
const etcd_reply wrong_password{
    400,
    R"({"error":"etcdserver: authentication failed, invalid user ID or password","message":"etcdserver: authentication)"
    R"( failed, invalid user ID or password","code":3})"};
const etcd_reply no_users{
    412,
    R"({"error":"etcdserver: authentication is not enabled","message":"etcdserver: authentication is not enabled",)"
    R"("code":9})"};
const etcd_reply bad_token{
    401, R"({"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16})"};
const etcd_reply no_user{
    400, R"({"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3})"};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// An etcd with users, as far as rules see it: it takes the token that it has given last.
struct guarded {
  explicit guarded(const std::string& user = "me")
      : rules({"etcd:2379", "/t/", "me:7000", {"self", 7}, lease, 10 * ms, longest_pause, 3, user}), effects(rules) {}

  etcd_reply answer(const etcd_request& x) {
    tokens.push_back(x.token);
    if (has_users && (x.token.empty() || x.token != valid))
      return x.token.empty() ? no_user : bad_token;
    if (x.path == "/v3/lease/grant")
      return {200, R"({"header":{"revision":"1"},"ID":"5","TTL":"10"})"};
    if (x.path == "/v3/lease/keepalive")
      return {200, R"({"result":{"header":{"revision":"1"},"ID":"5","TTL":"10"}})"};
    const auto body = json::parse(x.body);
    if (x.path == "/v3/kv/put")
      kept = {{{"key", body.at("key")}, {"value", body.at("value")}, {"mod_revision", "2"}}};
    return {200, json{{"header", {{"revision", "2"}}}, {"kvs", kept}}.dump()};
  }
  etcd_reply log_in() {
    ++logins;
    if (!has_users)
      return no_users;
    if (!is_password_right)
      return wrong_password;
    return gives(valid = "token" + std::to_string(logins));
  }
  /// Executes one due step; false if none is due.
  bool step() {
    rules.on_time(now);
    const auto asked = effects.take<etcd_request>();
    const auto login = effects.take<etcd_login>();
    REQUIRE(asked.size() + login.size() <= 1);
    if (!login.empty())
      rules.on_answer(login.front().number, log_in(), now);
    if (!asked.empty())
      rules.on_answer(asked.front().number, answer(asked.front()), now);
    return !asked.empty() || !login.empty();
  }
  void settle() {
    for (int i = 0; step(); ++i)
      REQUIRE(i < 100);
  }
  void pass(duration by) {
    const auto until = now + by;
    while (rules.next_event() <= until) {
      now = std::max(now, rules.next_event());
      settle();
    }
    now = until;
  }
  std::vector<std::string> notified(bool bad) {
    for (const auto& x : effects.take<etcd_notified>())
      (x.bad ? warnings : news).push_back(x.text);
    return std::exchange(bad ? warnings : news, {});
  }

  timestamp now = t0;
  bool has_users = true;
  bool is_password_right = true;
  std::string valid;
  int logins = 0;
  /// The tokens with which requests came.
  std::vector<std::string> tokens;
  json kept = json::array();
  etcd_rules rules;
  test::effects_of<etcd_rules, etcd_effect> effects;
  std::vector<std::string> warnings;
  std::vector<std::string> news;
};

} // namespace

TEST_CASE("etcd with users: the login comes first, and every request carries its token", "[cluster][etcd]") {
  guarded x;
  x.rules.on_time(x.now);
  CHECK(x.effects.take<etcd_request>().empty());
  const auto login = x.effects.take<etcd_login>();
  REQUIRE(login.size() == 1);
  CHECK(x.rules.next_event() == timestamp::max());
  CHECK_FALSE(x.rules.deregistration());
  x.rules.on_answer(login.front().number, x.log_in(), x.now);
  x.settle();
  CHECK(x.tokens == std::vector<std::string>(3, "token1"));
  const auto watches = x.effects.take<etcd_watch>();
  REQUIRE(watches.size() == 1);
  CHECK(watches.front().token == "token1");
  REQUIRE(x.rules.deregistration());
  CHECK(x.rules.deregistration()->token == "token1");
  CHECK(x.rules.deregistration()->path == "/v3/lease/revoke");
  CHECK(x.rules.stats().registered);
  CHECK(x.notified(true).empty());
  x.pass(10 * lease);
  CHECK(x.logins == 1);
}

TEST_CASE("etcd with users: a rejected token leads to a new login and no error", "[cluster][etcd]") {
  guarded x;
  x.settle();
  for (int i = 0; i < 5; ++i) {
    x.valid = "none";
    x.pass(lease);
    CHECK(x.logins == 2 + i);
    CHECK(x.tokens.back() == "token" + std::to_string(2 + i));
    CHECK(x.rules.trouble().empty());
  }
  CHECK(x.notified(true).empty());
  CHECK(x.rules.stats().leases_lost == 0);
}

TEST_CASE("etcd with users: a wrong password is an error until the right one is given", "[cluster][etcd]") {
  guarded x;
  x.is_password_right = false;
  x.pass(20 * lease);
  CHECK(x.tokens.empty());
  // Each is work for etcd.
  CHECK(x.logins < 2 * (20 * lease) / longest_pause);
  CHECK(x.logins >= 20 * lease / longest_pause);
  const auto warned = x.notified(true);
  REQUIRE(warned.size() == 1);
  CHECK(contains(warned.front(), "this node cannot log in as 'me', so the list of nodes cannot be read from etcd at"));
  CHECK(contains(warned.front(), "the file of cluster.etcd.password_file"));
  CHECK(x.rules.trouble() == warned.front());
  CHECK_FALSE(x.rules.stats().up);
  CHECK_FALSE(x.rules.deregistration());
  x.is_password_right = true;
  x.pass(longest_pause);
  CHECK(x.rules.trouble().empty());
  CHECK(x.rules.stats().registered);
  CHECK(x.notified(false) == std::vector<std::string>{"etcd at etcd:2379 answers again"});
  // Changed while it runs: tokens end with that, and the file has the old one for some time.
  x.valid = "none";
  x.is_password_right = false;
  x.pass(2 * lease);
  CHECK(contains(x.rules.trouble(), "cannot log in as 'me'"));
  x.is_password_right = true;
  x.pass(longest_pause);
  CHECK(x.rules.trouble().empty());
}

TEST_CASE("etcd with users: an unanswered login is retried", "[cluster][etcd]") {
  guarded x;
  for (int i = 0; i < 4; ++i) {
    x.rules.on_time(x.now);
    const auto login = x.effects.take<etcd_login>();
    REQUIRE(login.size() == 1);
    x.rules.on_answer(login.front().number, fail(errc::timeout, "it takes too long"), x.now);
    CHECK(x.rules.next_event() > x.now);
    x.now = x.rules.next_event();
  }
  CHECK(contains(x.rules.trouble(), "it takes too long"));
  x.settle();
  CHECK(x.rules.trouble().empty());
}

TEST_CASE("etcd with users: no login is sent while users are not enabled", "[cluster][etcd]") {
  guarded x;
  x.has_users = false;
  x.pass(3 * lease);
  CHECK(x.logins == 1);
  CHECK(std::ranges::all_of(x.tokens, &std::string::empty));
  CHECK(x.rules.stats().registered);
  const auto notified = x.notified(false);
  REQUIRE(notified.size() == 1);
  CHECK(contains(notified.front(), "has authentication disabled"));
  x.has_users = true;
  x.pass(lease);
  CHECK(x.logins == 2);
  CHECK(x.tokens.back() == "token2");
  CHECK(x.notified(true).empty());
  CHECK(x.rules.trouble().empty());
}

TEST_CASE("etcd with users: tokens that stay invalid are an error and retried with pauses", "[cluster][etcd]") {
  guarded x;
  x.settle();
  const auto before = x.tokens.size();
  for (int i = 0; i < 200; ++i) {
    x.valid = "none";
    x.step();
    x.valid = "none";
    if (x.rules.next_event() > x.now)
      x.now = x.rules.next_event();
  }
  CHECK(contains(x.rules.trouble(), "etcdserver: invalid auth token"));
  CHECK(x.tokens.size() - before >= 80);
  CHECK(x.now - t0 > 20 * longest_pause);
  x.pass(2 * lease);
  CHECK(x.rules.trouble().empty());
}

TEST_CASE("etcd with users: the error for missing credentials names the config keys", "[cluster][etcd]") {
  guarded x{""};
  x.pass(lease);
  CHECK(x.logins == 0);
  CHECK(contains(x.rules.trouble(), "etcd requires a login; set cluster.etcd.user and cluster.etcd.password_file"));
  CHECK(std::ranges::all_of(x.tokens, &std::string::empty));
}

TEST_CASE("etcd with users: login messages are written and read as etcd defines them", "[cluster][etcd]") {
  CHECK(login_body("me", "a\"b\\ü") == R"({"name":"me","password":"a\"b\\ü"})");
  CHECK(read_login(gives("nVXqrjvHxEKlMsqk.12")) == "nVXqrjvHxEKlMsqk.12");
  CHECK(read_login(wrong_password).error().code == errc::invalid_argument);
  CHECK(read_login(no_users).error().code == errc::unsupported);
  CHECK(read_login({503, "gone"}).error().text == "the listener there answered with status 503 and is not etcd");
  // Nothing that would end the header, or the request.
  for (const auto* token : {"", "a b", "a\\r\\nX: y", "a\\u0000", "\\u00fc"})
    CHECK(read_login(gives(token)).error().code == errc::corrupt);
  CHECK(read_login(gives(std::string(9000, 'x'))).error().code == errc::corrupt);
  // An error may quote the answer, and it is not logged.
  const auto quoted = read_login({400, R"({"error":"etcdserver: no hunter2","code":3})"});
  CHECK_FALSE(contains(quoted.error().text, "hunter2"));

  CHECK(read_range(bad_token).error().code == errc::expired);
  CHECK(read_range(no_user).error().code == errc::expired);
  CHECK(read_put({400, R"({"error":"etcdserver: revision of auth store is old","code":3})"}).error().code ==
        errc::expired);
  // Gateways of 3.6, and streams.
  CHECK(read_range({401, R"({"code":16,"message":"etcdserver: invalid auth token","details":[]})"}).error().code ==
        errc::expired);
  CHECK(
      read_keep_alive({200, R"({"error":{"grpc_code":16,"message":"etcdserver: invalid auth token"}})"}).error().code ==
      errc::expired);
  CHECK(contains(read_range({403, R"({"error":"etcdserver: permission denied","code":7})"}).error().text,
                 "etcdserver: permission denied; grant the user a role with readwrite permission on the prefix"));
  CHECK(contains(read_range({401, "CommonName of client sending a request against gateway will be ignored and not used "
                                  "as expected\n"})
                     .error()
                     .text,
                 "refuses a client certificate with a common name"));
  CHECK(read_range({400, "Client sent an HTTP request to an HTTPS server.\n"}).error().text ==
        "etcd expects TLS there; set cluster.etcd.tls.ca");
}

TEST_CASE("etcd with users: a password is the one line of its file", "[cluster][etcd]") {
  for (const auto* text : {"a b", "a b\n", "a b\r\n"})
    CHECK(password_in(text) == "a b");
  CHECK(contains(password_in("").error().text, "is empty"));
  CHECK(contains(password_in("\n").error().text, "is empty"));
  CHECK(contains(password_in("a\nb\n").error().text, "more than one line"));
  CHECK(contains(password_in("a\tb").error().text, "is not a password"));
  CHECK(contains(password_in("a\xff").error().text, "is not a password"));
  CHECK(password_in(std::string(1024, 'x')));
  CHECK_FALSE(password_in(std::string(1025, 'x')));
}

} // namespace cluster_etcd_login_test
