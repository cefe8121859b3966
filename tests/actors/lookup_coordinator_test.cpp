#include "tests/actors/coordinator_support.hpp"
#include "tests/catch.hpp"

namespace lookup_coordinator_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct world : sim {
  probe first{system()};
  probe second{system()};
  lookup_actor lookup = spawn<lookup_coordinator>(4U, request_timeout);

  world() { REQUIRE(ask(lookup, bind_atom_v, binding()).code() == errc::ok); }

  lookup_binding binding() const {
    return {77, 0, test_namespace, test_limits(), {first.as<client_shard_actor>(), second.as<client_shard_actor>()}};
  }

  static lookup_task find(std::uint32_t count) { return {test_task(count).keys, std::chrono::seconds(10)}; }

  void match(probe& shard, std::uint32_t count) {
    for (const auto& x : shard.take<match_request>())
      shard.reply(x, caf::make_message(match_reply{count}));
    run();
  }
};

} // namespace

TEST_CASE_METHOD(world, "lookup coordinator: the shortest reply counts and leases beyond it are released",
                 "[lookup_coordinator]") {
  const auto number = begin(lookup, find(20));
  match(first, 20);
  CHECK_FALSE(client().answer_to(number).came);
  match(second, 1);
  const auto found = client().answer_to(number).value<lookup_result>();
  CHECK(found.matched >= 1);
  CHECK(found.matched < 20);
  const auto trimmed = first.take_one<release_request>();
  CHECK(trimmed.get<release_request>(0).lease == found.lease);
  CHECK(trimmed.get<release_request>(0).keep + 1 == found.matched);
  CHECK(ask(lookup, release_atom_v, found.lease).code() == errc::ok);
  CHECK(second.take_one<release_request>().get<release_request>(0).keep == 0);
  CHECK(ask(lookup, release_atom_v, found.lease).code() == errc::not_found);
}

TEST_CASE_METHOD(world, "lookup coordinator: a lookup fails in time after retries if a shard does not answer",
                 "[lookup_coordinator]") {
  const auto number = begin(lookup, find(20));
  match(first, 20);
  advance(3 * request_timeout + 200 * ms);
  CHECK(client().answer_to(number).code() == errc::timeout);
  CHECK(second.take<match_request>().size() >= 2);
  CHECK(second.take<release_request>().size() == 1);
}

TEST_CASE_METHOD(world, "lookup coordinator: unbinding and shutdown answer every lookup", "[lookup_coordinator]") {
  const auto a = begin(lookup, find(20));
  const auto b = begin(lookup, find(3));
  const auto stats = begin(lookup, stats_atom_v);
  auto code = errc::unreachable;
  SECTION("unbind") {
    CHECK(ask(lookup, unbind_atom_v).code() == errc::ok);
    CHECK(ask(lookup, find(1)).code() == errc::unreachable);
    CHECK(ask(lookup, stats_atom_v).code() == errc::unreachable);
  }
  SECTION("bind again") {
    CHECK(ask(lookup, bind_atom_v, binding()).code() == errc::ok);
  }
  SECTION("end") {
    end(lookup);
    code = errc::shutting_down;
  }
  CHECK(client().answer_to(a).code() == code);
  CHECK(client().answer_to(b).code() == code);
  match(first, 1);
  match(second, 1);
  advance(request_timeout);
  const auto counted = client().answer_to(stats);
  CHECK(counted.came);
  CHECK(counted.code() != errc::ok);
}

TEST_CASE_METHOD(world, "lookup coordinator: statistics of the shards are summed", "[lookup_coordinator]") {
  const auto number = begin(lookup, stats_atom_v);
  registry_stats counts;
  counts.keys = 3;
  counts.evicted_keys = 4;
  for (auto* shard : {&first, &second})
    shard->reply(shard->take_one<stats_atom>(), caf::make_message(counts));
  run();
  const auto sum = client().answer_to(number).value<registry_stats>();
  CHECK(sum.keys == 6);
  CHECK(sum.evicted_keys == 8);
}

TEST_CASE_METHOD(world, "lookup coordinator: statistics get one reply when several shards fail",
                 "[lookup_coordinator]") {
  const auto number = begin(lookup, stats_atom_v);
  for (auto* shard : {&first, &second})
    shard->reply_error(shard->take_one<stats_atom>(), errc::shutting_down);
  run();
  CHECK(client().answer_to(number).code() == errc::shutting_down);
}

TEST_CASE_METHOD(world, "lookup coordinator: a binding without shards or owner is refused", "[lookup_coordinator]") {
  auto bad = binding();
  bad.shards.clear();
  CHECK(ask(lookup, bind_atom_v, bad).code() == errc::invalid_argument);
  bad = binding();
  bad.owner = 0;
  CHECK(ask(lookup, bind_atom_v, bad).code() == errc::invalid_argument);
}

} // namespace lookup_coordinator_test
