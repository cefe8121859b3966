#include "lmcache/event_streams.hpp"
#include "lmcache/incoming.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

/// Subscriptions to events as the clients of LMCache 0.5.6 and 0.5.7 make them.

namespace lmcache_event_streams_test {

using namespace troupe;
using namespace troupe::lmcache;
using nlohmann::json;

namespace {

constexpr std::uint32_t chunk = 4;

std::optional<incoming> read_subscription(const std::vector<json>& payloads) {
  return test::read_packed("subscribe_kv_events", payloads, chunk);
}

std::vector<protocol::byte_view> views_of(const std::vector<std::string>& frames) {
  std::vector<protocol::byte_view> out;
  for (const auto& x : frames)
    out.push_back(std::as_bytes(std::span(x)));
  return out;
}

event_streams::request subscription(client_number client, std::int64_t instance, std::string number) {
  auto out = std::make_shared<incoming>();
  out->client = client;
  out->instance = instance;
  out->number = std::move(number);
  return out;
}

std::vector<std::string> ready(event_streams& of) {
  std::vector<std::string> out;
  of.for_each_ready([&](event_streams::stream& x) {
    out.push_back(x.opened->number);
    x.waits = true;
  });
  return out;
}

using numbers = std::vector<std::string>;

} // namespace

TEST_CASE("lmcache event streams: a subscription names instance, model, cursor and the size of a batch", "[lmcache]") {
  const auto x = read_subscription({-7, "a/model", 12, 1024});
  REQUIRE(x);
  CHECK_FALSE(x->malformed);
  CHECK(x->what == protocol::operation::subscribe_kv_events);
  CHECK(x->instance == -7);
  CHECK(x->events.model == "a/model");
  CHECK(x->events.cursor == 12);
  CHECK(x->events.most == 1024);
  CHECK(x->events.control == protocol::stream_control::none);
  for (const auto& wrong : std::vector<std::vector<json>>{{1, "m", -1, 10},
                                                          {1, "m", 0, 0},
                                                          {1, "m", 0, 1025},
                                                          {"1", "m", 0, 10},
                                                          {1, 5, 0, 10},
                                                          {1, std::string(2000, 'm'), 0, 10},
                                                          {1, "m", 0},
                                                          {1, "m", 0, 10, 5}})
    CHECK(read_subscription(wrong)->malformed);
}

TEST_CASE("lmcache event streams: a client confirms and cancels by frames that are no MessagePack", "[lmcache]") {
  const auto control = [](const std::string& what) { return read_message(views_of({"\x05", "", what}), chunk); };
  CHECK(control("ack")->events.control == protocol::stream_control::confirm);
  CHECK(control("ack")->number == "\x05");
  CHECK(control("cancel")->events.control == protocol::stream_control::cancel);
  CHECK_FALSE(control("acks"));
  CHECK_FALSE(control(""));
}

TEST_CASE("lmcache event streams: a batch is what LMCache's clients decode", "[lmcache]") {
  const std::vector<std::uint32_t> tokens{1, 70000, 3};
  const std::vector<protocol::cache_event> events{{7, true, "a/model", 0x0102030405060708, std::uint64_t{5}, tokens},
                                                  {8, true, "a/model", 9, {}, tokens},
                                                  {9, false, "a/model", 9}};
  const auto x = json::from_msgpack(protocol::answer_events({true, 1ULL << 60U, 9, true}, events));
  CHECK(x["enabled"] == true);
  CHECK(x["incarnation"] == 1ULL << 60U);
  CHECK(x["next_cursor"] == 9);
  CHECK(x["lost"] == true);
  REQUIRE(x["events"].size() == 3);
  const auto bytes = [](std::vector<std::uint8_t> of) { return json::binary(std::move(of)); };
  CHECK(x["events"][0] == json{{"seq", 7},
                               {"kind", "stored"},
                               {"medium", "CPU"},
                               {"model_name", "a/model"},
                               {"block_hashes", json::array({bytes({1, 2, 3, 4, 5, 6, 7, 8})})},
                               {"parent_block_hash", bytes({0, 0, 0, 0, 0, 0, 0, 5})},
                               {"token_ids", {1, 70000, 3}}});
  CHECK(x["events"][1]["parent_block_hash"].is_null());
  CHECK(x["events"][2]["kind"] == "removed");
  CHECK(x["events"][2]["token_ids"] == json::array());
  CHECK(json::from_msgpack(protocol::answer_events({false, 0, 0, false}, {}))["enabled"] == false);
}

TEST_CASE("lmcache event streams: tokens of stored chunks are kept where events need them, without a salt",
          "[lmcache]") {
  const auto read_store = [](const std::string& salt, bool keeps, const char* what = "commit_store") {
    const json key{
        {"model_name", "m"},  {"world_size", 1}, {"worker_id", 0},    {"token_ids", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
        {"start", 4},         {"end", 8},        {"request_id", "r"}, {"cache_salt", salt},
        {"num_kv_readers", 1}};
    std::vector<json> payloads{key, 1};
    if (std::string(what) == "commit_store")
      payloads.push_back(json::binary({}));
    return test::read_packed(what, payloads, chunk, keeps)->chunks.tokens;
  };
  CHECK(read_store("", true) == std::vector<std::uint32_t>{5, 6, 7, 8});
  CHECK(read_store("tenant", true).empty());
  CHECK(read_store("", false).empty());
  CHECK(read_store("", true, "prepare_retrieve").empty());
}

TEST_CASE("lmcache event streams: a subscriber gets the next batch when it has confirmed the last one", "[lmcache]") {
  event_streams all;
  REQUIRE(all.open(subscription(1, 10, "a")));
  REQUIRE(all.open(subscription(2, 10, "a")));
  CHECK(ready(all) == numbers{"a", "a"});
  CHECK(ready(all).empty());
  all.confirmed(1, "b");
  CHECK(ready(all).empty());
  all.confirmed(1, "a");
  CHECK(ready(all) == numbers{"a"});
  // A new one of the instance ends the one before.
  REQUIRE(all.open(subscription(1, 10, "c")));
  CHECK(all.size() == 2);
  CHECK(ready(all) == numbers{"c"});
  all.confirmed(1, "a");
  CHECK(ready(all).empty());
  all.cancelled(1, "c");
  all.confirmed(1, "c");
  CHECK(ready(all).empty());
  all.client_disconnected(2);
  CHECK(all.size() == 0);
}

TEST_CASE("lmcache event streams: subscriptions are limited for each client and in all", "[lmcache]") {
  event_streams all({.streams_max = 3, .per_client_max = 2});
  CHECK(all.open(subscription(1, 1, "a")));
  CHECK(all.open(subscription(1, 2, "b")));
  CHECK_FALSE(all.open(subscription(1, 3, "c")));
  CHECK(all.open(subscription(1, 2, "d")));
  CHECK(all.open(subscription(2, 1, "a")));
  CHECK_FALSE(all.open(subscription(3, 1, "a")));
}

} // namespace lmcache_event_streams_test
