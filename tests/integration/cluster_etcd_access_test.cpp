#include "http_client/client_tls.hpp"
#include "http_client/connection.hpp"
#include "tests/catch.hpp"
#include "tests/integration/certificates.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/etcd_server.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <fstream>

namespace cluster_etcd_access_test {

/// Nodes that find each other through a real etcd with authentication.

using namespace troupe::test;
using stream = process::stream;

namespace {

/// The range of keys below /troupe/here/nodes/, in base64.
constexpr const char* first_key = "L3Ryb3VwZS9oZXJlL25vZGVzLw==";
constexpr const char* end_of_keys = "L3Ryb3VwZS9oZXJlL25vZGVzMA==";

/// Creates the user `troupe` with the rights that nodes need, as the user root of etcd; over TLS where there are
/// certificates.
class etcd_admin {
public:
  explicit etcd_admin(const etcd_server& etcd, const certificates* tls = nullptr) : port_(etcd.port()), tls_(tls) {}

  void enable_users(const std::string& password) {
    ask("/v3/auth/user/add", {{"name", "root"}, {"password", "of-root"}});
    ask("/v3/auth/user/add", {{"name", "troupe"}, {"password", password}});
    ask("/v3/auth/role/add", {{"name", "nodes"}});
    const nlohmann::json may{{"permType", "READWRITE"}, {"key", first_key}, {"range_end", end_of_keys}};
    ask("/v3/auth/role/grant", {{"name", "nodes"}, {"perm", may}});
    ask("/v3/auth/user/grant", {{"user", "troupe"}, {"role", "nodes"}});
    ask("/v3/auth/role/add", {{"name", "root"}});
    ask("/v3/auth/user/grant", {{"user", "root"}, {"role", "root"}});
    ask("/v3/auth/enable", nlohmann::json::object());
    has_users_ = true;
  }
  void change_password(const std::string& password) {
    ask("/v3/auth/user/changepw", {{"name", "troupe"}, {"password", password}});
  }

private:
  nlohmann::json ask(const std::string& path, const nlohmann::json& what) {
    std::string token;
    if (has_users_)
      token = say("/v3/auth/authenticate", {{"name", "root"}, {"password", "of-root"}}, {}).at("token");
    return say(path, what, token);
  }
  nlohmann::json say(const std::string& path, const nlohmann::json& what, const std::string& token) {
    using namespace troupe::client_detail;
    const auto where =
        parse_url((tls_ != nullptr ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_));
    std::shared_ptr<boost::asio::ssl::context> identity;
    if (tls_ != nullptr)
      identity =
          load_client_tls({tls_->path("ca.pem"), tls_->path("nameless.pem"), tls_->path("nameless.key")}).value();
    const auto until = std::chrono::steady_clock::now() + test_patience;
    auto open = connection::open(*where, identity.get(), until);
    if (!open)
      FAIL(open.error().why.text);
    const auto body = what.dump();
    const auto answer = (*open)->exchange("POST " + path + " HTTP/1.1\r\nHost: etcd" +
                                              (token.empty() ? "" : "\r\nAuthorization: " + token) +
                                              "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
                                          1U << 20U, until);
    REQUIRE(answer);
    INFO(path << ": " << answer->body);
    REQUIRE(answer->status == 200);
    return nlohmann::json::parse(answer->body);
  }

  std::uint16_t port_;
  const certificates* tls_;
  bool has_users_ = false;
};

struct let_in : test_cluster {
  let_in(std::size_t nodes, const nlohmann::json& etcd) : test_cluster(nodes) { options = {{"etcd", etcd}}; }

  bool has_degradation(std::size_t i, const std::string& text) {
    return http(node(i), "GET", "/ready").body.find(text) != std::string::npos;
  }
  bool is_degraded(std::size_t i) {
    return sum_of_metric(node(i), "troupe_degraded{reason=\"etcd_unreachable\"}") == 1;
  }
  void wait_for_list(std::size_t i, double count) {
    REQUIRE(eventually(
        [&] {
          return sum_of_metric(node(i), "troupe_etcd_registered") == 1 &&
                 sum_of_metric(node(i), "troupe_etcd_listed_nodes") == count && !is_degraded(i);
        },
        std::chrono::milliseconds(100)));
  }
  /// In the log, in /ready, and in metrics.
  void wait_for_trouble(std::size_t i, const std::string& text, std::size_t from = 0) {
    node(i).program().wait_for_line(stream::err, text, from);
    CHECK(eventually([&] { return has_degradation(i, text.substr(0, text.find('"'))) && is_degraded(i); },
                     std::chrono::milliseconds(20)));
    CHECK(http(node(i), "GET", "/ready").status == 200);
  }
};

void write_private(const std::string& file, const std::string& text) {
  std::ofstream(file) << text;
  using std::filesystem::perms;
  std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
}

} // namespace

TEST_CASE("cluster etcd access: nodes find each other through an etcd with client certificates and only with them") {
  const auto program = etcd_program();
  if (!program)
    return;
  const scratch_directory scratch;
  const certificates made(scratch.path());
  made.add("etcd", "/CN=etcd", "IP:127.0.0.1");
  made.add("nameless", "/O=ours", "DNS:any");
  made.add("elsewhere", "/CN=etcd", "IP:127.0.0.2,DNS:elsewhere");
  etcd_server etcd(*program,
                   {"--cert-file", made.path("etcd.pem"), "--key-file", made.path("etcd.key"), "--client-cert-auth",
                    "--trusted-ca-file", made.path("ca.pem")},
                   true);
  auto config = etcd.config();
  config["tls"] = {
      {"ca", made.path("ca.pem")}, {"certificate", made.path("nameless.pem")}, {"key", made.path("nameless.key")}};
  let_in nodes(3, config);
  nodes.start(0);
  nodes.start(1);
  nodes.wait_for_peers(0, 1);
  nodes.wait_for_peers(1, 1);
  nodes.wait_for_list(0, 2);

  const auto third_with = [&](const char* key, const nlohmann::json& value) {
    nodes.change = [=](std::size_t, nlohmann::json& out) {
      auto& x = out["cluster"]["etcd"];
      x["endpoints"].erase(0);
      if (value.is_null())
        x["tls"].erase(key);
      else
        x["tls"][key] = value;
    };
    nodes.start(2);
  };
  const auto stop_third = [&] {
    CHECK(nodes.node(2).stop() == 0);
    nodes.all[2].reset();
  };
  third_with("ca", made.path("foreign.pem"));
  nodes.wait_for_trouble(
      2, "TLS handshake failed: the certificate of the server is refused: unable to get local issuer certificate");
  stop_third();
  third_with("ca", made.path("none.pem"));
  nodes.wait_for_trouble(2, "there is no such file (cluster.etcd.tls)");
  stop_third();
  std::filesystem::permissions(made.path("nameless.key"), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  third_with("ca", made.path("ca.pem"));
  nodes.wait_for_trouble(2, "is accessible to all users of this machine");
  const auto checked = run(program_with({"check-config", (nodes.scratch.path() / "2" / "node.json").string()}));
  CHECK(checked.code != 0);
  CHECK(checked.err.find("cluster.etcd: key") != std::string::npos);
  std::filesystem::permissions(made.path("nameless.key"), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::remove);
  // A corrected file takes effect without a restart.
  nodes.wait_for_list(2, 3);
  stop_third();

  // A name, which the certificate does not have.
  nodes.change = [](std::size_t, nlohmann::json& out) {
    auto& x = out["cluster"]["etcd"];
    x["endpoints"].erase(0);
    x["endpoints"][0]["host"] = "localhost";
  };
  nodes.start(2);
  nodes.wait_for_trouble(2, "the certificate of the server is refused: hostname mismatch");
  stop_third();
  nodes.change = [](std::size_t, nlohmann::json& out) {
    auto& x = out["cluster"]["etcd"];
    x["endpoints"].erase(0);
    x["tls"].erase("certificate");
    x["tls"].erase("key");
  };
  nodes.start(2);
  nodes.wait_for_trouble(2, "the server requires a client certificate, or another one");
  stop_third();
  nodes.change = [](std::size_t, nlohmann::json& out) {
    auto& x = out["cluster"]["etcd"];
    x["endpoints"].erase(0);
    x.erase("tls");
  };
  nodes.start(2);
  // The reaction of etcd depends on its version: it may just close the connection.
  nodes.wait_for_trouble(2, "cannot be read from etcd");
  stop_third();
  nodes.wait_for_list(0, 2);

  // With users as well: its gateway accepts no certificate with a common name.
  etcd_admin(etcd, &made).enable_users("secret-of-nodes");
  write_private(made.path("password"), "secret-of-nodes\n");
  nodes.change = [&](std::size_t, nlohmann::json& out) {
    auto& x = out["cluster"]["etcd"];
    x["endpoints"].erase(0);
    x["user"] = "troupe";
    x["password_file"] = made.path("password");
    x["tls"]["certificate"] = made.path("node.pem");
    x["tls"]["key"] = made.path("node.key");
  };
  nodes.start(2);
  nodes.wait_for_trouble(2, "refuses a client certificate with a common name");
  std::filesystem::copy_file(made.path("nameless.pem"), made.path("node.pem"),
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(made.path("nameless.key"), made.path("node.key"),
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(eventually([&] { return sum_of_metric(nodes.node(2), "troupe_etcd_registered") == 1; },
                   std::chrono::milliseconds(100)));
  // The other two have no login.
  nodes.wait_for_trouble(0, "etcd requires a login; set cluster.etcd.user and cluster.etcd.password_file");
  nodes.stop_all();
}

TEST_CASE("cluster etcd access: nodes authenticate to etcd and again after token expiry and a password change") {
  const auto program = etcd_program();
  if (!program)
    return;
  // Tokens end before they are used a second time.
  etcd_server etcd(*program, {"--auth-token-ttl", "1"});
  etcd_admin admin(etcd);
  const scratch_directory scratch;
  const auto password = scratch / "password";
  write_private(password.string(), "first-secret\n");
  auto config = etcd.config();
  config["user"] = "troupe";
  config["password_file"] = password.string();
  let_in nodes(2, config);
  // While users are not enabled, all go on without.
  nodes.start_all();
  nodes.wait_for_list(0, 2);
  nodes.node(0).program().wait_for_line(stream::err, "has authentication disabled");
  admin.enable_users("first-secret");
  const auto requests = sum_of_metric(nodes.node(0), "troupe_etcd_requests_total");
  const auto failed = sum_of_metric(nodes.node(0), "troupe_etcd_failed_requests_total");
  CHECK(eventually([&] { return sum_of_metric(nodes.node(0), "troupe_etcd_requests_total") > requests + 20; },
                   std::chrono::milliseconds(100)));
  CHECK(sum_of_metric(nodes.node(0), "troupe_etcd_failed_requests_total") > failed);
  CHECK(sum_of_metric(nodes.node(0), "troupe_etcd_lost_leases_total") == 0);
  CHECK_FALSE(nodes.is_degraded(0));
  nodes.wait_for_list(1, 2);

  auto seen = nodes.node(0).log_mark();
  admin.change_password("second-secret");
  nodes.wait_for_trouble(0, "etcd refused the user or its password", seen);
  CHECK(nodes.has_degradation(0, "this node cannot log in as 'troupe'"));
  write_private(password.string(), "second-secret\n");
  nodes.node(0).program().wait_for_line(stream::err, "answers again", seen);
  nodes.wait_for_list(0, 2);
  nodes.wait_for_list(1, 2);

  seen = nodes.node(0).log_mark();
  std::filesystem::permissions(password, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  nodes.wait_for_trouble(0, "is accessible to all users of this machine", seen);
  write_private(password.string(), "second-secret\n");
  nodes.node(0).program().wait_for_line(stream::err, "answers again", seen);

  const auto checked = run(program_with({"check-config", (nodes.scratch.path() / "0" / "node.json").string()}));
  CHECK(checked.out.find("-secret") == std::string::npos);
  // A node that leaves removes its entry, with a valid login or not at all.
  nodes.wait_for_list(0, 2);
  nodes.stop_all();
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(nodes.node(i).log().find("-secret") == std::string::npos);
}

} // namespace cluster_etcd_access_test
