#include "http/server/request_rates.hpp"
#include "tests/unit/http_support.hpp"

#include <random>

namespace http_request_rates_test {

using namespace troupe;
using namespace troupe::http;
using namespace std::chrono_literals;

namespace {

const timestamp start{1000s};

router sample() {
  router r;
  r.add(method::get, "/read",
        {"read", role::read, [](const request&, responder reply) { std::move(reply).send({}); }, 0});
  r.add(method::get, "/open", open_route("open", [](const request&, responder reply) { std::move(reply).send({}); }));
  return r;
}

std::string read_as(std::string_view token) {
  return get("/read", "Authorization: Bearer " + std::string{token} + "\r\n");
}

} // namespace

TEST_CASE("http request rates: a token bucket grants one second of requests at once and then one at a time", "[http]") {
  request_bucket bucket{4};
  for (int i = 0; i < 4; ++i)
    CHECK_FALSE(bucket.take(start));
  CHECK(bucket.take(start) == 250ms);
  // A refused request takes nothing from the bucket.
  CHECK(bucket.take(start + 100ms) == 150ms);
  CHECK_FALSE(bucket.take(start + 250ms));
  CHECK(bucket.take(start + 250ms) == 250ms);
  CHECK_FALSE(bucket.is_full(start + 1249ms));
  CHECK(bucket.is_full(start + 1250ms));
  // However long it is idle, it holds no more than its maximum.
  for (int i = 0; i < 4; ++i)
    CHECK_FALSE(bucket.take(start + 1h));
  CHECK(bucket.take(start + 1h) == 250ms);
}

TEST_CASE("http request rates: over any period a token bucket grants no more than its rate and its initial content",
          "[http]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (const std::uint32_t rate : {1U, 3U, 7U, 1000U}) {
    request_bucket bucket{rate};
    auto now = start;
    std::uint64_t given = 0;
    for (int i = 0; i < 20'000; ++i) {
      const auto wait = bucket.take(now);
      given += wait ? 0 : 1;
      if (wait) {
        // Exactly then there is one again.
        auto later = bucket;
        CHECK_FALSE(later.take(now + *wait));
      }
      now += std::chrono::nanoseconds{random() % 2'000'000'000 / rate};
    }
    const auto seconds = std::chrono::duration<double>(now - start).count();
    CHECK(static_cast<double>(given) <= rate * (seconds + 1) + 1);
    CHECK(static_cast<double>(given) >= rate * seconds / 2);
  }
}

TEST_CASE("http request rates: callers have a bucket each", "[http]") {
  request_rates rates{1};
  CHECK_FALSE(rates.take("alice", start));
  CHECK_FALSE(rates.take("bob", start));
  CHECK(rates.take("alice", start) == 1s);
  CHECK(rates.size() == 2);
  // Those that are as good as none go when there are many.
  for (std::size_t i = 2; i < request_rates::many; ++i)
    CHECK_FALSE(rates.take(std::to_string(i), start));
  CHECK(rates.size() == request_rates::many);
  CHECK(rates.take("alice", start + 500ms) == 500ms);
  CHECK_FALSE(rates.take("carol", start + 1s));
  CHECK(rates.size() == 1);

  request_rates none{0};
  CHECK_FALSE(none.is_limited());
  for (int i = 0; i < 100; ++i)
    CHECK_FALSE(none.take("alice", start));
  CHECK(none.size() == 0);
}

TEST_CASE("http request rates: a caller beyond its rate gets 429 and Retry-After", "[http][hostile]") {
  const scratch_directory directory;
  auto config = test_config();
  config.limits.requests_per_second = 1;
  config.tokens_file = directory.write("tokens", "read alice-alice-alice name=alice\n"
                                                 "read alice-has-another name=alice\n"
                                                 "read bob-bob-bob-bob-bob name=bob\n");
  const auto s = started(config, sample());
  client c{s->port()};
  // Sent together, so they arrive at one moment, however slow this machine is.
  c.send(read_as("alice-alice-alice") + read_as("alice-has-another") + read_as("bob-bob-bob-bob-bob") +
         read_as("alice-alice-alice") + get("/open"));
  CHECK(c.must_read().code == 200);
  for (const auto expected : {429, 200, 429}) {
    const auto x = c.must_read();
    CHECK(x.code == expected);
    CHECK(x.has("Retry-After: 1") == (expected == 429));
    CHECK((x.body.find("http.limits.requests_per_second") != std::string::npos) == (expected == 429));
  }
  // Requests to open routes are not counted.
  CHECK(c.must_read().code == 200);
}

TEST_CASE("http request rates: without tokens all callers share one bucket", "[http][hostile]") {
  auto config = test_config();
  config.limits.requests_per_second = 2;
  const auto s = started(config, sample());
  client c{s->port()};
  c.send(get("/read") + get("/read") + get("/read"));
  CHECK(c.must_read().code == 200);
  CHECK(c.must_read().code == 200);
  CHECK(c.must_read().code == 429);
}

} // namespace http_request_rates_test
