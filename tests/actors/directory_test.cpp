#include "actors/node/directory/answer_bounds.hpp"
#include "actors/node/directory/directory.hpp"
#include "actors/node/reception/directory_proxy.hpp"
#include "tests/actors/sim.hpp"
#include "tests/unit/record_store.hpp"

#include <chrono>

namespace directory_test {

using namespace troupe;
using namespace troupe::test;
using std::chrono::seconds;

namespace {

errc code(std::uint8_t x) {
  return static_cast<errc>(x);
}

handshake_publish_request rank_of(std::string engine, std::uint32_t tp, incarnation_number incarnation = 7) {
  handshake_publish_request x;
  x.engine = std::move(engine);
  x.rank.tp = tp;
  x.sizes.tp = 2;
  x.incarnation = incarnation;
  x.compat = "abc";
  x.ttl = seconds(10);
  x.payload = "payload " + std::to_string(tp);
  return x;
}

handshake_fetch_request fetch_of(std::string engine, duration wait = {}) {
  handshake_fetch_request x;
  x.engine = std::move(engine);
  x.complete = true;
  x.wait = wait;
  return x;
}

/// A store that answers when the test calls `write`.
class slow_store final : public store::metadata_store {
public:
  const store::node_identity& identity() const noexcept override { return behind.identity(); }
  result<void> commit(store::write_batch&& batch, store::commit_callback done) override {
    if (is_full)
      return fail(errc::limit_exceeded, "full");
    waiting.emplace_back(std::move(batch), std::move(done));
    return {};
  }
  result<store::load_summary> load(store::load_visitor& visitor, unsigned threads) override {
    return behind.load(visitor, threads);
  }
  result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const store::description_record>)>& take) override {
    return behind.load_descriptions(take);
  }
  result<void> close() override { return {}; }
  store::store_stats stats() const override { return {}; }

  void write(const result<void>& outcome = {}) {
    for (auto& [batch, done] : std::exchange(waiting, {})) {
      if (outcome)
        CHECK(behind.commit(std::move(batch), [](const result<void>&) {}).has_value());
      done(outcome);
    }
  }

  record_store behind;
  std::vector<std::pair<store::write_batch, store::commit_callback>> waiting;
  bool is_full = false;
};

/// The handshakes that a node restores at its start.
restored_handshakes restored_from(store::metadata_store& from) {
  struct visitor final : store::load_visitor {
    result<void> on_namespace(const store::namespace_record&) override { return {}; }
    result<void> on_rank(const store::rank_record&) override { return {}; }
    result<void> on_pages(std::span<const store::page_record>) override { return {}; }
    result<void> on_handshake(const store::handshake_engine_record& x) override {
      found.engines.push_back(x);
      return {};
    }
    result<void> on_handshake(const store::handshake_rank_record& x) override {
      found.ranks.push_back(x);
      return {};
    }
    restored_handshakes found;
  } all;
  CHECK(from.load(all, 1).has_value());
  return all.found;
}

} // namespace

TEST_CASE("directory: a fetch is answered when its ranks have been published", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto waiting = w.begin(it, fetch_of("a", seconds(20)));
  CHECK(code(w.ask(it, rank_of("a", 0)).value<handshake_reply>().code) == errc::ok);
  CHECK_FALSE(w.client().answer_to(waiting).came);
  CHECK(w.ask(it, rank_of("a", 1)).value<handshake_reply>().complete);
  const auto answered = w.client().answer_to(waiting);
  CHECK(answered.value<handshake_fetch_reply>().entries.size() == 2);
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().waits == 1);
}

TEST_CASE("directory: entries and waits expire without any request", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto waiting = w.begin(it, fetch_of("a", seconds(20)));
  w.ask(it, rank_of("a", 0));
  w.advance(seconds(12));
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().expired == 1);
  w.advance(seconds(9));
  CHECK(code(w.client().answer_to(waiting).value<handshake_fetch_reply>().code) == errc::not_found);
}

TEST_CASE("directory: the waits of a requester that died are removed, also through the listener", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto proxy = w.spawn<directory_proxy>(it, caf::actor_addr{});
  const auto waiting = [&] { return w.ask(it, stats_atom_v).value<handshake_stats>().waiting; };
  for (const auto& way : {caf::actor_cast<caf::strong_actor_ptr>(it), caf::actor_cast<caf::strong_actor_ptr>(proxy)}) {
    probe asker(w.system());
    const auto first = asker.request(way, caf::make_message(fetch_of("a", seconds(20))));
    asker.request(way, caf::make_message(fetch_of("b", seconds(20))));
    const auto other = w.begin(it, fetch_of("b", seconds(20)));
    CHECK(waiting() == 3);
    // One of two has its answer.
    w.ask(it, rank_of("a", 0));
    w.ask(it, rank_of("a", 1));
    CHECK(asker.answer_to(first).came);
    CHECK(waiting() == 2);
    asker.die();
    w.run();
    CHECK(waiting() == 1);
    w.advance(seconds(21));
    CHECK(w.client().answer_to(other).came);
    CHECK(waiting() == 0);
    w.ask(it, handshake_withdraw_request{"a", 0});
  }
  // Without a sender there is no reply, and so no waiting request.
  caf::anon_send(it, fetch_of("c", seconds(20)));
  caf::anon_send(caf::actor_cast<caf::actor>(proxy), fetch_of("c", seconds(20)));
  w.run();
  CHECK(waiting() == 0);
}

TEST_CASE("directory: a client that watches and waits is monitored until both have ended", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto stats = [&] { return w.ask(it, stats_atom_v).value<handshake_stats>(); };
  const auto both = [&](probe& who) {
    const auto number =
        w.ask(it, watch_atom_v, std::string("x"), who.as<handshake_watcher_actor>()).value<std::uint64_t>();
    who.request(caf::actor_cast<caf::strong_actor_ptr>(it), caf::make_message(fetch_of("a", seconds(20))));
    CHECK(stats().watches == 1);
    CHECK(stats().waiting == 1);
    return number;
  };
  probe first(w.system());
  both(first);
  w.advance(seconds(21));
  CHECK(stats().waiting == 0);
  first.die();
  w.run();
  CHECK(stats().watches == 0);
  probe second(w.system());
  w.ask(it, caf::leave_atom_v, both(second));
  second.die();
  w.run();
  CHECK(stats().waiting == 0);
}

TEST_CASE("directory: waiting requests are answered when it shuts down", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto waiting = w.begin(it, fetch_of("a", seconds(20)));
  CHECK(w.ask(it, drain_atom_v).code() == errc::ok);
  CHECK(code(w.client().answer_to(waiting).value<handshake_fetch_reply>().code) == errc::shutting_down);
  // Requests that wait when the actor itself ends get the same error.
  const auto other = w.spawn<directory>(handshake::directory_options{});
  const auto late = w.begin(other, fetch_of("a", seconds(20)));
  w.end(other);
  CHECK(w.client().answer_to(late).code() == errc::shutting_down);
}

TEST_CASE("directory: a change is answered when it is durable", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
  const auto first = w.begin(it, rank_of("a", 0));
  const auto second = w.begin(it, rank_of("a", 1));
  CHECK_FALSE(w.client().answer_to(first).came);
  disk->write();
  w.run();
  CHECK(w.client().answer_to(first).came);
  CHECK_FALSE(w.client().answer_to(second).came);
  disk->write();
  w.run();
  CHECK(w.client().answer_to(second).came);
  // A refused request changes nothing.
  CHECK(code(w.ask(it, rank_of("a", 1, 6)).value<handshake_reply>().code) == errc::expired);
  // A store that takes nothing for a moment is asked again.
  disk->is_full = true;
  const auto beat = w.begin(it, handshake_heartbeat_request{"a", 7, {}});
  disk->is_full = false;
  w.advance(seconds(1));
  disk->write();
  w.run();
  CHECK(w.client().answer_to(beat).came);
}

TEST_CASE("directory: readers of a changed engine wait until the change is durable, others do not", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
  probe watcher(w.system());
  w.ask(it, watch_atom_v, std::string(), watcher.as<handshake_watcher_actor>());
  auto rank = rank_of("a", 0);
  rank.sizes.tp = 1;
  const auto change = w.begin(it, rank);
  const auto read = w.begin(it, fetch_of("a"));
  const auto waiting = w.begin(it, fetch_of("a", seconds(20)));
  CHECK(code(w.ask(it, fetch_of("b")).value<handshake_fetch_reply>().code) == errc::not_found);
  for (const auto x : {change, read, waiting})
    CHECK_FALSE(w.client().answer_to(x).came);
  CHECK(watcher.take<handshake_update>().empty());
  disk->write();
  w.run();
  CHECK(w.client().answer_to(change).came);
  for (const auto x : {read, waiting})
    CHECK(w.client().answer_to(x).value<handshake_fetch_reply>().entries.size() == 1);
  CHECK(watcher.take<handshake_update>().size() == 1);
}

TEST_CASE("directory: a change that is refused because of the disk has no effect", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  handshake::directory_options options;
  options.changes_waiting_max = 1;
  const auto it = w.spawn<directory>(options, disk);
  const auto first = w.begin(it, rank_of("a", 0));
  CHECK(code(w.ask(it, rank_of("a", 0, 8)).value<handshake_reply>().code) == errc::limit_exceeded);
  CHECK(code(w.ask(it, handshake_withdraw_request{"a", 7}).value<handshake_reply>().code) == errc::limit_exceeded);
  CHECK(code(w.ask(it, handshake_heartbeat_request{"a", 7, seconds(100)}).value<handshake_reply>().code) ==
        errc::limit_exceeded);
  disk->write();
  w.run();
  CHECK(w.client().answer_to(first).value<handshake_reply>().incarnation == 7);
  CHECK(disk->waiting.empty());
  const auto list = w.ask(it, handshake_list_request{"a"}).value<handshake_list_reply>();
  CHECK(list.engines.at(0).incarnation == 7);
  CHECK(list.engines.at(0).expires_in <= seconds(10));
}

TEST_CASE("directory: a repeated watch request returns the existing watch", "[directory]") {
  sim w;
  handshake::directory_options options;
  options.watch_patience = seconds(5);
  const auto it = w.spawn<directory>(options);
  probe watcher(w.system());
  const auto watch = [&](const std::string& engine) {
    return w.ask(it, watch_atom_v, engine, watcher.as<handshake_watcher_actor>()).value<std::uint64_t>();
  };
  const auto first = watch("");
  CHECK(watch("") == first);
  CHECK(watch("a") != first);
  w.ask(it, rank_of("b", 0));
  w.advance(seconds(6));
  // The watcher was too slow: its watch has ended, the reply says so, and it may watch again.
  CHECK(w.ask(it, handshake_seen_request{first}).code() == errc::not_found);
  const auto second = watch("");
  CHECK(second != first);
  CHECK(w.ask(it, handshake_seen_request{second}).code() == errc::ok);
  watcher.die();
  w.run();
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().watches == 0);
}

TEST_CASE("directory: a restarted directory continues with the durable entries and their deadlines", "[directory]") {
  sim w;
  const auto disk = std::make_shared<record_store>();
  {
    const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
    w.ask(it, rank_of("a", 0));
    w.ask(it, rank_of("a", 1));
    w.ask(it, rank_of("b", 0));
    w.ask(it, rank_of("b", 0, 8));
    w.ask(it, rank_of("c", 0));
    CHECK(code(w.ask(it, handshake_withdraw_request{"c", 7}).value<handshake_reply>().code) == errc::ok);
    w.end(it);
  }
  const auto found = restored_from(*disk);
  CHECK(found.engines.size() == 3);
  CHECK(found.ranks.size() == 3);
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk, found);
  const auto a = w.ask(it, fetch_of("a")).value<handshake_fetch_reply>();
  CHECK(a.entries.size() == 2);
  CHECK(a.entries.at(1).payload == "payload 1");
  CHECK(a.expires_in <= seconds(10));
  CHECK(w.ask(it, handshake_list_request{"b"}).value<handshake_list_reply>().engines.at(0).incarnation == 8);
  CHECK(code(w.ask(it, rank_of("c", 0)).value<handshake_reply>().code) == errc::expired);
  w.advance(seconds(11));
  CHECK(w.ask(it, handshake_list_request{}).value<handshake_list_reply>().engines.empty());
  w.end(it);
  CHECK(restored_from(*disk).ranks.empty());
}

TEST_CASE("directory: restored entries that may be outdated are discarded", "[directory]") {
  sim w;
  const auto disk = std::make_shared<record_store>();
  const auto before = w.spawn<directory>(handshake::directory_options{}, disk);
  w.ask(before, rank_of("a", 0));
  w.end(before);
  auto found = restored_from(*disk);
  found.believed = false;
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk, found);
  CHECK(w.ask(it, handshake_list_request{}).value<handshake_list_reply>().engines.empty());
  w.end(it);
  CHECK(restored_from(*disk).engines.empty());
}

TEST_CASE("directory: a store failure ends it", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
  const auto asked = w.begin(it, rank_of("a", 0));
  disk->write(fail(errc::io_error, "the disk is lost"));
  w.run();
  CHECK(w.client().answer_to(asked).code() == errc::io_error);
}

TEST_CASE("directory: a watcher receives changes, one update at a time", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto proxy = w.spawn<directory_proxy>(it, caf::actor_addr{});
  w.ask(it, rank_of("a", 0));
  probe watcher(w.system());
  const auto watch = w.ask(proxy, watch_atom_v, std::string("a"), watcher.as<handshake_watcher_actor>());
  const auto number = watch.value<std::uint64_t>();
  auto notified = watcher.take_one<handshake_update>();
  // The directory's own handle does not leave the process with it.
  CHECK_FALSE(notified.sender);
  CHECK(notified.get<handshake_update>(0).watch == number);
  CHECK(notified.get<handshake_update>(0).changes.at(0).now.entries.size() == 1);
  w.ask(proxy, rank_of("a", 1));
  w.ask(proxy, rank_of("b", 1));
  CHECK(watcher.take<handshake_update>().empty());
  CHECK(w.ask(proxy, handshake_seen_request{number}).code() == errc::ok);
  notified = watcher.take_one<handshake_update>();
  CHECK(notified.get<handshake_update>(0).changes.at(0).now.complete);
  CHECK(w.ask(proxy, handshake_seen_request{number}).code() == errc::ok);
  CHECK(watcher.take<handshake_update>().empty());
  CHECK(w.ask(proxy, caf::leave_atom_v, number).code() == errc::ok);
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().watches == 0);
}

TEST_CASE("directory: a watch ends with its watcher", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  probe watcher(w.system());
  w.ask(it, watch_atom_v, std::string(), watcher.as<handshake_watcher_actor>());
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().watches == 1);
  watcher.die();
  w.run();
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().watches == 0);
  CHECK(w.ask(it, watch_atom_v, std::string(), handshake_watcher_actor{}).code() == errc::invalid_argument);
}

TEST_CASE("directory: lists and heartbeat replies show durable state only", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
  const auto listed = [&] { return w.ask(it, handshake_list_request{}).value<handshake_list_reply>().engines; };
  const auto written = [&] {
    disk->write();
    w.run();
  };
  w.begin(it, rank_of("a", 0));
  CHECK(listed().empty());
  written();
  CHECK(listed().size() == 1);
  w.begin(it, rank_of("a", 0, 8));
  CHECK(listed().at(0).incarnation == 7);
  written();
  CHECK(listed().at(0).incarnation == 8);
  // Time that passed while the disk was slow is subtracted from the time to live.
  const auto beat = w.begin(it, handshake_heartbeat_request{"a", 8, seconds(30)});
  w.advance(seconds(4));
  CHECK(listed().at(0).expires_in <= seconds(6));
  written();
  CHECK(w.client().answer_to(beat).value<handshake_reply>().expires_in <= seconds(26));
  CHECK(listed().at(0).expires_in > seconds(20));
}

TEST_CASE("directory: requests that wait for a hung disk time out", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  handshake::directory_options options;
  options.changes_waiting_max = 1;
  const auto it = w.spawn<directory>(options, disk);
  w.begin(it, rank_of("a", 0));
  const auto read = w.begin(it, fetch_of("a"));
  const auto waiting = w.begin(it, fetch_of("a", seconds(3)));
  CHECK(code(w.ask(it, rank_of("a", 1)).value<handshake_reply>().code) == errc::limit_exceeded);
  w.advance(seconds(14));
  for (const auto x : {read, waiting})
    CHECK(code(w.client().answer_to(x).value<handshake_fetch_reply>().code) == errc::limit_exceeded);
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().refused_disk == 3);
}

TEST_CASE("directory: changes that wait for a slow disk are bounded in bytes", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  handshake::directory_options options;
  options.payload_bytes_max = std::uint64_t{8} << 20U;
  const auto it = w.spawn<directory>(options, disk);
  // Each start takes the place of the one before, so the directory itself never has more than one payload.
  std::size_t refused = 0;
  for (incarnation_number start = 1; start <= 20; ++start) {
    auto x = rank_of("a", 0, start);
    x.payload.assign(std::size_t{8} << 20U, 'x');
    const auto answered = w.client().answer_to(w.begin(it, std::move(x)));
    refused += answered.came && code(answered.value<handshake_reply>().code) == errc::limit_exceeded ? 1 : 0;
  }
  // One is at the store, and three wait.
  CHECK(refused == 16);
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().refused_disk == refused);
  disk->write();
  w.run();
  CHECK_FALSE(w.client().answer_to(w.begin(it, rank_of("a", 0, 21))).came);
}

TEST_CASE("directory: a payload marked as JSON is validated, also through the listener", "[directory]") {
  sim w;
  const auto it = w.spawn<directory>(handshake::directory_options{});
  const auto proxy = w.spawn<directory_proxy>(it, caf::actor_addr{});
  const auto publish = [&](std::string payload, handshake_form form) {
    auto x = rank_of("a", 0);
    x.payload = std::move(payload);
    x.form = form;
    return code(w.ask(proxy, std::move(x)).value<handshake_reply>().code);
  };
  // Readers get it as a part of a larger text.
  CHECK(publish("", handshake_form::json) == errc::invalid_argument);
  CHECK(publish("1},\"1\":{\"payload\":2", handshake_form::json) == errc::invalid_argument);
  CHECK(publish("{}", static_cast<handshake_form>(2)) == errc::invalid_argument);
  CHECK(w.ask(it, stats_atom_v).value<handshake_stats>().ranks == 0);
  CHECK(publish("{\"blocks\": 18446744073709551615}", handshake_form::json) == errc::ok);
}

TEST_CASE("directory: ticks do not accumulate", "[directory]") {
  sim w;
  const auto disk = std::make_shared<slow_store>();
  const auto it = w.spawn<directory>(handshake::directory_options{}, disk);
  auto lives_long = rank_of("a", 0);
  lives_long.ttl = seconds(60);
  w.begin(it, std::move(lives_long));
  disk->write();
  w.run();
  // Each of them is due before the earliest one until then.
  for (int i = 0; i < 50; ++i) {
    const auto waiting = w.begin(it, fetch_of("b", std::chrono::milliseconds(100)));
    w.advance(std::chrono::milliseconds(200));
    CHECK(w.client().answer_to(waiting).came);
  }
  CHECK(w.pending_timeouts() <= 2);

  disk->is_full = true;
  const auto change = w.begin(it, rank_of("a", 1));
  for (int i = 0; i < 50; ++i)
    w.begin(it, fetch_of("b", std::chrono::milliseconds(100)));
  CHECK(w.pending_timeouts() <= 4);
  disk->is_full = false;
  w.advance(std::chrono::milliseconds(100));
  REQUIRE(disk->waiting.size() == 1);
  disk->write();
  w.run();
  CHECK(w.client().answer_to(change).came);
}

TEST_CASE("directory: a reply to another process counts against the budget until it is sent", "[directory]") {
  const auto room = std::make_shared<outgoing_budget>(10'000, 15'000);
  const auto answer_of = [](std::size_t bytes) {
    handshake_fetch_reply x;
    x.entries.push_back({{}, "tag", handshake_form::bytes, std::string(bytes, 'x')});
    return caf::make_message(std::move(x));
  };
  const auto code_of = [](const caf::message& x) { return code(x.get_as<handshake_fetch_reply>(0).code); };
  auto first = answer_of(8000);
  bound_answer(first, *room);
  CHECK(code_of(first) == errc::ok);
  CHECK(room->used() >= 8000);
  auto second = answer_of(8000);
  bound_answer(second, *room);
  CHECK(code_of(second) == errc::limit_exceeded);
  CHECK(room->refused() == 1);
  // A reply without payloads is sent even so.
  auto small = caf::make_message(handshake_fetch_reply{});
  bound_answer(small, *room);
  CHECK(code_of(small) == errc::ok);
  auto copy = first;
  first = {};
  CHECK(room->used() >= 8000);
  copy = {};
  CHECK(room->used() == 0);
  auto too_long = answer_of(12'000);
  bound_answer(too_long, *room);
  CHECK(code_of(too_long) == errc::out_of_range);
  CHECK(room->used() == 0);
  // One that is larger than all the room goes alone.
  const auto little = std::make_shared<outgoing_budget>(10'000, 100);
  auto alone = answer_of(1000);
  bound_answer(alone, *little);
  CHECK(code_of(alone) == errc::ok);
  auto list = caf::make_message(handshake_list_reply{});
  bound_answer(list, *little);
  CHECK(list.match_elements<caf::error>());
}

} // namespace directory_test
