// The resources that a client without any rights can take from others, and those that it cannot.

#include "base/byte_budget.hpp"
#include "base/descriptors.hpp"
#include "http/admin.hpp"
#include "http/server/address_counts.hpp"
#include "http/server/host_rule.hpp"
#include "http/server/json_body.hpp"
#include "tests/unit/http_support.hpp"

#include <arpa/inet.h>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace http_hostile_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

router sample() {
  router r;
  add_admin_routes(r, {});
  r.add(method::get, "/ok", open_route("ok", [](const request&, responder reply) { std::move(reply).send({}); }));
  const auto size = [](const request& x, responder reply) {
    std::move(reply).send(response::json(std::to_string(x.body().size())));
  };
  r.add(method::post, "/size", open_route("size", size));
  r.add(method::get, "/read", {"read", role::read, size, 0});
  return r;
}

class closed_counter final : public observer {
public:
  void connection_closed() noexcept override {
    const std::lock_guard guard{mutex_};
    ++closed_;
    changed_.notify_all();
  }
  void wait_for(int n) {
    std::unique_lock lock{mutex_};
    REQUIRE(changed_.wait_for(lock, 1min, [&] { return closed_ >= n; }));
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int closed_ = 0;
};

/// Clients that connect and say nothing.
class silence {
public:
  silence(std::uint16_t port, int count) {
    for (int i = 0; i < count; ++i)
      clients_.push_back(std::make_unique<client>(port));
  }

private:
  std::vector<std::unique_ptr<client>> clients_;
};

std::string get_from(std::string_view host, std::string_view target = "/read") {
  return "GET " + std::string{target} + " HTTP/1.1\r\nHost: " + std::string{host} + "\r\n\r\n";
}

std::uint64_t resident_bytes() {
  std::ifstream statm{"/proc/self/statm"};
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

address_key key_of(const char* text) {
  sockaddr_storage out{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
  if (::inet_pton(AF_INET, text, &v4->sin_addr) == 1)
    out.ss_family = AF_INET;
  else if (::inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
    out.ss_family = AF_INET6;
  return address_key::of(out);
}

} // namespace

TEST_CASE("http hostile: probes are answered while silent connections occupy all connection slots", "[http][hostile]") {
  auto config = test_config();
  config.limits.connections = 100;
  const auto s = started(config, sample());
  // All connection slots are taken, and several times the reserve.
  const silence all{s->port(), 500};
  for (int i = 0; i < 20; ++i)
    for (const auto* path : {"/health", "/ready", "/version", "/metrics"}) {
      client probe{s->port()};
      const auto x = probe.call(get(path));
      CHECK(x.code == 200);
      CHECK(x.has("Connection: close\r\n"));
      CHECK(probe.ends());
    }
  client other{s->port()};
  const auto refused = other.call(get("/ok"));
  CHECK(refused.code == 503);
  CHECK(refused.body == R"({"detail":"there are 100 connections, which is the limit"})");
  CHECK(other.ends());
  // A body is not waited for.
  client writer{s->port()};
  CHECK(writer.call("POST /size HTTP/1.1\r\nHost: test\r\nContent-Length: 10000000\r\n\r\n").code == 503);
}

TEST_CASE("http hostile: a silent connection beyond the limit gets 503 after a while", "[http][hostile]") {
  auto config = test_config();
  config.limits.connections = 1;
  const auto s = started(config, sample());
  client in{s->port()};
  CHECK(in.call(get("/ok")).code == 200);
  client silent{s->port()};
  client half{s->port()};
  half.send("GET /health HTTP/1.1\r\nHost: te");
  CHECK(silent.must_read().code == 503);
  CHECK(silent.ends());
  CHECK(half.must_read().code == 503);
}

TEST_CASE("http hostile: one address cannot occupy all connections", "[http][hostile]") {
  auto config = test_config();
  config.limits.connections_per_address = 3;
  const auto s = started(config, sample());
  std::vector<std::unique_ptr<client>> in;
  for (int i = 0; i < 3; ++i) {
    in.push_back(std::make_unique<client>(s->port()));
    CHECK(in.back()->call(get("/ok")).code == 200);
  }
  client out{s->port()};
  const auto refused = out.call(get("/ok"));
  CHECK(refused.code == 503);
  CHECK(refused.body == R"({"detail":"there are 3 connections from this address, which is the limit"})");
  client probe{s->port()};
  CHECK(probe.call(get("/health")).code == 200);
  client other{s->port(), 0, "127.0.0.2"};
  CHECK(other.call(get("/ok")).code == 200);
}

TEST_CASE("http hostile: a closed connection frees a slot for its address", "[http][hostile]") {
  auto config = test_config();
  config.limits.connections_per_address = 1;
  closed_counter watcher;
  const auto s = started(config, sample(), &watcher);
  for (int i = 0; i < 3; ++i) {
    client c{s->port()};
    CHECK(c.call(get("/ok")).code == 200);
    c.reset();
    watcher.wait_for(i + 1);
  }
}

TEST_CASE("http hostile: addresses are grouped by the prefix that one machine has", "[http][hostile]") {
  CHECK(key_of("10.0.0.1") == key_of("10.0.0.1"));
  CHECK(key_of("10.0.0.1") == key_of("::ffff:10.0.0.1"));
  CHECK_FALSE(key_of("10.0.0.1") == key_of("10.0.0.2"));
  CHECK(key_of("2001:db8:1:2::1") == key_of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  CHECK_FALSE(key_of("2001:db8:1:2::1") == key_of("2001:db8:1:3::1"));
  CHECK_FALSE(key_of("0.0.0.10") == key_of("::"));
  address_counts counts;
  CHECK(counts.enter(key_of("10.0.0.1"), 2));
  CHECK(counts.enter(key_of("10.0.0.1"), 2));
  CHECK_FALSE(counts.enter(key_of("10.0.0.1"), 2));
  CHECK(counts.enter(key_of("10.0.0.2"), 2));
  counts.leave(key_of("10.0.0.1"));
  CHECK(counts.enter(key_of("10.0.0.1"), 2));
}

TEST_CASE("http hostile: endless bodies take no more memory than the common budget", "[http][hostile]") {
  auto config = test_config();
  config.limits.body_bytes = 512 * 1024;
  config.limits.bodies_bytes = 1024 * 1024;
  const auto s = started(config, sample());
  constexpr std::size_t body = 500'000;
  std::vector<std::unique_ptr<client>> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(std::make_unique<client>(s->port()));
    all.back()->send("POST /size HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body) + "\r\n\r\n");
    all.back()->send(std::string(body - 1, 'x'));
  }
  // Two of them fit. The others are refused, and then there is room for them.
  int refused = 0;
  std::vector<client*> waiting;
  while (refused < 10) {
    std::vector<pollfd> sockets;
    for (const auto& x : all)
      sockets.push_back({x->socket(), POLLIN, 0});
    REQUIRE(::poll(sockets.data(), sockets.size(), 60'000) > 0);
    for (std::size_t i = all.size(); i-- > 0;)
      if (sockets[i].revents != 0) {
        const auto x = all[i]->must_read();
        CHECK(x.code == 503);
        CHECK(x.body.find("all the memory that they may") != std::string::npos);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        ++refused;
      }
  }
  // Where both requested more at the same time, each may have found the memory that the other was about to return.
  int served = 0;
  for (const auto& x : all) {
    const auto done = x->call("x");
    CHECK((done.code == 503 || done.body == std::to_string(body)));
    served += done.code == 200 ? 1 : 0;
  }
  CHECK(served > 0);
  client next{s->port()};
  CHECK(next.call(post("/size", std::string(body, 'x'))).code == 200);
}

TEST_CASE("http hostile: the memory for parsing JSON bodies is bounded in total", "[http][hostile]") {
  // The estimate matches simdjson for a body beyond what threads keep for small ones.
  CHECK(json_reading_bytes(0) == 0);
  CHECK(json_reading_bytes(1024 * 1024) == 0);
  CHECK(json_reading_bytes(1024 * 1024 + 1) > std::uint64_t{14} * 1024 * 1024);
  byte_budget budget{100};
  {
    REQUIRE(budget.take(60));
    const byte_claim claim{budget, 60};
    CHECK_FALSE(budget.take(41));
  }
  CHECK(budget.used() == 0);

  auto config = test_config();
  config.limits.body_bytes = 2 * 1024 * 1024;
  // Receiving takes four of them, and reading one.
  config.limits.bodies_bytes = 4 * config.limits.body_bytes;
  std::promise<void> is_read;
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future();
  auto routes = sample();
  const auto hold = [&](const request& x, responder reply) {
    const auto body = parse_json(x);
    is_read.set_value();
    static_cast<void>(may_go_on.wait_for(1min));
    std::move(reply).send(body ? response::no_content() : to_response(body.error()));
  };
  routes.add(method::post, "/hold", open_route("hold", hold));
  const auto read = [](const request& x, responder reply) {
    const auto body = parse_json(x);
    std::move(reply).send(body ? response::no_content() : to_response(body.error()));
  };
  routes.add(method::post, "/json", open_route("json", read));
  const auto s = started(config, std::move(routes));
  const auto large = "\"" + std::string(1'500'000, 'x') + "\"";
  // Two connections, one on each of two threads.
  client first{s->port()};
  CHECK(first.call(post("/json", large)).code == 204);
  client second{s->port()};
  CHECK(second.call(post("/json", large)).code == 204);
  first.send(post("/hold", large));
  REQUIRE(is_read.get_future().wait_for(1min) == std::future_status::ready);
  const auto refused = second.call(post("/json", large));
  CHECK(refused.code == 503);
  CHECK(refused.body.find("all the memory that they may") != std::string::npos);
  // Small bodies are parsed with the buffer of the thread.
  CHECK(second.call(post("/json", "[1,2,3]")).code == 204);
  go_on.set_value();
  CHECK(first.must_read().code == 204);
  CHECK(second.call(post("/json", large)).code == 204);
}

TEST_CASE("http hostile: memory for bodies is released when connections close", "[http][hostile]") {
  auto config = test_config();
  config.limits.bodies_bytes = std::uint64_t{1} << 30U;
  closed_counter watcher;
  const auto s = started(config, sample(), &watcher);
  constexpr int count = 24;
  constexpr std::size_t body = 6'000'000;
  const std::string some(body, 'x');
  // Threads have their stacks and heaps from here on.
  client first{s->port()};
  CHECK(first.call(post("/size", "x")).code == 200);
  const auto before = resident_bytes();
  std::vector<std::unique_ptr<client>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<client>(s->port()));
    all.back()->send("POST /size HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body + 1) + "\r\n\r\n");
    all.back()->send(some);
  }
  for (auto& x : all)
    x->reset();
  watcher.wait_for(count);
  // 144 MB had been there.
  CHECK(resident_bytes() < before + 48 * 1024 * 1024);
}

TEST_CASE("http hostile: the number of connections leaves descriptors for the rest of the node", "[http][hostile]") {
  // Plenty.
  CHECK(connections_within(1U << 20U, 100, 256, 1024) == 1024);
  CHECK(connections_within(1U << 20U, 100, 256, 65536) == 65536);
  // The store's 512 and 128 others stay free.
  CHECK(connections_within(4096, 100, 256, 65536) == 4096 - 100 - 256 - 640);
  CHECK(connections_within(1024, 50, 256, 1024) == 1024 - 50 - 256 - 640);
  // Hardly any: some have to be served.
  CHECK(connections_within(256, 50, 64, 1024) == 16);
  CHECK(connections_within(256, 50, 64, 8) == 8);
  CHECK(connections_within(0, 0, 0, 1024) == 16);
}

TEST_CASE("http hostile: reserved descriptors are counted until their owner is destroyed", "[http][hostile]") {
  const auto before = set_aside_descriptors();
  {
    descriptors_set_aside first(5);
    CHECK(set_aside_descriptors() == before + 5);
    const descriptors_set_aside second(std::move(first));
    first = descriptors_set_aside(7);
    CHECK(set_aside_descriptors() == before + 12);
  }
  CHECK(set_aside_descriptors() == before);
}

TEST_CASE("http hostile: the limit of open files is raised as far as allowed", "[http][hostile]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto lower = before.rlim_max < 512 ? before.rlim_max : 512;
  const rlimit low{lower, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const auto raised = raise_descriptor_limit();
  rlimit after{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &after) == 0);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(raised);
  CHECK(raised->before == lower);
  CHECK(raised->now == after.rlim_cur);
  CHECK(after.rlim_cur == (before.rlim_max < (1U << 20U) ? before.rlim_max : (1U << 20U)));
  CHECK(open_descriptors() >= 3);
}

TEST_CASE("http hostile: without tokens a loopback server accepts only its own host names", "[http][hostile]") {
  auto config = test_config();
  config.hosts = "";
  const auto s = started(config, sample());
  const auto port = std::to_string(s->port());
  client c{s->port()};
  for (const auto& host :
       {std::string{"localhost"}, "localhost:" + port, std::string{"LocalHost"}, std::string{"localhost."},
        std::string{"127.0.0.1"}, "127.0.0.1:" + port, std::string{"[::1]"}, "[::1]:" + port}) {
    INFO(host);
    CHECK(c.call(get_from(host)).code == 200);
  }
  for (const std::string host : {"evil.com", "evil.com:18000", "localhost.evil.com", "127.0.0.1.evil.com", "evil",
                                 "[::2]", "127.0.0.2", "localhost:1:2", "[", "[]", "]", ":"}) {
    INFO(host);
    const auto x = c.call(get_from(host));
    CHECK(x.code == 421);
    CHECK(x.body.find("http.hosts") != std::string::npos);
  }
  // The host in the target counts too and must not contradict the header.
  CHECK(c.call(get_from("localhost", "http://evil.com/read")).code == 421);
  CHECK(c.call(get_from("evil.com", "http://localhost/read")).code == 421);
  CHECK(c.call(get_from("localhost", "http://localhost:1/read")).code == 200);
  // Open routes accept any host name.
  CHECK(c.call(get_from("evil.com", "/ok")).code == 200);
  CHECK(c.call(get_from("evil.com", "/health")).code == 200);
}

TEST_CASE("http hostile: host names of a server without tokens can be added, and with tokens none are needed",
          "[http][hostile]") {
  auto config = test_config();
  config.hosts = "cache.example, 10.0.0.7,fd00::7";
  const host_rule some{config};
  CHECK(some.allows("cache.example:18000"));
  CHECK(some.allows("CACHE.example"));
  CHECK(some.allows("10.0.0.7"));
  CHECK(some.allows("[fd00::7]:18000"));
  CHECK(some.allows("localhost"));
  CHECK_FALSE(some.allows("example"));
  CHECK_FALSE(some.allows(""));
  config.host = "0.0.0.0";
  CHECK_FALSE(host_rule{config}.allows("evil.com"));
  config.hosts = "";
  CHECK(host_rule{config}.allows("evil.com")); // the name of the host is unknown
  config.host = "127.0.0.1";
  CHECK_FALSE(host_rule{config}.allows("evil.com"));
  config.tokens_file = "tokens";
  CHECK(host_rule{config}.allows("evil.com"));
}

} // namespace http_hostile_test
