#include "tests/actors/coordinator_support.hpp"
#include "tests/catch.hpp"

namespace load_coordinator_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct world : coordinator_world {
  transfer_actor load = spawn_bound<load_coordinator>();

  received locate_one() { return shard.take_one<locate_request>(); }
  received fetch() { return worker.take_one<fetch_atom, frame_request>(); }
  received scatter() { return copier.take_one<scatter_atom, copy_order>(); }
  received invalidate() { return shard.take_one<invalidate_request>(); }
  received release() { return shard.take_one<release_request>(); }
};

} // namespace

TEST_CASE_METHOD(world, "load coordinator: locate, fetch, scatter, answer, unpin, release", "[load_coordinator]") {
  const auto number = begin(load, test_task(3));
  const auto located = locate_one();
  locate(located);
  give(fetch());
  CHECK_FALSE(client().answer_to(number).came);
  CHECK(end_pins() == 0);
  copy(scatter());
  CHECK(results(number) == std::vector(3, errc::ok));
  CHECK(end_pins() == 1);
  const auto released = release();
  CHECK(released.get<release_request>(0).lease == located.get<locate_request>(0).lease);
  reply(shard, released);
}

TEST_CASE_METHOD(world, "load coordinator: a bad page is reported and unpublished", "[load_coordinator]") {
  const auto number = begin(load, test_task(2));
  locate(locate_one());
  give(fetch());
  reply(copier, scatter(), copy_reply{codes({errc::corrupt, errc::ok}), {}});
  CHECK(results(number) == std::vector{errc::corrupt, errc::ok});
  const auto bad = invalidate();
  CHECK(bad.get<invalidate_request>(0).pages.items == std::vector<page_ref>{{key(0), {0, 7}}});
  CHECK(bad.get<invalidate_request>(0).tier(0) == page_tier::memory);
  CHECK(shard.take<release_request>().empty());
  // A registry that does not answer delays the release no longer than a request may take.
  advance(request_timeout);
  reply(shard, release());
}

TEST_CASE_METHOD(
    world,
    "load coordinator: a task whose fetch hangs is answered at its deadline and keeps its lease until the fetch ends",
    "[load_coordinator]") {
  const auto number = begin(load, test_task(2));
  locate(locate_one());
  const auto hanging = fetch();
  advance(1200 * ms);
  CHECK(results(number) == std::vector(2, errc::timeout));
  advance(60'000 * ms);
  CHECK(shard.take<release_request>().empty());
  give(hanging);
  CHECK(end_pins() == 1);
  CHECK(copier.take<scatter_atom, copy_order>().empty());
  reply(shard, release());
}

TEST_CASE_METHOD(world, "load coordinator: a request that the registry does not answer is retried",
                 "[load_coordinator]") {
  const auto number = begin(load, test_task(1, 0, 1200 * ms));
  const auto first = locate_one();
  advance(request_timeout);
  const auto second = locate_one();
  CHECK(second.get<locate_request>(0).lease == first.get<locate_request>(0).lease);
  locate(second);
  give(fetch());
  copy(scatter());
  CHECK(results(number) == std::vector{errc::ok});
}

TEST_CASE_METHOD(world, "load coordinator: a cancelled task writes no further block", "[load_coordinator][cancel]") {
  const auto first = begin(load, tagged(1, test_task(2)));
  locate(locate_one());
  give(fetch());
  const auto filling = scatter();
  const auto second = begin(load, tagged(1, test_task(2, 10)));
  locate(locate_one());
  const auto fetching = fetch();
  CHECK(ask(load, cancel_atom_v, packed<std::uint64_t>(std::vector<std::uint64_t>{1, 9})).code() == errc::ok);
  CHECK(results(second) == std::vector(2, errc::cancelled));
  CHECK_FALSE(client().answer_to(first).came);
  give(fetching);
  CHECK(copier.take<scatter_atom, copy_order>().empty());
  reply(shard, release());
  copy(filling);
  CHECK(results(first) == std::vector(2, errc::ok));
  reply(shard, release());
}

TEST_CASE_METHOD(world, "load coordinator: unbinding answers every task", "[load_coordinator]") {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 3; ++i)
    numbers.push_back(begin(load, test_task(1, 10 * i, std::chrono::hours(1))));
  auto locates = shard.take<locate_request>();
  REQUIRE(locates.size() == 3);
  locate(locates[1]);
  locate(locates[2]);
  auto fetches = worker.take<fetch_atom, frame_request>();
  give(fetches[1]);
  const auto filling = scatter();

  SECTION("when the node is lost") {
    CHECK(ask(load, unbind_atom_v).code() == errc::ok);
    CHECK(results(numbers[0]) == std::vector{errc::unreachable});
    CHECK(results(numbers[1]) == std::vector{errc::unreachable});
    // The third is written to at this moment.
    CHECK_FALSE(client().answer_to(numbers[2]).came);
    advance(5000 * ms);
    CHECK_FALSE(client().answer_to(numbers[2]).came);
    copy(filling);
    CHECK(results(numbers[2]) == std::vector{errc::ok});
    CHECK(shard.take<release_request>().empty());
  }
  SECTION("when it shuts down, after the blocks that are being written") {
    end(load);
    CHECK(results(numbers[0]) == std::vector{errc::shutting_down});
    CHECK(results(numbers[1]) == std::vector{errc::shutting_down});
    CHECK_FALSE(client().answer_to(numbers[2]).came);
    CHECK(ask(load, bind_atom_v, binding(78)).code() == errc::shutting_down);
    CHECK_FALSE(client().answer_to(numbers[2]).came);
    copy(filling);
    CHECK(results(numbers[2]) == std::vector{errc::ok});
    // That was the last of it.
    CHECK(ask(load, unbind_atom_v).code() != errc::ok);
  }
  locate(locates[0]);
  give(fetches[0]);
  CHECK(worker.take<fetch_atom, frame_request>().empty());
  CHECK(copier.take<scatter_atom, copy_order>().empty());
}

TEST_CASE_METHOD(world, "load coordinator: the limit of tasks", "[load_coordinator]") {
  const auto small = spawn_bound<load_coordinator>(2);
  const auto a = begin(small, test_task(1));
  const auto b = begin(small, test_task(1));
  CHECK(ask(small, test_task(1)).code() == errc::limit_exceeded);
  for (const auto& x : shard.take<locate_request>())
    shard.reply_error(x, errc::unknown_namespace);
  run();
  CHECK(results(a) == std::vector{errc::unknown_namespace});
  CHECK(results(b) == std::vector{errc::unknown_namespace});
  CHECK_FALSE(client().answer_to(begin(small, test_task(1))).came);
}

} // namespace load_coordinator_test
