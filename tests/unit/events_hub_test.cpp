#include "events/batch_text.hpp"
#include "events/description_rules.hpp"
#include "lmcache/protocol/msgpack_writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"

#include <algorithm>

namespace troupe::test {

using namespace std::chrono_literals;
using strings = std::vector<std::string>;

TEST_CASE("events hub: a stream begins with a batch that clears what subscribers knew", "[events]") {
  one_hub x;
  const auto first = x.published();
  REQUIRE(first.size() == 1);
  CHECK(first[0].topic == "kv@n@m");
  CHECK(first[0].batch.number == 100);
  CHECK(x.live.last == strings{"AllBlocksCleared"});
  x.serve("other");
  CHECK(x.published().size() == 1);
  // Another shard serves the same namespace.
  x.serve("other");
  CHECK(x.published().empty());
  CHECK(x.hub.topics() == strings{"kv@n@m", "kv@n@other"});
}

TEST_CASE("events hub: pages are published with tokens, hashes and parents, and removed by their hashes", "[events]") {
  one_hub x;
  x.published();
  x.take(x.ns, complete(described(0, 3)));
  CHECK(x.hub.flush(x.now, 1.5).empty()); // others may follow
  const auto batches = x.published();
  REQUIRE(batches.size() == 1);
  CHECK(batches[0].batch.number == 101);
  // One chain is one event.
  CHECK(x.live.last == strings{"BlockStored"});
  REQUIRE(x.live.blocks.size() == 3);
  const auto& second = x.live.blocks.at({"CPU", -1, 1001});
  CHECK(second.parent == 1000U);
  CHECK(second.tokens == std::vector<std::uint32_t>(4, 1));
  CHECK_FALSE(x.live.blocks.at({"CPU", -1, 1000}).parent.has_value());
  x.remove({1, 2, 77});
  x.published();
  CHECK(x.live.last == strings{"BlockRemoved"});
  CHECK(x.live.blocks.size() == 1);
  CHECK(x.live.unknown == 0);
  CHECK(x.hub.book().pages() == 1);
}

TEST_CASE("events hub: a page of several blocks names all of them", "[events]") {
  one_hub x;
  auto pages = described(0, 2, 3);
  pages.groups = {{2}};
  pages.lora = "adapter";
  lmcache::protocol::msgpack_writer extra;
  extra.array(3).nil().array(1).text("salt").nil();
  pages.extra = extra.take();
  const auto length = static_cast<std::uint32_t>(pages.extra.size());
  pages.extra_ends.items = {length, length};
  REQUIRE_FALSE(events::fault_of(pages));
  x.take(x.ns, complete(pages, false));
  x.published();
  REQUIRE(x.live.blocks.size() == 6);
  CHECK(x.live.blocks.at({"STORAGE", 2, 1001}).extra == "extra");
  CHECK(x.live.blocks.at({"STORAGE", 2, 1001}).lora == "adapter");
  CHECK(x.live.blocks.at({"STORAGE", 2, 1003}).parent == 1002U);
  CHECK(x.live.blocks.at({"STORAGE", 2, 1003}).extra.empty());
  x.remove({0});
  x.published();
  CHECK(x.live.blocks.size() == 3);
  CHECK(x.live.unknown == 0);
}

TEST_CASE("events hub: the group of a page is part of each of its events, also the first one", "[events]") {
  one_hub x;
  auto pages = described(0, 2);
  pages.groups = {{0}};
  x.take(x.ns, complete(pages));
  x.published();
  CHECK(x.live.blocks.contains({"CPU", 0, 1000}));
  x.remove({0});
  x.published();
  CHECK(x.live.blocks.size() == 1);
  CHECK(x.live.unknown == 0);
}

TEST_CASE("events hub: a page of several groups is published, moved and removed in each of them", "[events]") {
  one_hub x;
  auto pages = described(0, 3);
  pages.groups = {{0, "sliding_window", 128}, {2, "sliding_window", 128}};
  x.take(x.ns, complete(pages));
  x.published();
  CHECK(x.live.last == strings{"BlockStored", "BlockStored"});
  REQUIRE(x.live.blocks.size() == 6);
  for (const std::int64_t group : {0, 2}) {
    const auto& block = x.live.blocks.at({"CPU", group, 1001});
    CHECK(block.parent == 1000U);
    CHECK(block.kind == "sliding_window");
    CHECK(block.window == 128);
  }
  x.remove({1});
  x.published();
  CHECK(x.live.last == strings{"BlockRemoved", "BlockRemoved"});
  CHECK(x.live.blocks.size() == 4);
  CHECK(x.live.unknown == 0);
}

TEST_CASE("events hub: events as arrays say the same as events as maps", "[events]") {
  events::hub_options how;
  how.form = events::event_form::array;
  one_hub arrays(how);
  one_hub maps;
  for (auto* const x : {&arrays, &maps}) {
    auto all = described(0, 4, 3);
    all.groups = {{0, "sliding_window", 128}, {2}};
    all.lora = "adapter";
    lmcache::protocol::msgpack_writer extra;
    extra.array(3).nil().array(1).text("salt").nil();
    all.extra = extra.take();
    const auto length = static_cast<std::uint32_t>(all.extra.size());
    all.extra_ends.items = {0, length, length, length};
    REQUIRE_FALSE(events::fault_of(all));
    x->take(x->ns, complete(all));
    x->take(x->ns, complete(described(9, 2), false));
    x->remove({1});
    x->published();
  }
  CHECK(arrays.live.blocks.size() == maps.live.blocks.size());
  REQUIRE(maps.live.blocks.size() == 20);
  for (const auto& [name, block] : maps.live.blocks) {
    const auto& same = arrays.live.blocks.at(name);
    CHECK(std::tie(same.parent, same.tokens, same.lora, same.extra, same.kind, same.window) ==
          std::tie(block.parent, block.tokens, block.lora, block.extra, block.kind, block.window));
  }
  CHECK(arrays.live.unknown + arrays.live.repeated == 0);
  CHECK(arrays.live.last == maps.live.last);
}

TEST_CASE("events hub: groups with the same hashes do not come between the pages of a chain", "[events]") {
  one_hub x;
  const auto first = x.ns;
  const auto second = x.serve("m", "of the second group");
  x.ns = first;
  x.published();
  auto full = described(0, 3);
  full.groups = {{1, "full_attention"}};
  auto window = described(1, 2);
  window.groups = {{0, "sliding_window", 8}};
  // Of the same time, the window's first.
  x.take(second, complete(window));
  x.take(first, complete(full));
  x.published();
  CHECK(x.live.last == strings{"BlockStored", "BlockStored"});
  REQUIRE(x.live.blocks.size() == 5);
  CHECK(x.live.blocks.at({"CPU", 1, 1002}).parent == 1001U);
  CHECK(x.live.blocks.at({"CPU", 0, 1001}).parent == 1000U);
  x.remove({1});
  x.published();
  // The other group has it still.
  CHECK(x.live.blocks.contains({"CPU", 0, 1001}));
  CHECK_FALSE(x.live.blocks.contains({"CPU", 1, 1001}));
}

TEST_CASE("events hub: pages of two chains do not become one", "[events]") {
  one_hub x;
  x.take(x.ns, complete(described(0, 1)));
  x.take(x.ns, complete(described(5, 2)));
  x.published();
  REQUIRE(x.live.blocks.size() == 3);
  CHECK_FALSE(x.live.blocks.at({"CPU", -1, 1000}).parent);
  CHECK(x.live.blocks.at({"CPU", -1, 1005}).parent == 1004U);
  CHECK(x.live.blocks.at({"CPU", -1, 1006}).parent == 1005U);
}

TEST_CASE("events hub: parents come before their children, whatever shard was faster", "[events]") {
  one_hub x;
  x.published();
  auto all = described(0, 6);
  for (const std::uint32_t i : {5U, 1U, 3U, 0U, 4U, 2U}) {
    auto one = complete(all);
    one.positions = {i};
    one.in_memory = {1};
    x.take(x.ns, std::move(one));
  }
  x.published();
  CHECK(x.live.last == strings{"BlockStored"});
  CHECK(x.live.blocks.at({"CPU", -1, 1005}).parent == 1004U);
}

TEST_CASE("events hub: changes of one page keep their order inside a batch", "[events]") {
  one_hub x;
  x.published();
  x.take(x.ns, complete(described(0, 2)));
  x.remove({0});
  x.take(x.ns, complete(described(0, 1)));
  x.remove({1});
  x.published();
  CHECK(x.live.blocks.size() == 1);
  CHECK(x.live.blocks.contains({"CPU", -1, 1000}));
  x.remove({0});
  x.take(x.ns, complete(described(0, 1)));
  x.remove({0});
  x.published();
  CHECK(x.live.blocks.empty());
  CHECK(x.live.unknown == 0);
}

TEST_CASE("events hub: hashes that name each other in a ring are published all the same", "[events]") {
  one_hub x;
  auto ring = described(1, 2);
  ring.parents.items = {1002, 1001};
  x.take(x.ns, complete(ring));
  x.published();
  CHECK(x.live.blocks.size() == 2);
}

TEST_CASE("events hub: a page that moves is removed in one tier and stored in the other", "[events]") {
  one_hub x;
  x.take(x.ns, complete(described(0, 2)));
  x.published();
  x.take(x.ns, events::keys_moved{{event_key(1), event_key(0), event_key(9)}, {0, 1, 0}});
  x.published();
  CHECK(x.live.blocks.size() == 2);
  CHECK(x.live.blocks.at({"STORAGE", -1, 1001}).tokens.size() == 4);
  CHECK(x.live.blocks.contains({"CPU", -1, 1000}));
  x.remove({1});
  x.published();
  CHECK(x.live.blocks.size() == 1);
  CHECK(x.live.unknown == 0);
}

TEST_CASE("events hub: another hash for a known page is not published", "[events]") {
  one_hub x;
  x.take(x.ns, complete(described(0, 1)));
  auto other = described(0, 1);
  other.hashes[0] = 5;
  x.take(x.ns, complete(other));
  x.published();
  CHECK(x.live.blocks.size() == 1);
  CHECK(x.live.blocks.contains({"CPU", -1, 1000}));
}

TEST_CASE("events hub: without changes, an empty batch is published from time to time", "[events]") {
  events::hub_options how;
  how.heartbeat = 5s;
  one_hub x(how);
  x.published();
  CHECK(x.published(4s).empty());
  CHECK(x.hub.next_due() == x.now + 980ms);
  const auto batch = x.published(1s);
  REQUIRE(batch.size() == 1);
  CHECK(batch[0].batch.number == 101);
  CHECK(x.live.last.empty());
}

TEST_CASE("events hub: missed batches are sent again as they were", "[events]") {
  one_hub x;
  for (std::uint64_t n = 0; n < 5; ++n) {
    x.take(x.ns, complete(described(n, 1)));
    x.published();
  }
  event_view late;
  auto number = std::uint64_t{103};
  for (const auto& reply : x.replay(103)) {
    CHECK(reply.number == number++);
    CHECK(late.apply(*reply.text) == "");
  }
  CHECK(number == 106);
  CHECK(late.blocks.size() == 3);
  CHECK(x.replay(106).empty());
  CHECK(x.hub.replays() == 0);
}

TEST_CASE("events hub: a subscriber that missed more than is kept gets a snapshot and the batches since then",
          "[events]") {
  events::hub_options how;
  how.kept_batches = 4;
  one_hub x(how);
  for (std::uint64_t n = 0; n < 3000; n += 10) {
    x.take(x.ns, complete(described(n, 10)));
    x.published();
  }
  x.remove({5, 2999});
  x.published();
  const auto last = x.published(1h).back().batch.number;
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{102}, last - 10, last + 5000}) {
    event_view late;
    std::uint64_t number = 0;
    const auto replies = x.replay(start);
    for (const auto& reply : replies) {
      if (&reply != &replies.front())
        CHECK(reply.number > number);
      number = reply.number;
      CHECK(late.apply(*reply.text) == "");
    }
    CHECK(number == last);
    CHECK(late.cleared == 1);
    CHECK(late.blocks.size() == 2998);
    if (start < last)
      CHECK(replies.front().number >= start);
  }
}

TEST_CASE("events hub: a snapshot is right while pages change", "[events]") {
  events::hub_options how;
  how.kept_batches = 3;
  one_hub x(how);
  for (std::uint64_t n = 0; n < 4000; n += 100)
    x.take(x.ns, complete(described(n, 100)));
  x.published();
  event_view late;
  REQUIRE(x.hub.request("client", 1, std::nullopt, x.now));
  std::uint64_t removed = 0;
  std::uint64_t number = 0;
  for (bool ended = false; !ended;) {
    const auto reply = x.hub.next_reply(x.now, 1.5);
    REQUIRE(reply.has_value());
    x.hub.sent(x.now);
    ended = reply->end;
    if (ended)
      break;
    CHECK(reply->number > number);
    number = reply->number;
    CHECK(late.apply(*reply->text) == "");
    if (removed < 12) {
      x.remove({removed * 300});
      x.take(x.ns, complete(described(5000 + removed++, 1)));
      x.published();
    }
  }
  // What was published since then comes by the subscription.
  for (const auto& reply : x.replay(number + 1))
    CHECK(late.apply(*reply.text) == "");
  CHECK(late.blocks.size() == 4000);
  CHECK(
      std::ranges::equal(late.blocks, x.live.blocks, [](const auto& a, const auto& b) { return a.first == b.first; }));
}

TEST_CASE("events hub: a snapshot leaves out pages whose tokens are not kept", "[events]") {
  events::hub_options how;
  how.details_max = 200;
  how.kept_batches = 1;
  one_hub x(how);
  x.take(x.ns, complete(described(0, 10)));
  x.published();
  x.published(1h);
  CHECK(x.live.blocks.size() == 10);
  event_view late;
  for (const auto& reply : x.replay(0))
    CHECK(late.apply(*reply.text) == "");
  CHECK(late.blocks.size() == 3);
}

TEST_CASE("events hub: a publisher that did not keep up begins again with nothing", "[events]") {
  one_hub x;
  x.take(x.ns, complete(described(0, 10)));
  x.published();
  x.take(x.ns, complete(described(20, 1)), true);
  x.published();
  CHECK(x.live.cleared == 2);
  CHECK(x.live.blocks.size() == 1);
  x.remove({3});
  x.take(x.ns, complete(described(0, 2)));
  x.published();
  CHECK(x.live.blocks.size() == 3);
}

TEST_CASE("events hub: the feed drops everything but namespaces when it is full", "[events]") {
  events::feed feed(4000);
  int woken = 0;
  feed.wake_with([&] { ++woken; });
  const auto spec = std::make_shared<const namespace_spec>();
  feed.push({{{1, 1}, events::namespace_served{spec}}, {{1, 1}, complete(described(0, 10))}});
  feed.push({{{1, 1}, complete(described(10, 100))}});
  CHECK(woken == 1);
  feed.push({{{1, 1}, events::keys_removed{{event_key(3)}}}});
  const auto taken = feed.take();
  CHECK(taken.overflowed);
  REQUIRE(taken.changes.size() == 2);
  CHECK(std::holds_alternative<events::namespace_served>(taken.changes[0].what));
  CHECK(std::holds_alternative<events::keys_removed>(taken.changes[1].what));
  CHECK_FALSE(feed.take().overflowed);
  feed.push({});
  CHECK(woken == 1);
}

TEST_CASE("events hub: requesters take turns, wait, and are dropped in the end", "[events]") {
  events::hub_options how;
  how.replays_max = 2;
  how.replay_patience = 10s;
  one_hub x(how);
  for (std::uint64_t n = 0; n < 3; ++n) {
    x.take(x.ns, complete(described(n, 1)));
    x.published();
  }
  CHECK(x.hub.request("a", 100, std::nullopt, x.now));
  CHECK(x.hub.request("b", 100, std::nullopt, x.now));
  CHECK_FALSE(x.hub.request("c", 100, std::nullopt, x.now));
  CHECK(x.hub.request("a", 101, std::nullopt, x.now)); // in place of the first
  const auto first = x.hub.next_reply(x.now, 1.5);
  REQUIRE(first);
  x.hub.blocked(x.now);
  const auto second = x.hub.next_reply(x.now, 1.5);
  REQUIRE(second);
  CHECK(first->requester != second->requester);
  x.hub.gone();
  CHECK_FALSE(x.hub.next_reply(x.now, 1.5));
  x.now += events::hub::retry;
  const auto again = x.hub.next_reply(x.now, 1.5);
  REQUIRE(again);
  CHECK(again->requester == first->requester);
  CHECK(again->number == first->number);
  x.hub.blocked(x.now);
  x.now += 10s;
  CHECK_FALSE(x.hub.next_reply(x.now, 1.5));
  CHECK(x.hub.replays() == 0);
}

TEST_CASE("events hub: a request without a topic gets all streams, one with a topic its own", "[events]") {
  one_hub x;
  x.take(x.ns, complete(described(0, 1)));
  const auto other = x.serve("other");
  x.take(other, complete(described(0, 1)));
  x.published();
  CHECK(x.replay(100).size() == 4);
  const auto one = x.replay(100, "kv@n@o");
  REQUIRE(one.size() == 2);
  CHECK(one[0].topic == "kv@n@other");
  CHECK(x.replay(100, "kv@x").empty());
}

TEST_CASE("events hub: descriptions whose arrays do not fit are refused", "[events]") {
  const auto refused = [](auto change) {
    auto x = described(0, 2, 2);
    REQUIRE_FALSE(events::fault_of(x));
    change(x);
    return events::fault_of(x).has_value();
  };
  CHECK(refused([](auto& x) { x.hashes.items.pop_back(); }));
  CHECK(refused([](auto& x) { x.tokens.items.push_back(1); }));
  CHECK(refused([](auto& x) { x.parents.items.clear(); }));
  CHECK(refused([](auto& x) { x.has_parent.items.clear(); }));
  CHECK(refused([](auto& x) { x.keys[1] = {}; }));
  CHECK(refused([](auto& x) { x.keys.items.clear(); }));
  CHECK(refused([](auto& x) { x.blocks_per_page = 0; }));
  CHECK(refused([](auto& x) { x.blocks_per_page = 65; }));
  CHECK(refused([](auto& x) { x.block_tokens = 0; }));
  CHECK(refused([](auto& x) { x.lora.assign(257, 'x'); }));
  CHECK(refused([](auto& x) { x.groups.resize(65); }));
  CHECK(refused([](auto& x) { x.groups = {{0, std::string(33, 'a')}}; }));
  CHECK(refused([](auto& x) { x.groups = {{0}, {1, "Full attention"}}; }));
  CHECK_FALSE(refused([](auto& x) { x.groups = {{0, "full_attention"}, {7, "sliding_window", 4096}, {9}}; }));
  // Extra keys: an array of two values in its shortest form, and nothing else.
  for (const std::string bad :
       {"\x92\x01", "\x92\x01\x02\x03", "\x91\x01", "\xdc\x00\x02\x01\x02", "\x92\xc1\x01", "\x01"})
    CHECK(refused([&](auto& x) {
      x.extra = bad;
      x.extra_ends.items = {static_cast<std::uint32_t>(bad.size()), static_cast<std::uint32_t>(bad.size())};
    }));
  CHECK(refused([](auto& x) { x.extra_ends.items = {1, 0}; }));
  CHECK(refused([](auto& x) { x.extra = "\x92\x01\x02"; }));
  CHECK_FALSE(refused([](auto& x) {
    x.extra = "\x92\x01\x02";
    x.extra_ends.items = {0, 3};
  }));
}

} // namespace troupe::test
