#include "handshake/directory_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/directory_world.hpp"

#include <chrono>
#include <string>
#include <variant>

namespace handshake_directory_test {

using namespace troupe;
using namespace troupe::handshake;
using namespace troupe::handshake::test;
using namespace std::chrono_literals;

namespace {

handshake_fetch_request all_of(std::string engine, bool complete = false, duration wait = {}) {
  handshake_fetch_request x;
  x.engine = std::move(engine);
  x.complete = complete;
  x.wait = wait;
  return x;
}

using world = directory_world;

} // namespace

TEST_CASE("handshake directory: a rank is published and fetched", "[handshake]") {
  world w;
  const auto added = w.publish(rank_of("a", 1));
  CHECK(code(added.code) == errc::ok);
  CHECK(added.added);
  CHECK(added.ranks == 1);
  CHECK_FALSE(added.complete);
  CHECK(added.expires_in == 30s);
  const auto found = w.get(fetch_of("a", 1));
  CHECK(code(found.code) == errc::ok);
  CHECK(found.incarnation == 7);
  CHECK(found.compat == "abc");
  CHECK(found.sizes == handshake_sizes{1, 1, 2});
  REQUIRE(found.entries.size() == 1);
  CHECK(found.entries[0].payload == "payload of 1 in 7");
  CHECK(found.etag == found.entries[0].etag);
  CHECK(found.complete);
}

TEST_CASE("handshake directory: publishing the same payload again is accepted, another payload is not", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  const auto again = w.publish(rank_of("a", 0));
  CHECK(code(again.code) == errc::ok);
  CHECK_FALSE(again.added);
  auto other = rank_of("a", 0);
  other.payload += "!";
  CHECK(w.publish_code(other) == errc::exists);
  other = rank_of("a", 0);
  other.form = handshake_form::json;
  CHECK(w.publish_code(other) == errc::exists);
  other = rank_of("a", 1);
  other.compat = "def";
  CHECK(w.publish_code(other) == errc::exists);
  other = rank_of("a", 1);
  other.sizes.dp = 2;
  CHECK(w.publish_code(other) == errc::exists);
  CHECK(w.get(fetch_of("a", 0)).entries[0].payload == "payload of 0 in 7");
}

TEST_CASE("handshake directory: a later incarnation replaces the earlier one whole", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0, 7));
  w.publish(rank_of("a", 1, 7));
  auto asked = fetch_of("a", 0);
  asked.incarnation = 7;
  CHECK(code(w.get(asked).code) == errc::ok);
  CHECK(w.publish(rank_of("a", 0, 8)).ranks == 1);
  const auto gone = w.get(asked);
  CHECK(code(gone.code) == errc::expired);
  CHECK(gone.incarnation == 8);
  CHECK(gone.entries.empty());
  // Nothing of the old incarnation is left, and nothing of it comes back.
  CHECK(code(w.get(fetch_of("a", 1)).code) == errc::not_found);
  const auto late = w.publish(rank_of("a", 1, 7));
  CHECK(code(late.code) == errc::expired);
  CHECK(late.incarnation == 8);
  CHECK(w.get(all_of("a")).entries.size() == 1);
}

TEST_CASE("handshake directory: another start may have other sizes", "[handshake]") {
  world w;
  w.publish(rank_of("a", 1, 7));
  auto bigger = rank_of("a", 3, 8);
  bigger.sizes.tp = 4;
  CHECK(w.publish_code(bigger) == errc::ok);
  CHECK(w.get(all_of("a")).sizes.tp == 4);
}

TEST_CASE("handshake directory: an engine without heartbeats expires and may come back", "[handshake]") {
  world w;
  auto x = rank_of("a", 0);
  x.ttl = 10s;
  w.publish(x);
  w.pass(9s);
  const auto beat = w.state.heartbeat({"a", 7, {}}, w.now);
  CHECK(code(beat.code) == errc::ok);
  CHECK(beat.expires_in == 10s);
  w.pass(9s);
  CHECK(code(w.get(fetch_of("a", 0)).code) == errc::ok);
  w.pass(1s);
  const auto missing = w.get(fetch_of("a", 0));
  CHECK(code(missing.code) == errc::not_found);
  CHECK(missing.incarnation == 7);
  CHECK(code(w.state.heartbeat({"a", 7, {}}, w.now).code) == errc::not_found);
  CHECK(w.publish_code(rank_of("a", 0, 6)) == errc::expired);
  CHECK(w.publish_code(rank_of("a", 0, 7)) == errc::ok);
  CHECK(w.state.stats().expired == 1);
}

TEST_CASE("handshake directory: times to live are bounded", "[handshake]") {
  directory_options options;
  options.ttl_max = 60s;
  world w(options);
  auto x = rank_of("a", 0);
  x.ttl = 100h;
  CHECK(w.publish(x).expires_in == 60s);
  CHECK(w.state.heartbeat({"a", 0, 5s}, w.now).expires_in == 5s);
  x.ttl = -1s;
  CHECK(w.publish_code(x) == errc::invalid_argument);
  CHECK(code(w.state.heartbeat({"a", 0, -5s}, w.now).code) == errc::invalid_argument);
}

TEST_CASE("handshake directory: a withdrawn incarnation stays withdrawn", "[handshake]") {
  directory_options options;
  options.remember = 100s;
  world w(options);
  w.publish(rank_of("a", 0));
  CHECK(code(w.state.withdraw({"a", 6}, w.now).code) == errc::expired);
  CHECK(code(w.state.withdraw({"a", 8}, w.now).code) == errc::not_found);
  CHECK(code(w.state.withdraw({"a", 7}, w.now).code) == errc::ok);
  CHECK(code(w.state.withdraw({"a", 7}, w.now).code) == errc::ok);
  CHECK(code(w.state.withdraw({"b", 7}, w.now).code) == errc::not_found);
  // A delayed heartbeat arrives.
  CHECK(w.publish_code(rank_of("a", 0, 7)) == errc::expired);
  CHECK(code(w.state.heartbeat({"a", 7, {}}, w.now).code) == errc::expired);
  auto asked = fetch_of("a", 0, 10s);
  asked.incarnation = 7;
  CHECK(code(w.get(asked).code) == errc::expired);
  CHECK(w.state.stats().remembered == 1);
  w.pass(100s);
  CHECK(w.state.stats().remembered == 0);
  CHECK(w.publish_code(rank_of("a", 0, 7)) == errc::ok);
}

TEST_CASE("handshake directory: compatibility hashes are compared before anything is returned", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  auto asked = fetch_of("a", 0);
  asked.compat = "abc";
  CHECK(code(w.get(asked).code) == errc::ok);
  asked.compat = "def";
  const auto refused = w.get(asked);
  CHECK(code(refused.code) == errc::identity_mismatch);
  CHECK(refused.entries.empty());
  CHECK(refused.etag.empty());
  auto waiting = fetch_of("a", 1, 10s);
  waiting.compat = "def";
  CHECK(code(w.get(waiting).code) == errc::identity_mismatch);
  CHECK(w.state.stats().incompatible == 2);
}

TEST_CASE("handshake directory: a fetch waits for its rank", "[handshake]") {
  world w;
  CHECK_FALSE(w.fetch(fetch_of("a", 1, 10s)).has_value());
  w.pass(5s);
  w.publish(rank_of("a", 0));
  CHECK(w.state.take_answers().empty());
  w.publish(rank_of("a", 1));
  CHECK(w.answer().entries.at(0).payload == "payload of 1 in 7");
  CHECK(w.state.stats().waiting == 0);
}

TEST_CASE("handshake directory: every wait ends", "[handshake]") {
  directory_options options;
  options.wait_max = 20s;
  world w(options);
  CHECK_FALSE(w.fetch(fetch_of("a", 1, 1h)).has_value());
  w.publish(rank_of("a", 0));
  w.pass(19s);
  CHECK(w.state.take_answers().empty());
  REQUIRE(w.state.next_deadline().has_value());
  CHECK(*w.state.next_deadline() == w.now + 1s);
  w.pass(1s);
  const auto late = w.answer();
  CHECK(code(late.code) == errc::not_found);
  CHECK(late.text == "rank dp 0, pp 0, tp 1: 0 of 1 published; of the engine 1 of 2");
  CHECK(w.state.stats().waits_timed_out == 1);
}

TEST_CASE("handshake directory: a fetch waits until the topology is complete", "[handshake]") {
  world w;
  w.publish(rank_of("a", 1));
  CHECK(w.get(all_of("a")).entries.size() == 1);
  CHECK(code(w.get(all_of("a", true)).code) == errc::not_found);
  CHECK_FALSE(w.fetch(all_of("a", true, 10s)).has_value());
  w.publish(rank_of("a", 0));
  const auto whole = w.answer();
  REQUIRE(whole.entries.size() == 2);
  CHECK(whole.complete);
  CHECK(whole.entries[0].rank < whole.entries[1].rank);
}

TEST_CASE("handshake directory: a row has the ranks of one dp rank", "[handshake]") {
  world w;
  for (std::uint32_t dp = 0; dp < 2; ++dp)
    for (std::uint32_t tp = 0; tp < 2; ++tp) {
      auto x = rank_of("a", tp);
      x.sizes.dp = 2;
      x.rank.dp = dp;
      w.publish(x);
    }
  auto row = all_of("a", true);
  row.scope = handshake_scope::row;
  row.rank.dp = 1;
  const auto found = w.get(row);
  REQUIRE(found.entries.size() == 2);
  CHECK(found.entries[0].rank == handshake_rank{1, 0, 0});
  row.rank.dp = 2;
  row.wait = 10s;
  CHECK(code(w.get(row).code) == errc::not_found);
}

TEST_CASE("handshake directory: a rank of another size gets the ranks that it transfers with and waits for no others",
          "[handshake]") {
  world w;
  const auto publish = [&](std::uint32_t pp, std::uint32_t tp) {
    auto x = rank_of("a", tp);
    x.rank.pp = pp;
    x.sizes = {1, 2, 4};
    CHECK(w.publish_code(x) == errc::ok);
  };
  const auto peers_of = [](std::uint32_t own, std::uint32_t size, duration wait = {}) {
    auto x = all_of("a", true, wait);
    x.scope = handshake_scope::peers;
    x.rank.tp = own;
    x.own_tp_size = size;
    return x;
  };
  const auto ranks_of = [](const handshake_fetch_reply& x) {
    CHECK(x.code == 0);
    CHECK(x.complete);
    std::vector<handshake_rank> out;
    for (const auto& entry : x.entries)
      out.push_back(entry.rank);
    return out;
  };
  CHECK_FALSE(w.fetch(peers_of(1, 2, 10s)).has_value());
  for (const std::uint32_t tp : {0U, 2U, 3U})
    publish(0, tp);
  publish(1, 2);
  CHECK(w.state.take_answers().empty());
  const auto missing = w.get(peers_of(1, 2));
  CHECK(code(missing.code) == errc::not_found);
  CHECK(missing.text == "ranks of dp rank 0 that tp rank 1 of 2 meets: 3 of 4 published; of the engine 4 of 8");
  publish(1, 3);
  CHECK(ranks_of(w.answer()) == std::vector<handshake_rank>{{0, 0, 2}, {0, 0, 3}, {0, 1, 2}, {0, 1, 3}});
  CHECK(ranks_of(w.get(peers_of(5, 8))) == std::vector<handshake_rank>{{0, 0, 2}, {0, 1, 2}});
  // The tag is that of these ranks.
  auto same = peers_of(1, 2);
  same.etag = w.get(same).etag;
  publish(1, 0);
  CHECK(w.get(same).not_modified);
  CHECK(code(w.get(peers_of(0, 3)).code) == errc::invalid_argument);
  CHECK(code(w.get(peers_of(2, 2, 10s)).code) == errc::invalid_argument);
  CHECK(code(w.get(peers_of(0, 0, 10s)).code) == errc::invalid_argument);
  CHECK(w.state.stats().refused_malformed == 3);
  auto elsewhere = peers_of(0, 2);
  elsewhere.rank.dp = 1;
  CHECK(code(w.get(elsewhere).code) == errc::not_found);
}

TEST_CASE("handshake directory: a request that waits for a replaced incarnation is answered at once", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0, 7));
  auto asked = fetch_of("a", 1, 10s);
  asked.incarnation = 7;
  CHECK_FALSE(w.fetch(asked).has_value());
  w.publish(rank_of("a", 0, 8));
  const auto gone = w.answer();
  CHECK(code(gone.code) == errc::expired);
  CHECK(gone.incarnation == 8);
  asked.incarnation = 9;
  CHECK_FALSE(w.fetch(asked).has_value());
  w.publish(rank_of("a", 1, 9));
  CHECK(w.answer().incarnation == 9);
}

TEST_CASE("handshake directory: an unchanged result is not sent again", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  auto asked = fetch_of("a", 0);
  asked.etag = w.get(asked).etag;
  auto same = w.get(asked);
  CHECK(same.not_modified);
  CHECK(same.entries.empty());
  // With a wait, the answer comes on a change.
  asked.wait = 10s;
  CHECK_FALSE(w.fetch(asked).has_value());
  w.publish(rank_of("a", 0, 8));
  CHECK(w.answer().entries.at(0).payload == "payload of 0 in 8");
  asked.etag = w.get(fetch_of("a", 0)).etag;
  CHECK_FALSE(w.fetch(asked).has_value());
  w.pass(10s);
  same = w.answer();
  CHECK(same.not_modified);
  // All ranks have a tag of their own, which changes with each.
  const auto before = w.get(all_of("a")).etag;
  w.publish(rank_of("a", 1, 8));
  CHECK(w.get(all_of("a")).etag != before);
}

TEST_CASE("handshake directory: every quantity has a limit", "[handshake]") {
  directory_options options;
  options.payload_bytes_max = 100;
  options.ranks_max = 4;
  options.engines_max = 2;
  options.bytes_max = 120;
  options.waiting_max = 1;
  options.remembered_max = 2;
  world w(options);
  auto x = rank_of("a", 0);
  x.payload.assign(101, 'x');
  CHECK(w.publish_code(x) == errc::invalid_argument);
  x.payload.assign(100, 'x');
  CHECK(w.publish_code(x) == errc::ok);
  x.rank.tp = 1;
  CHECK(w.publish_code(x) == errc::limit_exceeded);
  // A replaced entry makes room.
  x.incarnation = 8;
  CHECK(w.publish_code(x) == errc::ok);
  x.sizes.tp = 5;
  x.incarnation = 9;
  CHECK(w.publish_code(x) == errc::invalid_argument);
  auto small = rank_of("b", 0);
  small.payload = "x";
  CHECK(w.publish_code(small) == errc::ok);
  small.engine = "c";
  CHECK(w.publish_code(small) == errc::limit_exceeded);
  CHECK_FALSE(w.fetch(fetch_of("d", 0, 10s)).has_value());
  CHECK(code(w.get(fetch_of("d", 0, 10s)).code) == errc::limit_exceeded);
  CHECK(code(w.get(fetch_of("d", 0)).code) == errc::not_found);
  for (const auto* name : {"a", "b", "c"}) {
    small.engine = name;
    small.incarnation = 20;
    w.publish(small);
    w.state.withdraw({name, 0}, w.now);
  }
  CHECK(w.state.stats().remembered == 2);
  CHECK(w.state.stats().refused_bytes == 1);
  CHECK(w.state.stats().refused_engines == 1);
  CHECK(w.state.stats().refused_waiting == 1);
}

TEST_CASE("handshake directory: invalid names and numbers are refused", "[handshake]") {
  world w;
  const auto refused = [&](auto change) {
    auto x = rank_of("a", 0);
    change(x);
    return w.publish_code(x) == errc::invalid_argument;
  };
  CHECK(refused([](auto& x) { x.engine = ""; }));
  CHECK(refused([](auto& x) { x.engine = std::string(129, 'x'); }));
  CHECK(refused([](auto& x) { x.engine = "a b"; }));
  CHECK(refused([](auto& x) { x.engine = "a/b"; }));
  CHECK(refused([](auto& x) { x.engine = std::string("a\0b", 3); }));
  CHECK(refused([](auto& x) { x.compat = std::string(257, 'x'); }));
  CHECK(refused([](auto& x) { x.compat = "a\nb"; }));
  CHECK(refused([](auto& x) { x.incarnation = 0; }));
  CHECK(refused([](auto& x) { x.sizes.pp = 0; }));
  CHECK(refused([](auto& x) { x.sizes.pp = 0xffffffff; }));
  CHECK(refused([](auto& x) { x.rank.tp = 2; }));
  CHECK(w.state.stats().refused_malformed == 11);
  CHECK(w.state.stats().engines == 0);
}

TEST_CASE("handshake directory: waiting requests are answered when it stops", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  CHECK_FALSE(w.fetch(fetch_of("a", 1, 10s)).has_value());
  w.state.stop_waiting({errc::shutting_down, "stopping"});
  CHECK(code(w.answer().code) == errc::shutting_down);
  CHECK(code(w.get(fetch_of("a", 1, 10s)).code) == errc::shutting_down);
  CHECK(code(w.get(fetch_of("a", 0, 10s)).code) == errc::ok);
}

TEST_CASE("handshake directory: a cancelled request is not answered", "[handshake]") {
  world w;
  CHECK_FALSE(w.fetch(fetch_of("a", 0, 10s)).has_value());
  w.state.cancel(w.last);
  w.state.cancel(w.last);
  w.publish(rank_of("a", 0));
  w.pass(20s);
  CHECK(w.state.take_answers().empty());
}

TEST_CASE("handshake directory: engines are listed", "[handshake]") {
  world w;
  w.publish(rank_of("b", 0));
  w.publish(rank_of("a", 0));
  w.publish(rank_of("a", 1));
  const auto all = w.state.list({}, w.now).engines;
  REQUIRE(all.size() == 2);
  CHECK(all[0].engine == "a");
  CHECK(all[0].complete);
  CHECK(all[0].payload_bytes == 34);
  CHECK_FALSE(all[1].complete);
  CHECK(w.state.list({"b"}, w.now).engines.size() == 1);
  CHECK(w.state.list({"c"}, w.now).engines.empty());
}

TEST_CASE("handshake directory: a watcher receives the present state and later changes", "[handshake]") {
  world w;
  w.publish(rank_of("a", 0));
  REQUIRE(w.state.watch("", 1, w.now).has_value());
  auto news = w.state.take_updates(w.now);
  REQUIRE(news.notified.size() == 1);
  CHECK(news.notified[0].second.changes.at(0).now.entries.size() == 1);
  // Nothing more before it has seen that; then the latest of all that has changed.
  w.publish(rank_of("a", 1));
  w.publish(rank_of("a", 0, 8));
  w.publish(rank_of("b", 0));
  w.state.withdraw({"b", 0}, w.now);
  CHECK(w.state.take_updates(w.now).notified.empty());
  w.state.seen(1);
  news = w.state.take_updates(w.now);
  REQUIRE(news.notified.size() == 1);
  const auto& changes = news.notified[0].second.changes;
  REQUIRE(changes.size() == 2);
  CHECK(changes[0].now.incarnation == 8);
  CHECK(changes[0].now.entries.size() == 1);
  CHECK(code(changes[1].now.code) == errc::not_found);
  w.state.seen(1);
  CHECK(w.state.take_updates(w.now).notified.empty());
}

TEST_CASE("handshake directory: a watcher of one engine receives no other, and is dropped when it is too slow",
          "[handshake]") {
  directory_options options;
  options.watches_max = 1;
  options.watch_patience = 10s;
  world w(options);
  REQUIRE(w.state.watch("a", 1, w.now).has_value());
  CHECK_FALSE(w.state.watch("a", 2, w.now).has_value());
  CHECK(code(w.state.take_updates(w.now).notified.at(0).second.changes.at(0).now.code) == errc::not_found);
  w.state.seen(1);
  w.publish(rank_of("b", 0));
  CHECK(w.state.take_updates(w.now).notified.empty());
  w.publish(rank_of("a", 0));
  CHECK(w.state.take_updates(w.now).notified.size() == 1);
  w.pass(10s);
  CHECK(w.state.take_updates(w.now).dropped == std::vector<directory_state::number>{1});
  CHECK(w.state.stats().watches == 0);
}

TEST_CASE("handshake directory: a large update is sent in parts", "[handshake]") {
  directory_options options;
  options.update_bytes = 20;
  world w(options);
  for (const auto* name : {"a", "b", "c"})
    w.publish(rank_of(name, 0));
  REQUIRE(w.state.watch("", 1, w.now).has_value());
  std::size_t notified = 0;
  for (int i = 0; i < 2; ++i) {
    for (const auto& [who, update] : w.state.take_updates(w.now).notified)
      notified += update.changes.size();
    w.state.seen(1);
  }
  CHECK(notified == 3);
}

TEST_CASE("handshake directory: another directory continues from the recorded changes", "[handshake]") {
  world first;
  first.publish(rank_of("a", 0));
  first.publish(rank_of("a", 1));
  first.publish(rank_of("b", 0));
  first.state.withdraw({"b", 0}, first.now);
  auto short_lived = rank_of("c", 0);
  short_lived.ttl = 1s;
  first.publish(short_lived);
  const auto changes = first.state.take_changes();

  world second;
  second.now = first.now + 5s;
  std::map<std::string, engine_noted> engines;
  std::vector<rank_noted> ranks;
  for (const auto& x : changes) {
    if (const auto* engine = std::get_if<engine_noted>(&x))
      engines[engine->engine] = *engine;
    else if (const auto* rank = std::get_if<rank_noted>(&x))
      ranks.push_back(*rank);
    else
      std::erase_if(ranks, [&](const auto& y) { return y.engine == std::get<engine_erased>(x).engine; });
  }
  for (const auto& [name, x] : engines)
    second.state.restore(x, second.now);
  for (const auto& x : ranks)
    second.state.restore(x, second.now);
  const auto found = second.get(all_of("a", true));
  CHECK(found.entries.size() == 2);
  CHECK(found.expires_in == 25s);
  CHECK(found.etag == first.get(all_of("a")).etag);
  CHECK(second.publish_code(rank_of("b", 0)) == errc::expired);
  CHECK(code(second.get(fetch_of("c", 0)).code) == errc::not_found);
  CHECK(second.publish_code(rank_of("c", 0, 6)) == errc::expired);
  // Its remains in the store are erased.
  CHECK(second.state.take_changes().size() >= 2);
}

TEST_CASE("handshake directory: no engine outlives its time to live after the clock was set back", "[handshake]") {
  using seconds = std::chrono::seconds;
  struct example {
    seconds ttl;
    seconds noted;
    seconds wanted;
  };
  for (const auto& [ttl, noted, wanted] :
       {example{10s, 1h, 10s}, example{10s, 4s, 4s}, example{100h, 7200h, 1h}, example{0s, 7200h, 1h}}) {
    world w;
    INFO("ttl " << ttl.count() << " s, deadline in " << noted.count() << " s");
    engine_noted x{"a", 7, {1, 1, 2}, {}, ttl, ending::none, w.now + noted};
    w.state.restore(x, w.now);
    const auto listed = w.state.list({}, w.now).engines;
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].expires_in == wanted);
  }
}

} // namespace handshake_directory_test
