#include "http/admin.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_certificates.hpp"

#include <csignal>
#include <thread>

namespace http_tls_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

router sample() {
  router r;
  const auto echo = [](const request& x, responder reply) {
    std::move(reply).send(response::text(std::string{x.body()}));
  };
  r.add(method::post, "/echo", open_route("echo", echo));
  r.add(method::post, "/write", {"write", role::write, echo, 0});
  r.add(method::get, "/large", open_route("large", [](const request&, responder reply) {
          std::move(reply).send(response::json(std::string(5'000'000, 'x')));
        }));
  return r;
}

/// An authority, a server that it vouches for, and where their files are.
struct fixture {
  scratch_directory directory;
  identity authority{"authority"};
  identity node{"node", authority};
  config::http_config config = test_config();

  fixture() { use(node); }

  void use(const identity& x) {
    config.tls.certificate = directory.write("certificate.pem", x.certificate());
    config.tls.key = directory.write("key.pem", x.key());
  }

  void ask_clients() { config.tls.client_ca = directory.write("ca.pem", authority.certificate()); }

  tls_client_options options() const { return {.trusted_pem = authority.certificate()}; }

  tls_client_options options(const identity& shown) const {
    return {.trusted_pem = authority.certificate(), .certificate_pem = shown.certificate(), .key_pem = shown.key()};
  }
};

/// Whether a client with these options is served.
bool is_served(std::uint16_t port, const tls_client_options& options) {
  tls_client c{port, options};
  // With TLS 1.3 a client learns from the first response that it was refused.
  if (!c.is_connected() || !c.send(post("/echo", "hello")))
    return false;
  const auto x = c.read();
  return x && x->code == 200 && x->body == "hello";
}

} // namespace

TEST_CASE("http tls: TLS serves requests like plain connections", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  tls_client c{s->port(), f.options()};
  REQUIRE(c.is_connected());
  for (int i = 0; i < 3; ++i)
    CHECK(c.call(post("/echo", "body")).body == "body");
  // Sent ahead, in one record.
  std::string all;
  for (int i = 0; i < 100; ++i)
    all += post("/echo", std::to_string(i));
  c.send(all);
  for (int i = 0; i < 100; ++i)
    CHECK(c.must_read().body == std::to_string(i));
  CHECK(c.call(get("/large")).body.size() == 5'000'000);
  const std::string body(300'000, 'b');
  CHECK((c.call(post("/echo", body)).body == body));
  CHECK(c.call("garbage\r\n\r\n").code == 400);
  CHECK(c.ends());
}

TEST_CASE("http tls: TLS is 1.2 or newer", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  auto options = f.options();
  CHECK(is_served(s->port(), options));
  options.max_version = TLS1_2_VERSION;
  CHECK(is_served(s->port(), options));
  options.max_version = TLS1_1_VERSION;
  CHECK_FALSE(is_served(s->port(), options));
}

TEST_CASE("http tls: a client with another authority does not talk to the server", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  const identity other{"authority"};
  CHECK_FALSE(is_served(s->port(), {.trusted_pem = other.certificate()}));
  CHECK(is_served(s->port(), f.options()));
}

TEST_CASE("http tls: with a client authority only its clients are served", "[http][tls]") {
  fixture f;
  f.ask_clients();
  const auto s = started(f.config, sample());
  const auto version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  const auto served = [&](tls_client_options options) {
    options.max_version = version;
    return is_served(s->port(), options);
  };
  CHECK_FALSE(served(f.options()));
  CHECK(served(f.options(identity{"engine", f.authority})));
  // Its name alone matches.
  const identity imposter{"authority"};
  CHECK_FALSE(served(f.options(identity{"engine", imposter})));
  CHECK_FALSE(served(f.options(identity{"engine"})));
}

TEST_CASE("http tls: tokens apply with TLS as without", "[http][tls]") {
  fixture f;
  f.config.tokens_file = f.directory.write("tokens", "write wwwwwwwwwwwwwwww\n");
  const auto s = started(f.config, sample());
  tls_client c{s->port(), f.options()};
  CHECK(c.call(post("/write", "x")).code == 401);
  CHECK(c.call(post("/write", "x", "Authorization: Bearer wwwwwwwwwwwwwwww\r\n")).code == 200);
}

TEST_CASE("http tls: certificates are reloaded with the tokens", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  tls_client before{s->port(), f.options()};
  CHECK(before.call(post("/echo", "x")).code == 200);
  const identity next_authority{"next"};
  const identity next_node{"node", next_authority};
  // A key that belongs to another certificate changes nothing.
  f.directory.write("key.pem", next_node.key());
  const auto refused = s->reload_tokens();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.starts_with("http.tls.key \""));
  CHECK(is_served(s->port(), f.options()));
  f.use(next_node);
  REQUIRE(s->reload_tokens());
  CHECK_FALSE(is_served(s->port(), f.options()));
  CHECK(is_served(s->port(), {.trusted_pem = next_authority.certificate()}));
  CHECK(before.call(post("/echo", "x")).code == 200);
}

TEST_CASE("http tls: files that are not certificates are refused", "[http][tls]") {
  const auto refusal = [](const config::http_config& c) {
    const auto x = server::start(c, sample());
    REQUIRE_FALSE(x);
    return x.error().text;
  };
  {
    fixture f;
    f.directory.write("certificate.pem", "no certificate");
    CHECK(refusal(f.config).starts_with("http.tls.certificate \""));
  }
  {
    fixture f;
    f.directory.write("key.pem", "no key");
    CHECK(refusal(f.config).starts_with("http.tls.key \""));
  }
  {
    fixture f;
    f.directory.write("key.pem", f.authority.key());
    CHECK(refusal(f.config).starts_with("http.tls.key \""));
  }
  {
    fixture f;
    f.config.tls.client_ca = "/nonexistent/ca";
    CHECK(refusal(f.config).starts_with("http.tls.client_ca \"/nonexistent/ca\" cannot be used: "));
  }
}

TEST_CASE("http tls: an incomplete handshake times out", "[http][tls]") {
  fixture f;
  f.config.limits.receive_time = 100ms;
  const auto s = started(f.config, sample());
  client silent{s->port()};
  CHECK(silent.ends());
  client half{s->port()};
  half.send(std::string_view{"\x16\x03\x01\x02\x00\x01\x00", 7});
  half.read_to_end();
  CHECK(troupe::test::eventually([&] { return is_served(s->port(), f.options()); }));
}

TEST_CASE("http tls: deadlines apply with TLS", "[http][tls]") {
  fixture f;
  // The time is long enough for a handshake and a request.
  f.config.limits.receive_time = 2s;
  f.config.limits.idle_time = 2s;
  const auto s = started(f.config, sample());
  tls_client slow{s->port(), f.options()};
  slow.send("POST /echo HTTP/1.1\r\n");
  CHECK(slow.must_read().code == 408);
  CHECK(slow.ends());
  tls_client idle{s->port(), f.options()};
  CHECK(idle.call(post("/echo", "x")).code == 200);
  CHECK(idle.ends());
}

TEST_CASE("http tls: a client that closes TLS or vanishes ends its connection", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  tls_client polite{s->port(), f.options()};
  CHECK(polite.call(post("/echo", "x", "Connection: close\r\n")).code == 200);
  CHECK(polite.ends());
  tls_client first{s->port(), f.options()};
  CHECK(first.call(post("/echo", "x")).code == 200);
  first.shut_down();
  CHECK(first.ends());
  for (int i = 0; i < 20; ++i) {
    tls_client gone{s->port(), f.options()};
    gone.send(get("/large"));
    gone.reset();
  }
  CHECK(is_served(s->port(), f.options()));
}

TEST_CASE("http tls: shutdown ends TLS connections in any state", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  client half{s->port()};
  half.send(std::string_view{"\x16\x03\x01\x02\x00\x01\x00", 7});
  tls_client idle{s->port(), f.options()};
  CHECK(idle.call(post("/echo", "x")).code == 200);
  s->stop(10min);
  CHECK(idle.ends());
  half.read_to_end();
}

TEST_CASE("http tls: TLS 1.2 has ciphers with forward secrecy and authentication only", "[http][tls][hostile]") {
  fixture f;
  const identity rsa{"rsa", f.authority, identity::key_kind::rsa};
  f.use(rsa);
  const auto s = started(f.config, sample());
  auto options = f.options();
  options.max_version = TLS1_2_VERSION;
  for (const auto* good :
       {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"}) {
    INFO(good);
    options.ciphers = good;
    CHECK(is_served(s->port(), options));
  }
  for (const auto* bad : {"AES128-SHA", "AES256-SHA256", "AES128-GCM-SHA256", "AES256-GCM-SHA384",
                          "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384", "DHE-RSA-AES128-SHA"}) {
    INFO(bad);
    options.ciphers = bad;
    CHECK_FALSE(is_served(s->port(), options));
  }
}

TEST_CASE("http tls: a client that speaks plain HTTP to a TLS port gets a clear error", "[http][tls]") {
  fixture f;
  const auto s = started(f.config, sample());
  client c{s->port()};
  const auto x = c.call(get("/echo"));
  CHECK(x.code == 400);
  CHECK(x.body.find("https://") != std::string::npos);
  CHECK(c.ends());
}

TEST_CASE("http tls: probes are answered over TLS while all connection slots are occupied", "[http][tls][hostile]") {
  fixture f;
  f.config.limits.connections = 2;
  auto routes = sample();
  add_admin_routes(routes, {});
  const auto s = started(f.config, std::move(routes));
  // They do not even shake hands.
  std::vector<std::unique_ptr<client>> silent;
  for (int i = 0; i < 50; ++i)
    silent.push_back(std::make_unique<client>(s->port()));
  // A client with a slow handshake is disconnected and comes again.
  const auto code_of = [&](const std::string& request) {
    int code = 0;
    const auto is_answered = [&] {
      tls_client x{s->port(), f.options()};
      code = x.is_connected() ? x.call(request).code : 0;
      return code != 0;
    };
    REQUIRE(troupe::test::eventually(is_answered));
    return code;
  };
  CHECK(code_of(get("/health")) == 200);
  CHECK(code_of(post("/echo", "x")) == 503);
}

} // namespace http_tls_test
