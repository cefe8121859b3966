#include "actors/cluster/etcd/etcd_channel.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_certificates.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

/// Requests to etcd, for which a server of the test stands in: TLS, certificates, logins.

namespace cluster_etcd_channel_test {

using namespace troupe;
using namespace troupe::http;
using cluster::etcd_access;
using cluster::etcd_channel;
using cluster::etcd_reply;

namespace {

namespace fs = std::filesystem;

constexpr auto patience = std::chrono::seconds(20);

/// A server that echoes the token and body of each request.
struct stand_in {
  explicit stand_in(const config::http_config& how = test_config()) {
    router routes;
    for (const auto* path : {"/v3/kv/range", "/v3/auth/authenticate"})
      routes.add(method::post, path, open_route("any", [this](const request& x, responder reply) {
                   ++came;
                   std::move(reply).send(response::json("{\"said\":\"" +
                                                        std::string(x.header("authorization").value_or("-")) +
                                                        "\",\"body\":" + std::string(x.body()) + "}"));
                 }));
    running = started(how, std::move(routes));
  }

  std::atomic<int> came{0};
  std::unique_ptr<server> running;
};

/// One question at a time.
class asker {
public:
  asker(std::vector<etcd_channel::member> members, const config::etcd_config& how)
      : channel_(std::move(members), etcd_access(how), patience,
                 {[this](std::uint64_t, result<etcd_reply> x) { take(std::move(x)); },
                  [](std::uint64_t, const std::string&) {}, [](std::uint64_t) {}}) {}

  result<etcd_reply> ask(std::string token = {}, std::string path = "/v3/kv/range") {
    channel_.ask(1, std::move(path), "{}", std::move(token));
    return wait();
  }
  result<etcd_reply> log_in() {
    channel_.log_in(2);
    return wait();
  }
  /// Why not.
  std::string refusal() {
    const auto x = ask();
    REQUIRE_FALSE(x);
    return x.error().text;
  }

private:
  void take(result<etcd_reply> x) {
    {
      const std::lock_guard guard(mutex_);
      answer_ = std::move(x);
    }
    came_.notify_all();
  }
  result<etcd_reply> wait() {
    std::unique_lock guard(mutex_);
    troupe::test::await(came_, guard, [&] { return answer_.has_value(); });
    return *std::exchange(answer_, std::nullopt);
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<result<etcd_reply>> answer_;
  etcd_channel channel_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct with_tls {
  with_tls() {
    served.tls.certificate = directory.write("etcd.pem", etcd.certificate());
    served.tls.key = directory.write("etcd.key", etcd.key());
    config.tls.ca = directory.write("ca.pem", authority.certificate());
  }
  void serve(const identity& x) {
    directory.write("etcd.pem", x.certificate());
    directory.write("etcd.key", x.key());
  }
  std::vector<etcd_channel::member> at(const stand_in& x, const std::string& host = "127.0.0.1") const {
    return {{host, x.running->port()}};
  }

  scratch_directory directory;
  identity authority{"authority"};
  identity etcd = identity::for_names("IP:127.0.0.1", authority);
  config::http_config served = test_config();
  config::etcd_config config;
};

} // namespace

TEST_CASE("etcd over TLS: etcd is reachable where its certificate matches the configured address",
          "[cluster][etcd][tls]") {
  with_tls x;
  stand_in etcd(x.served);
  asker one(x.at(etcd), x.config);
  const auto said = one.ask("a-token");
  REQUIRE(said);
  CHECK(said->body == R"({"said":"a-token","body":{}})");
  CHECK(one.ask()->body == R"({"said":"-","body":{}})");
  if (!knows_localhost())
    return;
  asker other(x.at(etcd, "localhost"), x.config);
  CHECK(contains(other.refusal(), "TLS handshake failed: the certificate of the server is refused: hostname mismatch"));
  CHECK(etcd.came == 2);
}

TEST_CASE("etcd over TLS: no data is sent to a server with a refused certificate", "[cluster][etcd][tls]") {
  with_tls x;
  std::string why;
  const identity stranger("stranger");
  SECTION("issued by another authority") {
    x.config.tls.ca = x.directory.write("other.pem", stranger.certificate());
    why = "unable to get local issuer certificate";
  }
  SECTION("issued for another address") {
    x.serve(identity::for_names("IP:127.0.0.2,DNS:127.0.0.1", x.authority));
    why = "IP address mismatch";
  }
  SECTION("issued for a name") {
    x.serve(identity::for_names("DNS:localhost", x.authority));
    why = "IP address mismatch";
  }
  SECTION("expired") {
    x.serve(identity::for_names("IP:127.0.0.1", x.authority, -60));
    why = "certificate has expired";
  }
  stand_in etcd(x.served);
  asker one(x.at(etcd), x.config);
  const auto refused = one.refusal();
  CHECK(contains(refused, "127.0.0.1:" + std::to_string(etcd.running->port()) +
                              ": TLS handshake failed: the certificate of the server is refused: "));
  CHECK(contains(refused, why));
  CHECK(etcd.came == 0);
}

TEST_CASE("etcd over TLS: replaced certificate files take effect at once", "[cluster][etcd][tls]") {
  with_tls x;
  stand_in etcd(x.served);
  asker one(x.at(etcd), x.config);
  CHECK(one.ask());
  const identity stranger("stranger");
  x.directory.write("ca.pem", stranger.certificate());
  CHECK(contains(one.refusal(), "unable to get local issuer certificate"));
  x.directory.write("ca.pem", x.authority.certificate());
  CHECK(one.ask());
  fs::remove(*x.config.tls.ca);
  CHECK(contains(one.refusal(), "ca.pem\" cannot be used: there is no such file (cluster.etcd.tls)"));
  CHECK(etcd.came == 2);
}

TEST_CASE("etcd over TLS: a server that requires a client certificate gets one, whose key must be private",
          "[cluster][etcd][tls]") {
  with_tls x;
  x.served.tls.client_ca = *x.config.tls.ca;
  const identity node("node", x.authority);
  const auto certificate = x.directory.write("node.pem", node.certificate());
  const auto key = x.directory.write("node.key", node.key());
  stand_in etcd(x.served);
  {
    asker without(x.at(etcd), x.config);
    CHECK(contains(without.refusal(), "the server requires a client certificate, or another one"));
  }
  x.config.tls.certificate = certificate;
  x.config.tls.key = key;
  asker one(x.at(etcd), x.config);
  CHECK(one.ask());
  fs::permissions(key, fs::perms::others_read, fs::perm_options::add);
  const auto open = one.refusal();
  CHECK(contains(open, "is accessible to all users of this machine: chmod o= it"));
  CHECK(contains(open, "(cluster.etcd.tls)"));
  CHECK(etcd_access(x.config).check().error().text == open);
  fs::permissions(key, fs::perms::others_read, fs::perm_options::remove);
  CHECK(etcd_access(x.config).check());
  const identity stranger("stranger");
  x.directory.write("node.key", stranger.key());
  CHECK(contains(one.refusal(), "node.key\" is not the key of the certificate \""));
  x.directory.write("node.key", "nonsense");
  CHECK(contains(one.refusal(), "the key \""));
  CHECK(etcd.came == 1);
}

TEST_CASE("etcd over TLS: the client neither falls back to plain text nor upgrades to TLS", "[cluster][etcd][tls]") {
  with_tls x;
  stand_in clear;
  asker one(x.at(clear), x.config);
  CHECK(contains(one.refusal(), "the server does not speak TLS"));
  CHECK(clear.came == 0);
  stand_in etcd(x.served);
  config::etcd_config plain;
  asker other(x.at(etcd), plain);
  CHECK_FALSE(cluster::read_range(other.ask().value_or(etcd_reply{})));
  CHECK(etcd.came == 0);
}

TEST_CASE("etcd over TLS: a member with a refused certificate is skipped for the next one", "[cluster][etcd][tls]") {
  with_tls x;
  stand_in etcd(x.served);
  auto config = x.served;
  const auto wrong = identity::for_names("IP:127.0.0.2", x.authority);
  config.tls.certificate = x.directory.write("wrong.pem", wrong.certificate());
  config.tls.key = x.directory.write("wrong.key", wrong.key());
  stand_in stranger(config);
  asker one({{"127.0.0.1", stranger.running->port()}, {"127.0.0.1", etcd.running->port()}}, x.config);
  CHECK(contains(one.refusal(), "IP address mismatch"));
  CHECK(one.ask());
  CHECK(stranger.came == 0);
}

TEST_CASE("etcd over TLS: a response of etcd keeps its status", "[cluster][etcd]") {
  stand_in etcd;
  asker one({{"127.0.0.1", etcd.running->port()}}, {});
  CHECK(one.ask()->status == 200);
  CHECK(one.ask({}, "/v3/kv/none")->status == 404);
}

TEST_CASE("etcd over TLS: a login at etcd reads the password file each time", "[cluster][etcd]") {
  const scratch_directory directory;
  stand_in etcd;
  config::etcd_config config;
  config.user = "me";
  config.password_file = directory.write("password", "first\n");
  asker one({{"127.0.0.1", etcd.running->port()}}, config);
  CHECK(one.log_in()->body == R"({"said":"-","body":{"name":"me","password":"first"}})");
  directory.write("password", "second\n");
  CHECK(one.log_in()->body == R"({"said":"-","body":{"name":"me","password":"second"}})");
  fs::permissions(*config.password_file, fs::perms::others_read, fs::perm_options::add);
  const auto open = one.log_in();
  REQUIRE_FALSE(open);
  CHECK(contains(open.error().text,
                 "is accessible to all users of this machine: chmod o= it, and consider its password"));
  CHECK(contains(open.error().text, "(cluster.etcd.password_file)"));
  CHECK_FALSE(contains(open.error().text, "second"));
  CHECK(etcd_access(config).check().error().text == open.error().text);
  fs::permissions(*config.password_file, fs::perms::others_read, fs::perm_options::remove);
  directory.write("password", "third\nfourth\n");
  const auto two = one.log_in();
  REQUIRE_FALSE(two);
  CHECK(contains(two.error().text, "has more than one line"));
  CHECK_FALSE(contains(two.error().text, "third"));
  CHECK(etcd.came == 2);
}

} // namespace cluster_etcd_channel_test
