#include "actors/client/copy_engine/copy_lane.hpp"
#include "actors/node/metrics/metrics.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/actors/garbage_support.hpp"
#include "tests/actors/io_worker_support.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <memory>
#include <unistd.h>
#include <vector>

namespace garbage_io_test {

using namespace troupe;
using namespace troupe::test;

/// Io worker, copy engine and metrics answer whatever they are asked.

TEST_CASE_METHOD(io_worker_world, "garbage: an io worker refuses what is outside of slab, segment and limits",
                 "[garbage][io_worker]") {
  const auto segment = open().segment;
  const auto both = [&](const io_batch& x) {
    const auto reading = ask(worker, read_atom_v, x);
    const auto writing = ask(worker, write_atom_v, x);
    CHECK(reading.code() == writing.code());
    if (reading.code() != errc::ok) {
      CHECK_FALSE(reading.failure.text.empty());
      return std::vector{reading.code()};
    }
    CHECK(codes_of(reading) == codes_of(writing));
    return codes_of(reading);
  };
  CHECK(both(batch(segment, {})).empty());
  for (const auto unknown : {std::uint64_t{0}, segment + 1, ~std::uint64_t{0}})
    CHECK(both(batch(unknown, {item(0, 0)})) == std::vector{errc::expired});
  for (const auto time : {duration::zero(), duration(-1), duration::min()})
    CHECK(both({segment, time, std::vector{item(0, 0)}}) == std::vector{errc::timeout});
  CHECK(both({segment, duration::max(), std::vector{item(0, 0)}}) == std::vector{errc::ok});
  CHECK(both(batch(segment, std::vector(2 * io_worker_options{}.batch_pages_max, item(0, 0)))) ==
        std::vector{errc::limit_exceeded});
  const std::uint64_t most = ~std::uint64_t{0} / 4096 * 4096;
  CHECK(both(batch(segment, {{{0, 1}, 0, 0},
                             {{0, 1}, 0, slot_size + 4096},
                             {{0, 1}, 0, 100},
                             {{0, 1}, 8, slot_size},
                             {{0, 1}, 7 * slot_size + 4096, slot_size},
                             {{0, 1}, most, slot_size},
                             {{0, 1}, 0, most},
                             {{8, 1}, 0, slot_size},
                             {{~0U, ~0U}, 0, slot_size},
                             {{0, 0}, 0, slot_size},
                             item(1, 1)})) ==
        std::vector{errc::invalid_argument, errc::invalid_argument, errc::invalid_argument, errc::invalid_argument,
                    errc::out_of_range, errc::out_of_range, errc::invalid_argument, errc::out_of_range,
                    errc::out_of_range, errc::stale, errc::ok});
  // The same slot, fenced twice in one request and outside of the slab, while something is under way in it.
  hold_all();
  const auto writing = begin(worker, write_atom_v, batch(segment, {item(2, 0), item(2, 1)}));
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{2, 1}, {2, 1}, {~0U, 1}, {2, 0}}});
  CHECK(ask(worker, fence_atom_v, slot_batch{}).code() == errc::ok);
  CHECK(ask(worker, fence_atom_v, slot_batch{std::vector<slot_ref>(9, {2, 1})}).code() == errc::limit_exceeded);
  CHECK_FALSE(client().answer_to(fencing).came);
  release_all();
  CHECK(codes_of(client().answer_to(writing)) == std::vector(2, errc::ok));
  CHECK(client().answer_to(fencing).code() == errc::ok);
  // Of two slots, one comes to rest first.
  const auto third = begin(worker, write_atom_v, batch(segment, {item(3, 0)}));
  const auto fourth = begin(worker, write_atom_v, batch(segment, {item(4, 1)}));
  const auto both_slots = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{3, 1}, {4, 1}}});
  engine->release(engine->held().front());
  run();
  CHECK(codes_of(client().answer_to(third)) == std::vector{errc::ok});
  CHECK_FALSE(client().answer_to(both_slots).came);
  release_all();
  CHECK(codes_of(client().answer_to(fourth)) == std::vector{errc::ok});
  CHECK(client().answer_to(both_slots).code() == errc::ok);
  CHECK(ask(worker, close_segment_atom_v, std::uint64_t{0}).code() == errc::not_found);
  CHECK(ask(worker, close_segment_atom_v, ~std::uint64_t{0}).code() == errc::not_found);
  CHECK(ask(worker, owner_died_atom_v, owner_id{0}).code() == errc::ok);
  CHECK(stats().in_flight == 0);
  CHECK(client().answers_left() == 0);
}

TEST_CASE("garbage: an io worker answers everything once the disk has let go", "[garbage][io_worker]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    io_worker_world w;
    hostile_filler make(seed, {1, 2}, 200, {});
    questioner asks(w);
    hostile_filler disk(1000 + seed, {}, 1, {});
    w.engine->set_plan([&disk](const io::request&, std::uint64_t) {
      fault out;
      out.held = disk.one_in(3);
      if (disk.one_in(5))
        out.status = disk.one_of(std::vector{errc::io_error, errc::no_space, errc::timeout, errc::slab_damaged});
      return out;
    });
    for (int i = 0; i < 300; ++i) {
      auto work = make.make<io_batch>();
      if (!make.one_in(4))
        work.segment = 1 + make.below(12);
      if (!make.one_in(4))
        work.deadline = std::chrono::seconds(1);
      switch (make.below(9)) {
      case 0:
      case 1:
        asks.ask(w.worker, read_atom_v, work);
        break;
      case 2:
      case 3:
        asks.ask(w.worker, write_atom_v, work);
        break;
      case 4:
        asks.ask(w.worker, fence_atom_v, make.make<slot_batch>());
        break;
      case 5:
        asks.ask(w.worker, open_segment_atom_v, make.make<owner_id>(),
                 make.one_in(2) ? make.make<std::uint64_t>() : std::uint64_t{4096}, make.make<std::int32_t>());
        break;
      case 6:
        asks.ask(w.worker, close_segment_atom_v, make.one_in(2) ? make.make<std::uint64_t>() : 1 + make.below(12));
        break;
      case 7:
        asks.ask(w.worker, owner_died_atom_v, make.make<owner_id>());
        break;
      default:
        asks.ask(w.worker, stats_atom_v);
      }
      if (make.one_in(10))
        w.release_all();
    }
    const auto draining = w.begin(w.worker, drain_atom_v);
    asks.expect(draining, "drain");
    w.release_all();
    asks.check_all_answered();
    CHECK(asks.accepted() > 20);
    CHECK(asks.refused() > 20);
    CHECK(w.stats().in_flight == 0);
    for (std::uint64_t segment = 1; segment < 200; ++segment)
      w.ask(w.worker, close_segment_atom_v, segment);
    CHECK(w.stats().segment_bytes == 0);
  }
}

namespace {

struct copy_world : sim {
  const namespace_spec space = small_space();
  replay::device_memory device = *replay::device_memory::create(space.geometry, 8, {});
  std::shared_ptr<io::arena> memory = *io::arena::create(4 * 8192);
  copy_engine_actor engine = spawn<copy_lane>(std::make_shared<copy_engine_state>(
      copy_engine_options{space.id(), 0, 64, std::make_shared<io::arena_finder>()},
      *make_host_page_mover(device.view())));

  segment_info good(std::uint64_t id) const {
    return {id, 4 * 8192, io::encode({::getpid(), memory->descriptor(), memory->proof()})};
  }
};

} // namespace

TEST_CASE_METHOD(copy_world, "garbage: a copy engine answers any order, each item with a code, and works on",
                 "[garbage][copy_engine]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    hostile_filler make(seed, space.id(), 64, {});
    questioner asks(*this);
    for (int i = 0; i < 300; ++i) {
      auto order = make.make<copy_order>();
      if (!make.one_in(4))
        order.segment = 3;
      if (!make.one_in(4))
        order.further_blocks.items.clear();
      if (!make.one_in(4))
        order.ready_event = 0;
      if (make.one_in(5)) {
        asks.ask(engine, bind_atom_v, make.one_in(2) ? make.make<segment_info>() : good(3));
      } else if (order.segment != 3 || order.items.size() > 64) {
        asks.ask(engine, gather_atom_v, order);
        asks.ask(engine, scatter_atom_v, order);
      } else {
        for (const auto& answered : {ask(engine, gather_atom_v, order), ask(engine, scatter_atom_v, order)})
          if (answered.code() == errc::ok) {
            const auto reply = answered.value<copy_reply>();
            CHECK(reply.results.size() == order.items.size());
            for (const auto code : reply.results)
              CHECK(code < errc_count);
          } else {
            CHECK((answered.code() == errc::expired || answered.code() == errc::invalid_argument));
          }
      }
    }
    asks.check_all_answered();
    REQUIRE(ask(engine, bind_atom_v, good(3)).code() == errc::ok);
    device.fill(5, key(5), 0);
    const copy_order sound{3, std::vector<copy_item>{{key(5), {1, 1}, 8192, 5}}};
    CHECK(ask(engine, gather_atom_v, sound).value<copy_reply>().results[0] == 0);
    device.poison(5);
    CHECK(ask(engine, scatter_atom_v, sound).value<copy_reply>().results[0] == 0);
    CHECK_FALSE(device.verify(5, key(5), 0));
  }
}

TEST_CASE("garbage: metrics take any samples and any counts", "[garbage][metrics]") {
  sim s;
  const auto actor = s.spawn<metrics>("node");
  hostile_filler make(1, {1, 2}, 50, {});
  questioner asks(s);
  for (int i = 0; i < 200; ++i) {
    if (make.one_in(2))
      asks.ask(actor, make.make<latency_batch>());
    else
      asks.ask(actor, make.make<node_stats>());
  }
  asks.check_all_answered();
  CHECK(asks.refused() == 0);
  CHECK(s.ask(actor, render_atom_v).value<std::string>().find("troupe_request_seconds") != std::string::npos);
}

} // namespace garbage_io_test
