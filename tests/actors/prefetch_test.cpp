#include "tests/actors/io_worker_support.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

/// Notifications of shards to io workers about lookups, and of io workers to shards about dropped pages.

namespace prefetch_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::byte ones{1};

io_worker_options second_hit() {
  io_worker_options out;
  out.second_hit = true;
  out.commit_time = duration::zero();
  return out;
}

io_worker_options ahead() {
  io_worker_options out;
  out.prefetch_pages_max = 8;
  return out;
}

struct admitting_world : io_worker_world {
  admitting_world() : io_worker_world(second_hit()) { bind(); }
};

struct promoting_world : io_worker_world {
  promoting_world() : io_worker_world(ahead()) {
    bind();
    save({page(0), page(1), page(2), page(3)}, ones);
    save({page(4), page(5), page(6), page(7)}, ones);
  }

  void look_up(std::vector<page_ref> pages) {
    CHECK(ask(worker, prefetch_request{0, {1, 1}, 0, packed<page_ref>{std::move(pages)}}).code() == errc::ok);
  }
};

result_codes all_ok(std::size_t n) {
  return {packed<std::uint8_t>{std::vector<std::uint8_t>(n, 0)}};
}

/// A shard whose allocator and io worker are probes.
struct telling_shard : sim {
  telling_shard() {
    registry_options how;
    how.tells_workers = true;
    shard = spawn<registry>(how, std::vector{ns}, metrics.as<metrics_actor>());
  }

  void bind(bool with_worker = true) {
    registry_peers peers{{shard}, {slots.as<allocator_actor>()}, {ns.id()}, {0}};
    peers.workers = {with_worker ? worker.as<io_worker_actor>() : io_worker_actor{}};
    REQUIRE(ask(shard, bind_atom_v, peers).code() == errc::ok);
  }

  page_ref store() {
    const auto number = begin(
        shard, reserve_request{ns.id(), 0, {7, 1}, std::chrono::seconds(30), std::vector{test_task(1, 0).keys[0]}, {}});
    slots.reply(slots.take_one<take_atom, std::uint32_t, duration>(),
                caf::make_message(take_reply{std::vector{slot_ref{3, 5}}}));
    run();
    const auto where = client().answer_to(number).value<reserve_reply>().results[0].where;
    const page_ref page{test_task(1, 0).keys[0], where};
    REQUIRE(ask(shard, commit_atom_v, finish_request{ns.id(), 0, {7, 1}, std::vector{page}}).code() == errc::ok);
    return page;
  }

  void match() {
    REQUIRE(ask(shard, match_request{ns.id(), {7, 2}, std::chrono::seconds(5), test_task(1, 0).keys})
                .value<match_reply>()
                .matched == 1);
  }

  namespace_spec ns = small_namespace(1);
  probe slots{system()};
  probe worker{system()};
  probe metrics{system()};
  registry_actor shard;
};

} // namespace

TEST_CASE_METHOD(admitting_world, "io worker: shards are notified of dropped pages before their frames are reused",
                 "[io_worker]") {
  save({page(0), page(1), page(2), page(3)}, ones);
  CHECK(stats().written_pages == 0);
  CHECK(stats().unasked_pages == 4);
  CHECK(shard.inbox_size() == 0);
  const auto placed = place({page(4), page(5)});
  CHECK(codes_of(placed) == std::vector{errc::ok, errc::ok});
  const auto notified = shard.take_one<dropped_pages_request>();
  const auto& x = notified.get<dropped_pages_request>(0);
  CHECK(x.ns == namespace_id{1, 2});
  CHECK(x.rank == 0);
  CHECK(x.pages.items == std::vector{page(3), page(2)});
  CHECK(stats().dropped_pages == 2);
  CHECK(codes_of(fetch({page(3), page(0)})) == std::vector{errc::not_found, errc::ok});
  CHECK(stats().written_pages == 1);
}

TEST_CASE_METHOD(admitting_world, "io worker: a drain waits until shards have confirmed dropped pages", "[io_worker]") {
  save({page(0), page(1)}, ones);
  unpin(fetch({page(0)}).pin);
  const auto drained = begin(worker, drain_atom_v);
  run();
  const auto notified = shard.take_one<dropped_pages_request>();
  CHECK(notified.get<dropped_pages_request>(0).pages.items == std::vector{page(1)});
  CHECK_FALSE(client().answer_to(drained).came);
  shard.reply(notified, caf::make_message(all_ok(1)));
  run();
  CHECK(client().answer_to(drained).code() == errc::ok);
  CHECK(stats().written_pages == 1);
}

TEST_CASE_METHOD(promoting_world, "io worker: prefetches pages that a lookup has found until its lease ends",
                 "[io_worker]") {
  CHECK(stats().demotions == 4);
  hold_all();
  look_up({page(0), page(1), page(7)});
  CHECK(stats().in_flight == 1);
  CHECK(ask(worker, prefetch_end{0, {1, 1}, 0}).code() == errc::ok);
  release_all();
  CHECK(stats().prefetched_pages == 1);
  CHECK(stats().prefetches_cancelled == 2);
  const auto got = fetch({page(0)});
  CHECK(codes_of(got) == std::vector{errc::ok});
  CHECK(got.frames[0].promoted == 0);
  CHECK(holds(page(0), got.frames[0], ones));
  CHECK(stats().read_pages == 1);
}

TEST_CASE_METHOD(telling_shard, "registry: the io worker of a rank is notified of a lookup and of its end",
                 "[registry_actor]") {
  bind();
  const auto page = store();
  CHECK(worker.inbox_size() == 0);
  match();
  const auto found = worker.take_one<prefetch_request>();
  CHECK(found.get<prefetch_request>(0).pages.items == std::vector{page});
  CHECK(found.get<prefetch_request>(0).lease == ticket{7, 2});
  CHECK_FALSE(found.id.is_request());
  CHECK(ask(shard, release_request{ns.id(), {7, 2}, 0}).code() == errc::ok);
  const auto over = worker.take_one<prefetch_end>();
  CHECK(over.get<prefetch_end>(0).lease == ticket{7, 2});
  CHECK(over.get<prefetch_end>(0).keep == 0);
  worker.reply(over, caf::make_message());
  run();
}

TEST_CASE_METHOD(telling_shard, "registry: a rank that is added later may have an io worker or none",
                 "[registry_actor]") {
  bind(false);
  store();
  match();
  CHECK(worker.inbox_size() == 0);
  add_rank_request late{ns.id(), 0, 8, slots.as<allocator_actor>()};
  late.worker = worker.as<io_worker_actor>();
  REQUIRE(ask(shard, late).code() == errc::ok);
  CHECK(ask(shard, release_request{ns.id(), {7, 2}, 0}).code() == errc::ok);
  CHECK(worker.take<prefetch_end>().size() == 1);
  match();
  CHECK(worker.take<prefetch_request>().size() == 1);
}

TEST_CASE_METHOD(telling_shard, "registry: the number of io workers is that of allocators or zero",
                 "[registry_actor]") {
  registry_peers peers{{shard}, {slots.as<allocator_actor>()}, {ns.id()}, {0}};
  peers.workers = {worker.as<io_worker_actor>(), worker.as<io_worker_actor>()};
  CHECK(ask(shard, bind_atom_v, peers).code() == errc::invalid_argument);
  bind();
}

TEST_CASE_METHOD(telling_shard, "registry: a dropped page is no longer listed and its slot is released",
                 "[registry_actor]") {
  bind();
  const auto page = store();
  slots.take<publish_page_atom, slot_batch>();
  CHECK(ask(shard, dropped_pages_request{ns.id(), 0, std::vector{page}}).value<result_codes>().results.items ==
        std::vector<std::uint8_t>{0});
  CHECK(slots.take_one<release_atom, slot_batch>().get<slot_batch>(1).slots.items == std::vector{page.where});
  CHECK(ask(shard, match_request{ns.id(), {7, 2}, std::chrono::seconds(5), test_task(1, 0).keys})
            .value<match_reply>()
            .matched == 0);
  CHECK(ask(shard, dropped_pages_request{{9, 9}, 0, std::vector{page}}).code() == errc::unknown_namespace);
}

} // namespace prefetch_test
