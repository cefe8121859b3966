#include "actors/client/copy_engine/copy_lane.hpp"
#include "actors/node/metrics/metrics.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "tests/actors/garbage_support.hpp"
#include "tests/actors/io_worker_support.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <memory>
#include <vector>

namespace garbage_io_test {

using namespace troupe;
using namespace troupe::test;

/// Io worker, copy engine and metrics answer whatever they are asked.

TEST_CASE_METHOD(io_worker_world, "garbage: an io worker refuses requests outside of the slab and its limits",
                 "[garbage][io_worker]") {
  const auto both = [&](const frame_request& x) {
    const auto placing = ask(worker, place_atom_v, owner_id{3}, x);
    const auto fetching = ask(worker, fetch_atom_v, owner_id{3}, x);
    CHECK(placing.code() == fetching.code());
    if (placing.code() != errc::ok) {
      CHECK_FALSE(placing.failure.text.empty());
      CHECK_FALSE(fetching.failure.text.empty());
      return std::vector{placing.code()};
    }
    CHECK(codes_of(placing.value<frame_reply>()) == codes_of(fetching.value<frame_reply>()));
    return codes_of(placing.value<frame_reply>());
  };
  CHECK(both(request({})).empty());
  for (const auto time : {duration::zero(), duration(-1), duration::min()})
    CHECK(both(request({page(0)}, time)) == std::vector{errc::timeout});
  CHECK(both(request({page(8), page(~0U, ~0U), page(0, 0)}, duration::max())) ==
        std::vector{errc::out_of_range, errc::out_of_range, errc::stale});
  CHECK(both(request(std::vector(2 * io_worker_options{}.batch_pages_max, page(0)))) ==
        std::vector{errc::limit_exceeded});
  CHECK(both(request(std::vector(17, page(0)))) == std::vector{errc::limit_exceeded});
  // The same page twice, or another key in its slot, gets no second frame.
  const auto placed = place({page(0), page(0), {key_digest{9, 9}, {0, 1}}, page(1)});
  CHECK(codes_of(placed) == std::vector{errc::ok, errc::busy, errc::busy, errc::ok});
  for (const auto unknown : {pin_number{0}, placed.pin + 1, ~pin_number{0}}) {
    CHECK(ask(worker, fill_atom_v, owner_id{1}, all_gathered(unknown, 4)).code() == errc::not_found);
    CHECK(ask(worker, unpin_atom_v, owner_id{1}, unknown).code() == errc::not_found);
  }
  CHECK(ask(worker, unpin_atom_v, owner_id{1}, placed.pin).code() == errc::not_found);
  CHECK(ask(worker, fill_atom_v, owner_id{2}, all_gathered(placed.pin, 4)).code() == errc::not_found);
  // Fewer and stranger words than there are pages.
  gather(page(0), placed.frames[0], std::byte{1});
  CHECK(codes_of(ask(worker, fill_atom_v, owner_id{1},
                     fill_request{placed.pin,
                                  packed<std::uint8_t>{{std::uint8_t{0}, std::uint8_t{0}, std::uint8_t{0},
                                                        std::uint8_t{255}, std::uint8_t{0}}},
                                  duration::min()})) ==
        std::vector{errc::ok, errc::not_found, errc::not_found, errc::internal});
  // The same slot, fenced twice in one request and outside of the slab, while a transfer in it is in progress.
  hold_all();
  save({page(2)}, std::byte{2});
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{2, 1}, {2, 1}, {~0U, 1}, {2, 0}}});
  CHECK(ask(worker, fence_atom_v, slot_batch{}).code() == errc::ok);
  CHECK(ask(worker, fence_atom_v, slot_batch{std::vector<slot_ref>(9, {2, 1})}).code() == errc::limit_exceeded);
  CHECK_FALSE(client().answer_to(fencing).came);
  release_all();
  CHECK(client().answer_to(fencing).code() == errc::ok);
  // One of the two slots is drained first.
  save({page(3), page(4)}, std::byte{3});
  const auto both_slots = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{3, 1}, {4, 1}}});
  engine->release(engine->held().front());
  run();
  CHECK_FALSE(client().answer_to(both_slots).came);
  release_all();
  CHECK(client().answer_to(both_slots).code() == errc::ok);
  CHECK(ask(worker, owner_died_atom_v, owner_id{0}).code() == errc::ok);
  CHECK(ask(worker, owner_quiesced_atom_v, owner_id{77}).code() == errc::ok);
  CHECK(stats().in_flight == 0);
  CHECK(client().answers_left() == 0);
}

TEST_CASE("garbage: an io worker answers every request once the held disk I/O completes", "[garbage][io_worker]") {
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
    const auto owner = [&] { return make.one_in(4) ? make.make<owner_id>() : owner_id{1 + make.below(3)}; };
    const auto pin = [&] { return make.one_in(4) ? make.make<std::uint64_t>() : 1 + make.below(60); };
    for (int i = 0; i < 400; ++i) {
      auto work = make.make<frame_request>();
      if (!make.one_in(3))
        work.pages = packed<page_ref>{{w.page(static_cast<slot_number>(make.below(9)))}};
      if (!make.one_in(4))
        work.patience = std::chrono::milliseconds(50);
      switch (make.below(9)) {
      case 0:
      case 1:
        asks.ask(w.worker, place_atom_v, owner(), work);
        break;
      case 2:
      case 3:
        asks.ask(w.worker, fetch_atom_v, owner(), work);
        break;
      case 4:
        asks.ask(w.worker, fence_atom_v, make.make<slot_batch>());
        break;
      case 5:
        asks.ask(w.worker, fill_atom_v, owner(),
                 make.one_in(2) ? make.make<fill_request>() : w.all_gathered(pin(), 1 + make.below(2)));
        break;
      case 6:
        asks.ask(w.worker, unpin_atom_v, owner(), pin());
        break;
      case 7:
        if (make.one_in(2))
          asks.ask(w.worker, owner_quiesced_atom_v, owner());
        else if (make.one_in(10))
          asks.ask(w.worker, owner_died_atom_v, make.make<owner_id>());
        break;
      default:
        asks.ask(w.worker, stats_atom_v);
      }
      if (make.one_in(10))
        w.release_all();
      if (make.one_in(10))
        w.advance(std::chrono::milliseconds(60));
    }
    const auto draining = w.begin(w.worker, drain_atom_v);
    asks.expect(draining, "drain");
    for (int i = 0; i < 200 && !w.client().answer_to(draining).came; ++i) {
      w.release_all();
      w.advance(std::chrono::milliseconds(100));
    }
    asks.check_all_answered();
    CHECK(asks.accepted() > 20);
    CHECK(asks.refused() > 20);
    CHECK(w.stats().in_flight == 0);
  }
}

namespace {

struct copy_world : sim {
  const namespace_spec ns = small_namespace();
  replay::device_memory device = *replay::device_memory::create(ns.geometry, 8, {});
  std::shared_ptr<io::arena> memory = *io::arena::create({4 * 8192, 2 * 8192, io::huge_page_choice::off});
  copy_engine_actor engine = spawn<copy_lane>(std::make_shared<copy_engine_state>(
      copy_engine_options{ns.id(), 0, 64, std::make_shared<io::arena_finder>()}, *make_host_page_mover(device.view())));

  arena_info good() const { return {4 * 8192, 2 * 8192, io::encode(memory->name())}; }
};

} // namespace

TEST_CASE_METHOD(copy_world, "garbage: a copy engine answers any order with a code per item and continues",
                 "[garbage][copy_engine]") {
  quiet_log quiet;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    hostile_filler make(seed, ns.id(), 64, {});
    questioner asks(*this);
    for (int i = 0; i < 300; ++i) {
      auto order = make.make<copy_order>();
      if (!make.one_in(4))
        order.owner = 3;
      if (!make.one_in(4))
        order.further_blocks.items.clear();
      if (!make.one_in(4))
        order.ready_event = 0;
      if (make.one_in(5)) {
        if (make.one_in(4))
          asks.ask(engine, unbind_atom_v, owner_id{3});
        asks.ask(engine, bind_atom_v, owner_id{make.one_in(4) ? make.make<owner_id>() : 3},
                 make.one_in(2) ? make.make<arena_info>() : good());
      } else if (order.owner != 3 || order.items.size() > 64) {
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
    REQUIRE(ask(engine, bind_atom_v, owner_id{3}, good()).code() == errc::ok);
    device.fill(5, key(5), 0);
    const copy_order sound{3, std::vector<copy_item>{{key(5), {1, 1}, 8192, 5}}};
    CHECK(ask(engine, gather_atom_v, sound).value<copy_reply>().results[0] == 0);
    device.poison(5);
    CHECK(ask(engine, scatter_atom_v, sound).value<copy_reply>().results[0] == 0);
    CHECK_FALSE(device.verify(5, key(5), 0));
  }
}

TEST_CASE("garbage: metrics accept any samples and any counts", "[garbage][metrics]") {
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
