#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"

#include <string>

namespace events_streams_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using streams = events::stream_table;

std::string name_of(std::size_t n) {
  return "model " + std::to_string(n);
}

/// Serves a namespace with this model and ends it.
void pass(one_hub& x, const std::string& model) {
  const auto ns = x.serve(model);
  x.take(ns, events::namespace_ended{});
}

std::uint64_t last_number(const std::vector<events::published_batch>& batches, const std::string& topic) {
  std::uint64_t out = 0;
  for (const auto& each : batches)
    if (each.topic == topic)
      out = each.batch.number;
  return out;
}

} // namespace

TEST_CASE("events streams: streams of models that were removed are forgotten, but for the last ones", "[events]") {
  one_hub x;
  for (std::size_t n = 0; n < 3 * streams::ended_most; ++n) {
    pass(x, name_of(n));
    x.published();
  }
  // That of the fixture has a namespace.
  CHECK(x.hub.topics().size() == streams::ended_most + 1);
  CHECK(x.replay(0, "kv@n@" + name_of(0)).empty());
  CHECK_FALSE(x.replay(0, "kv@n@" + name_of(3 * streams::ended_most - 1)).empty());
  CHECK_FALSE(x.replay(0, "kv@n@m").empty());
}

TEST_CASE("events streams: a model that comes back has higher numbers than ever before", "[events]") {
  one_hub x;
  const auto gone = x.serve("gone");
  for (int i = 0; i < 50; ++i) {
    x.take(gone, complete(described(static_cast<std::uint64_t>(i), 1)));
    x.published();
  }
  x.take(gone, events::namespace_ended{});
  const auto last = last_number(x.published(11s), "kv@n@gone");
  REQUIRE(last > 140);
  SECTION("while its stream is there") {}
  SECTION("when it was forgotten") {
    for (std::size_t n = 0; n <= streams::ended_most; ++n)
      pass(x, name_of(n));
    x.published();
    REQUIRE(x.replay(0, "kv@n@gone").empty());
  }
  x.take(x.serve("gone"), complete(described(70, 1)));
  const auto batches = x.published();
  CHECK(last_number(batches, "kv@n@gone") > last);
}

TEST_CASE("events streams: the end of a namespace in one shard is not that in others", "[events]") {
  one_hub x;
  const auto ns = x.serve("two shards");
  x.serve("two shards");
  x.take(ns, events::namespace_ended{});
  x.take(ns, complete(described(0, 1)));
  x.published();
  CHECK(x.live.blocks.size() == 1);
  // One shard has it again before the other has ended it.
  x.serve("two shards");
  x.take(ns, events::namespace_ended{});
  x.remove({0});
  x.published();
  CHECK(x.live.blocks.empty());
  x.take(ns, events::namespace_ended{});
  x.take(ns, complete(described(1, 1)));
  x.published();
  CHECK(x.live.blocks.empty());
}

TEST_CASE("events streams: a stream that ended still says that its pages were removed", "[events]") {
  one_hub x;
  const auto ns = x.serve("gone");
  x.take(ns, complete(described(0, 1)));
  x.published();
  REQUIRE(x.live.blocks.size() == 1);
  x.remove({0});
  x.take(ns, events::namespace_ended{});
  x.published();
  CHECK(x.live.blocks.empty());
  // One who missed that gets a snapshot of nothing, and heartbeats go on.
  const auto parts = x.replay(100, "kv@n@gone");
  REQUIRE_FALSE(parts.empty());
  event_view late;
  for (const auto& part : parts)
    CHECK(late.apply(*part.text).empty());
  CHECK(late.blocks.empty());
  CHECK(late.cleared >= 1);
  CHECK(last_number(x.published(11s), "kv@n@gone") > parts.back().number);
}

TEST_CASE("events streams: a stream stays as long as a request for it is answered", "[events]") {
  one_hub x;
  pass(x, "gone");
  REQUIRE(x.hub.request("client", 0, "kv@n@gone", x.now));
  REQUIRE(x.hub.next_reply(x.now, 1.5));
  for (std::size_t n = 0; n < 2 * streams::ended_most; ++n) {
    pass(x, name_of(n));
    x.published(0s);
  }
  const auto reply = x.hub.next_reply(x.now, 1.5);
  REQUIRE(reply);
  CHECK(reply->topic == "kv@n@gone");
  x.hub.gone();
  pass(x, "another");
  x.published();
  CHECK(x.replay(0, "kv@n@gone").empty());
}

TEST_CASE("events streams: adapters that no page has any more make room for others", "[events]") {
  one_hub x;
  const auto adapter = [](std::size_t n) {
    auto out = described(n, 1);
    out.lora = "adapter " + std::to_string(n);
    return out;
  };
  const auto most = events::page_book::shapes_max;
  for (std::size_t n = 0; n < most; ++n)
    x.take(x.ns, complete(adapter(n)));
  x.published();
  REQUIRE(x.live.blocks.size() == most);
  x.take(x.ns, complete(adapter(most)));
  x.published();
  CHECK(x.live.blocks.size() == most);
  // Removed, and not published yet.
  x.remove({7, 8});
  x.take(x.ns, complete(adapter(most)));
  x.take(x.ns, complete(adapter(most + 1)));
  x.published();
  CHECK(x.live.blocks.size() == most);
  CHECK(x.live.blocks.at({"CPU", -1, 1000 + most}).lora == "adapter " + std::to_string(most));
  CHECK_FALSE(x.live.blocks.contains({"CPU", -1, 1007}));
  CHECK(x.live.unknown == 0);
}

} // namespace events_streams_test
