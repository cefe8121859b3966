#include "tests/actors/coordinator_support.hpp"
#include "tests/actors/garbage_support.hpp"
#include "tests/catch.hpp"

#include <string>
#include <vector>

namespace garbage_client_test {

using namespace troupe;
using namespace troupe::test;

/// Coordinators answer whatever they are asked, and whatever they are answered.

namespace {

constexpr std::uint32_t most_keys = 64;

/// Tasks that are refused as a whole, with the reason.
template <class Coordinator>
void check_bad_tasks() {
  coordinator_world w;
  const auto to = w.spawn_bound<Coordinator>();
  const auto refuses = [&](errc expected, const transfer_task& x) {
    const auto answered = w.ask(to, x);
    CHECK(answered.code() == expected);
    CHECK_FALSE(answered.failure.text.empty());
  };
  auto uneven = test_task(3);
  uneven.keys.items.pop_back();
  refuses(errc::invalid_argument, uneven);
  uneven = test_task(3);
  uneven.blocks.items.clear();
  refuses(errc::invalid_argument, uneven);
  for (const auto time :
       {duration::zero(), duration(-1), duration::min(), duration::max(), duration(std::chrono::hours(25))})
    refuses(errc::invalid_argument, test_task(1, 0, time));
  refuses(errc::limit_exceeded, test_task(2 * most_keys));
  CHECK(w.ask(to, test_task(0)).template value<transfer_result>().results.empty());
  CHECK(w.shard.template take<locate_request>().empty());
  CHECK(w.shard.template take<reserve_request>().empty());
  CHECK(w.pending_timeouts() == 0);
}

/// A node whose actors are all missing.
template <class Coordinator>
void check_null_handles() {
  coordinator_world w;
  const auto to = w.spawn_bound<Coordinator>();
  auto unbound = w.binding();
  unbound.worker = client_worker_actor{};
  unbound.shards = {client_shard_actor{}, client_shard_actor{}};
  REQUIRE(w.ask(to, bind_atom_v, unbound).code() == errc::ok);
  for (const auto code : w.results(w.begin(to, test_task(5))))
    CHECK(code != errc::ok);
  // A registry without readers or writers.
  unbound.shards = {w.shard.template as<client_shard_actor>()};
  REQUIRE(w.ask(to, bind_atom_v, unbound).code() == errc::ok);
  const auto number = w.begin(to, test_task(3));
  for (const auto& x : w.shard.template take<locate_request>())
    w.locate(x);
  for (const auto& x : w.shard.template take<reserve_request>())
    w.grant(x);
  for (const auto& x : w.copier.template take<gather_atom, copy_order>())
    w.copy(x);
  for (const auto code : w.results(number))
    CHECK(code != errc::ok);
}

/// Peers that answer with garbage, with errors, or not at all.
class unsound_peers {
public:
  unsound_peers(coordinator_world& world, hostile_filler& make) : world_(world), make_(make) {}

  /// Answers most of the requests that have come. `all`: answers every one.
  void answer(bool all) {
    for (int rounds = 0; rounds < 1000 && round(all); ++rounds) {
    }
  }

  /// As peers should be.
  void answer_soundly() {
    sound_ = true;
    answer(true);
    sound_ = false;
  }

private:
  bool round(bool all) {
    bool any = false;
    any |= each<locate_request>(
        world_.shard, all, [&](const received& x) { world_.locate(x); },
        [&] { return caf::make_message(make_.make<locate_reply>()); });
    any |= each<reserve_request>(
        world_.shard, all, [&](const received& x) { world_.grant(x); },
        [&] { return caf::make_message(make_.make<reserve_reply>()); });
    any |= each<release_request>(
        world_.shard, all, [&](const received& x) { world_.reply(world_.shard, x); },
        [&] { return caf::make_message(); });
    const auto finish = [&](const received& x) { world_.finish(x); };
    const auto strange_finish = [&] { return caf::make_message(make_.make<finish_reply>()); };
    any |= each<commit_atom, finish_request>(world_.shard, all, finish, strange_finish);
    any |= each<abort_atom, finish_request>(world_.shard, all, finish, strange_finish);
    any |= each<invalidate_request>(
        world_.shard, all, [&](const received& x) { world_.reply(world_.shard, x, finish_reply{}); }, strange_finish);
    const auto give = [&](const received& x) { world_.give(x); };
    const auto strange_frames = [&] { return caf::make_message(make_.make<frame_reply>()); };
    any |= each<place_atom, frame_request>(world_.worker, all, give, strange_frames);
    any |= each<fetch_atom, frame_request>(world_.worker, all, give, strange_frames);
    // The pins that they end may be invented.
    any |= each<fill_atom, fill_request>(
        world_.worker, all,
        [&](const received& x) { world_.reply(world_.worker, x, io_reply{x.get<fill_request>(1).gathered}); },
        [&] { return caf::make_message(make_.make<io_reply>()); });
    any |= each<unpin_atom, pin_number>(
        world_.worker, all, [&](const received& x) { world_.reply(world_.worker, x); },
        [&] { return caf::make_message(); });
    // A copy engine is in the same process: it may be wrong, but it answers.
    const auto copy = [&](const received& x) { world_.copy(x); };
    const auto strange_copy = [&] { return caf::make_message(make_.make<copy_reply>()); };
    any |= each<gather_atom, copy_order>(world_.copier, true, copy, strange_copy);
    any |= each<scatter_atom, copy_order>(world_.copier, true, copy, strange_copy);
    return any;
  }

  template <class... Ts, class Sound, class Strange>
  bool each(probe& from, bool all, Sound sound, Strange strange) {
    const auto got = from.take<Ts...>();
    for (const auto& x : got) {
      if (sound_ || make_.one_in(3))
        sound(x);
      else if (make_.one_in(3))
        from.reply_error(x,
                         make_.one_of(std::vector{errc::limit_exceeded, errc::timeout, errc::unreachable, errc::ok}));
      else if (make_.one_in(5))
        from.reply(x, caf::make_message(std::string("what?")));
      else if (all || make_.one_in(2))
        from.reply(x, strange());
      world_.run();
    }
    return !got.empty();
  }

  coordinator_world& world_;
  hostile_filler& make_;
  bool sound_ = false;
};

template <class Coordinator>
void check_garbage(std::uint64_t seed) {
  INFO("seed " << seed);
  coordinator_world w;
  const auto to = w.spawn_bound<Coordinator>(16);
  hostile_filler make(seed, test_namespace, most_keys, {&w.shard, &w.worker});
  questioner asks(w);
  unsound_peers peers(w, make);
  for (int i = 0; i < 300; ++i) {
    const auto kind = make.below(13);
    if (kind < 3)
      asks.ask(to, make.make<transfer_task>());
    else if (kind == 12)
      asks.ask(to, cancel_atom_v, make.make<packed<std::uint64_t>>());
    else if (kind < 8)
      asks.ask(to, tagged(make.below(4), test_task(static_cast<std::uint32_t>(make.below(12)), make.below(100),
                                                   std::chrono::seconds(1))));
    else if (kind == 8 && make.one_in(3))
      asks.ask(to, bind_atom_v, make.make<coordinator_binding>());
    else if (kind == 9 && make.one_in(3))
      asks.ask(to, unbind_atom_v);
    else if (kind == 10)
      asks.ask(to, bind_atom_v, w.binding());
    else
      w.advance(50 * ms);
    if (make.one_in(2))
      peers.answer(false);
  }
  // All tasks have a deadline, and what the copy engine was asked it has answered.
  w.advance(1500 * ms);
  peers.answer(true);
  asks.check_all_answered();
  CHECK(asks.accepted() > 20);
  CHECK(asks.refused() > 20);

  REQUIRE(w.ask(to, bind_atom_v, w.binding()).code() == errc::ok);
  w.advance(1500 * ms);
  peers.answer_soundly();
  const auto number = w.begin(to, test_task(20));
  peers.answer_soundly();
  CHECK(w.results(number) == std::vector(20, errc::ok));
  w.advance(5000 * ms);
  peers.answer_soundly();
  CHECK(w.pending_timeouts() == 0); // no request is pending
}

} // namespace

TEST_CASE("garbage: coordinators refuse invalid tasks", "[garbage][transfer]") {
  check_bad_tasks<load_coordinator>();
  check_bad_tasks<save_coordinator>();
}

TEST_CASE("garbage: coordinators bound to null actors fail their tasks", "[garbage][transfer]") {
  quiet_log quiet;
  check_null_handles<load_coordinator>();
  check_null_handles<save_coordinator>();
}

TEST_CASE("garbage: coordinators answer every task, whatever messages they receive", "[garbage][transfer]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    check_garbage<load_coordinator>(seed);
    check_garbage<save_coordinator>(seed);
  }
}

TEST_CASE("garbage: a lookup coordinator refuses invalid lookups", "[garbage][transfer]") {
  sim s;
  probe shard(s.system());
  const auto to = s.spawn<lookup_coordinator>(4U, request_timeout);
  const auto refuses = [&](errc expected, auto... xs) {
    const auto answered = s.ask(to, xs...);
    CHECK(answered.code() == expected);
    CHECK_FALSE(answered.failure.text.empty());
  };
  const auto second = std::chrono::seconds(1);
  refuses(errc::unreachable, lookup_task{test_task(1).keys, second});
  refuses(errc::unreachable, stats_atom_v);
  lookup_binding to_nothing{77, 0, test_namespace, test_limits(), {client_shard_actor{}, client_shard_actor{}}};
  REQUIRE(s.ask(to, bind_atom_v, to_nothing).code() == errc::ok);
  CHECK(s.ask(to, lookup_task{test_task(9).keys, second}).code() != errc::ok);
  CHECK(s.ask(to, stats_atom_v).code() != errc::ok);
  lookup_binding good{77, 0, test_namespace, test_limits(), {shard.as<client_shard_actor>()}};
  REQUIRE(s.ask(to, bind_atom_v, good).code() == errc::ok);
  for (const auto time : {duration::zero(), duration(-1), duration::min()})
    refuses(errc::invalid_argument, lookup_task{test_task(1).keys, time});
  refuses(errc::not_found, release_atom_v, ticket{});
  refuses(errc::not_found, release_atom_v, ticket{77, ~std::uint64_t{0}});
  const auto nothing = s.ask(to, lookup_task{{}, second}).value<lookup_result>();
  CHECK(nothing.matched == 0);
  CHECK(nothing.lease == ticket{});
  CHECK(shard.take<match_request>().empty());
  // A shard that has found more keys than it was asked for has found those; there is nothing to give back.
  const auto number = s.begin(to, lookup_task{test_task(5).keys, second});
  shard.reply(shard.take_one<match_request>(), caf::make_message(match_reply{~0U}));
  s.run();
  CHECK(s.client().answer_to(number).value<lookup_result>().matched == 5);
  CHECK(shard.take<release_request>().empty());
  // A request above the limit is cut to what the node accepts.
  const auto much = s.begin(to, lookup_task{test_task(2 * most_keys).keys, duration::max()});
  const auto asked = shard.take_one<match_request>();
  CHECK(asked.get<match_request>(0).keys.size() == most_keys);
  CHECK(asked.get<match_request>(0).lease_for == test_limits().lease);
  shard.reply(asked, caf::make_message(match_reply{most_keys}));
  s.run();
  CHECK(s.client().answer_to(much).value<lookup_result>().matched == most_keys);
}

TEST_CASE("garbage: a lookup coordinator answers every lookup, whatever messages it receives", "[garbage][transfer]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    sim s;
    probe first(s.system());
    probe second(s.system());
    const auto to = s.spawn<lookup_coordinator>(8U, request_timeout);
    const lookup_binding good{
        77, 0, test_namespace, test_limits(), {first.as<client_shard_actor>(), second.as<client_shard_actor>()}};
    REQUIRE(s.ask(to, bind_atom_v, good).code() == errc::ok);
    hostile_filler make(seed, test_namespace, most_keys, {&first, &second});
    questioner asks(s);
    const auto answer = [&](bool sound) {
      for (auto* shard : {&first, &second}) {
        for (const auto& x : shard->take<match_request>()) {
          const auto count = static_cast<std::uint32_t>(x.get<match_request>(0).keys.size());
          if (sound || make.one_in(3))
            shard->reply(x, caf::make_message(match_reply{count}));
          else if (make.one_in(3))
            shard->reply(x, caf::make_message(make.make<match_reply>()));
          else if (make.one_in(3))
            shard->reply_error(x, make.one_of(std::vector{errc::timeout, errc::unknown_namespace}));
          else if (make.one_in(2))
            shard->reply(x, caf::make_message(std::string("what?")));
        }
        for (const auto& x : shard->take<stats_atom>())
          if (sound || make.one_in(2))
            shard->reply(x, caf::make_message(make.make<registry_stats>()));
        shard->take<release_request>();
      }
      s.run();
    };
    for (int i = 0; i < 300; ++i) {
      const auto kind = make.below(10);
      if (kind < 4)
        asks.ask(to, lookup_task{make.make<packed<key_digest>>(), std::chrono::seconds(2)});
      else if (kind == 4)
        asks.ask(to, make.make<lookup_task>());
      else if (kind == 5)
        asks.ask(to, release_atom_v, make.make<ticket>());
      else if (kind == 6)
        asks.ask(to, stats_atom_v);
      else if (kind == 7 && make.one_in(3))
        asks.ask(to, bind_atom_v, make.make<lookup_binding>());
      else if (kind == 7 && make.one_in(2))
        asks.ask(to, unbind_atom_v);
      else if (kind == 8)
        asks.ask(to, bind_atom_v, good);
      else
        s.advance(100 * ms);
      if (make.one_in(2))
        answer(false);
    }
    s.advance(4 * request_timeout);
    asks.check_all_answered();
    CHECK(asks.accepted() > 20);
    CHECK(asks.refused() > 20);
    REQUIRE(s.ask(to, bind_atom_v, good).code() == errc::ok);
    const auto number = s.begin(to, lookup_task{test_task(20).keys, std::chrono::seconds(2)});
    answer(true);
    CHECK(s.client().answer_to(number).value<lookup_result>().matched == 20);
    s.advance(5000 * ms);
    CHECK(s.pending_timeouts() == 0);
  }
}

} // namespace garbage_client_test
