#include "tests/actors/coordinator_support.hpp"
#include "tests/catch.hpp"

namespace save_coordinator_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct world : coordinator_world {
  transfer_actor save = spawn_bound<save_coordinator>();

  received reserve() { return shard.take_one<reserve_request>(); }
  received gather() { return copier.take_one<gather_atom, copy_order>(); }
  received place() { return worker.take_one<place_atom, frame_request>(); }
  received filling() { return worker.take_one<fill_atom, fill_request>(); }
  received commit() { return shard.take_one<commit_atom, finish_request>(); }
  received abort() { return shard.take_one<abort_atom, finish_request>(); }
};

} // namespace

TEST_CASE_METHOD(world, "save coordinator: reserve, place, gather, fill, commit, answer", "[save_coordinator]") {
  const auto number = begin(save, test_task(3));
  grant(reserve());
  give(place());
  copy(gather());
  fill(filling());
  CHECK_FALSE(client().answer_to(number).came);
  finish(commit());
  CHECK(results(number) == std::vector(3, errc::ok));
}

TEST_CASE_METHOD(world, "save coordinator: a task that is refused is answered with the reason", "[save_coordinator]") {
  auto uneven = test_task(2);
  uneven.blocks.items.pop_back();
  CHECK(ask(save, uneven).code() == errc::invalid_argument);
  CHECK(ask(save, test_task(65)).code() == errc::limit_exceeded);
  CHECK(ask(save, test_task(1, 0, duration::max())).code() == errc::invalid_argument);
  CHECK(ask(save, test_task(0)).value<transfer_result>().results.empty());
}

TEST_CASE_METHOD(world, "save coordinator: a request that the registry does not answer is retried until the deadline",
                 "[save_coordinator]") {
  const auto number = begin(save, test_task(1, 0, 1200 * ms));
  const auto first = reserve();
  advance(request_timeout);
  const auto second = reserve();
  CHECK(second.get<reserve_request>(0).ticket == first.get<reserve_request>(0).ticket);
  grant(first); // no task waits for it any more
  CHECK(copier.take<gather_atom, copy_order>().empty());
  advance(request_timeout);
  CHECK(shard.take<reserve_request>().size() == 1);
  advance(400 * ms);
  CHECK(results(number) == std::vector{errc::timeout});
  advance(2000 * ms);
  CHECK(shard.take<reserve_request>().empty());
}

TEST_CASE_METHOD(world, "save coordinator: a task whose fill hangs is answered at its deadline without a commit",
                 "[save_coordinator]") {
  const auto number = begin(save, test_task(2));
  grant(reserve());
  give(place());
  copy(gather());
  const auto hanging = filling();
  advance(1200 * ms);
  CHECK(results(number) == std::vector(2, errc::timeout));
  advance(60'000 * ms); // as long as the disk likes
  fill(hanging);
  CHECK(shard.take<commit_atom, finish_request>().empty());
  CHECK(abort().get<finish_request>(1).pages.size() == 2);
}

TEST_CASE_METHOD(world, "save coordinator: the death of an actor that it uses fails the task and not the coordinator",
                 "[save_coordinator]") {
  const auto number = begin(save, test_task(1));
  SECTION("the registry") {
    shard.reply_error(reserve(), errc::unreachable);
    run();
    CHECK(results(number) == std::vector{errc::unreachable});
  }
  SECTION("the io worker, asked for frames") {
    grant(reserve());
    worker.reply_error(place(), errc::shutting_down);
    run();
    CHECK(results(number) == std::vector{errc::shutting_down});
    finish(abort());
  }
  SECTION("the copy engine") {
    grant(reserve());
    give(place());
    copier.reply_error(gather(), errc::unreachable);
    run();
    CHECK(results(number) == std::vector{errc::unreachable});
    fill(filling()); // its frames are given back
    finish(abort());
  }
  SECTION("the io worker") {
    grant(reserve());
    give(place());
    copy(gather());
    worker.reply_error(filling(), errc::shutting_down);
    run();
    CHECK(results(number) == std::vector{errc::shutting_down});
    finish(abort());
  }
  // It serves the next.
  const auto next = begin(save, test_task(1, 50));
  grant(reserve());
  give(place());
  copy(gather());
  fill(filling());
  finish(commit());
  CHECK(results(next) == std::vector{errc::ok});
}

TEST_CASE_METHOD(world, "save coordinator: pages cancelled before the gather are not saved and the others are",
                 "[save_coordinator][cancel]") {
  const auto first = begin(save, tagged(1, test_task(2)));
  grant(reserve());
  give(place());
  copy(gather());
  const auto taking_over = filling();
  const auto second = begin(save, tagged(2, test_task(2, 10)));
  grant(reserve());
  give(place());
  const auto gathering = gather();
  const auto third = begin(save, tagged(2, test_task(1, 20)));
  const auto reserving = reserve();

  const packed<std::uint64_t> tags(std::vector<std::uint64_t>{1, 2, 3});
  CHECK(ask(save, cancel_atom_v, tags).code() == errc::ok);
  CHECK(results(second) == std::vector(2, errc::cancelled));
  CHECK(results(third) == std::vector{errc::cancelled});
  CHECK_FALSE(client().answer_to(first).came);
  // From here on the blocks may hold anything.
  copy(gathering);
  const auto giving_back = filling();
  CHECK(giving_back.get<fill_request>(1).gathered == same_codes(2, errc::cancelled));
  fill(giving_back);
  finish(abort());
  grant(reserving);
  CHECK(worker.take<place_atom, frame_request>().empty());
  CHECK(copier.take<gather_atom, copy_order>().empty());
  finish(abort());
  fill(taking_over);
  finish(commit());
  CHECK(results(first) == std::vector(2, errc::ok));

  CHECK(ask(save, cancel_atom_v, tags).code() == errc::ok);
  CHECK(ask(save, cancel_atom_v, packed<std::uint64_t>{}).code() == errc::ok);
  CHECK(shard.take<abort_atom, finish_request>().empty());
}

TEST_CASE_METHOD(world, "save coordinator: a frame request is not retried after a cancel",
                 "[save_coordinator][cancel]") {
  const auto number = begin(save, tagged(1, test_task(1)));
  grant(reserve());
  const auto placing = place();
  CHECK(ask(save, cancel_atom_v, packed<std::uint64_t>(std::vector<std::uint64_t>{1})).code() == errc::ok);
  worker.reply_error(placing, errc::limit_exceeded);
  run();
  CHECK(results(number) == std::vector{errc::cancelled});
  finish(abort());
  advance(5000 * ms);
  CHECK(worker.take<place_atom, frame_request>().empty());
  CHECK(copier.take<gather_atom, copy_order>().empty());
}

TEST_CASE_METHOD(world, "save coordinator: unbinding answers every task at once in any state", "[save_coordinator]") {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 4; ++i)
    numbers.push_back(begin(save, test_task(1, 10 * i, std::chrono::hours(1))));
  auto reserves = shard.take<reserve_request>();
  REQUIRE(reserves.size() == 4);
  for (std::size_t i = 1; i < 4; ++i)
    grant(reserves[i]);
  auto places = worker.take<place_atom, frame_request>();
  REQUIRE(places.size() == 3);
  for (std::size_t i = 1; i < 3; ++i)
    give(places[i]);
  auto gathers = copier.take<gather_atom, copy_order>();
  copy(gathers[0]);
  copy(gathers[1]);
  auto fills = worker.take<fill_atom, fill_request>();
  fill(fills[1]);
  const auto committing = commit();

  const auto how = GENERATE(0, 1, 2);
  auto expected = errc::unreachable;
  if (how == 0) {
    CHECK(ask(save, unbind_atom_v).code() == errc::ok);
    CHECK(ask(save, test_task(1)).code() == errc::unreachable);
  } else if (how == 1) {
    CHECK(ask(save, bind_atom_v, binding(78)).code() == errc::ok);
  } else {
    end(save);
    expected = errc::shutting_down;
  }
  for (const auto number : numbers)
    CHECK(results(number) == std::vector{expected});

  // Replies to the requests in flight arrive now and have no receiver.
  grant(reserves[0]);
  give(places[0]);
  fill(fills[0]);
  finish(committing);
  CHECK(shard.take<commit_atom, finish_request>().empty());
  CHECK(worker.take<place_atom, frame_request>().empty());
  CHECK(worker.take<fill_atom, fill_request>().empty());
  CHECK(copier.take<gather_atom, copy_order>().empty());
  if (how == 1) {
    const auto next = begin(save, test_task(1));
    const auto x = reserve();
    CHECK(x.get<reserve_request>(0).ticket.owner == 78);
    grant(x);
    give(place());
    copy(gather());
    fill(filling());
    finish(commit());
    CHECK(results(next) == std::vector{errc::ok});
  }
}

TEST_CASE_METHOD(world, "save coordinator: an invalid binding is refused and the previous one stays",
                 "[save_coordinator]") {
  const auto number = begin(save, test_task(1));
  auto bad = binding();
  SECTION("no shards") {
    bad.shards.clear();
  }
  SECTION("without an owner") {
    bad.owner = 0;
  }
  SECTION("a window above the pin limit") {
    bad.window_pages = 1025;
  }
  SECTION("an empty window") {
    bad.window_pages = 0;
  }
  CHECK(ask(save, bind_atom_v, bad).failure.text != "");
  grant(reserve());
  give(place());
  copy(gather());
  fill(filling());
  finish(commit());
  CHECK(results(number) == std::vector{errc::ok});
}

TEST_CASE_METHOD(world, "save coordinator: every task is answered while it is not bound", "[save_coordinator]") {
  const auto fresh = spawn_coordinator<save_coordinator>();
  CHECK(ask(fresh, test_task(1)).code() == errc::unreachable);
  CHECK(ask(fresh, unbind_atom_v).code() == errc::ok);
  CHECK(ask(fresh, cancel_atom_v, packed<std::uint64_t>(std::vector<std::uint64_t>{1})).code() == errc::ok);
  advance(1000 * ms);
}

} // namespace save_coordinator_test
