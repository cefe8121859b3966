#pragma once

#include "actors/client/transfer/load_coordinator.hpp"
#include "actors/client/transfer/lookup_coordinator.hpp"
#include "actors/client/transfer/save_coordinator.hpp"
#include "tests/actors/sim.hpp"
#include "tests/unit/transfer_support.hpp"

/// A coordinator whose registry shard, io worker and copy engine are probes.

namespace troupe::test {

inline constexpr duration request_timeout = std::chrono::milliseconds(500);

inline client_limits test_limits() {
  return {1024 * test_slot_bytes, 64, 32, std::chrono::seconds(60), std::chrono::seconds(60)};
}

struct coordinator_world : sim {
  probe shard{system()};
  probe worker{system()};
  probe copier{system()};
  frame_keeper frames;

  template <class Coordinator>
  transfer_actor spawn_coordinator(std::uint32_t tasks_max = 256) {
    return spawn<Coordinator>(test_options(32, tasks_max), copier.as<copy_engine_actor>(), request_timeout);
  }

  coordinator_binding binding(owner_id owner = 77) const {
    return {owner, 5, test_limits(), {shard.as<client_shard_actor>()}, worker.as<client_worker_actor>(), 8};
  }

  template <class Coordinator>
  transfer_actor spawn_bound(std::uint32_t tasks_max = 256) {
    auto out = spawn_coordinator<Coordinator>(tasks_max);
    REQUIRE(ask(out, bind_atom_v, binding()).code() == errc::ok);
    return out;
  }

  template <class... Reply>
  void reply(probe& from, const received& to, Reply... content) {
    from.reply(to, caf::make_message(std::move(content)...));
    run();
  }

  void grant(const received& x) { reply(shard, x, reserve_reply{locations(x.get<reserve_request>(0).keys)}); }
  void locate(const received& x) { reply(shard, x, locate_reply{locations(x.get<locate_request>(0).keys)}); }
  void copy(const received& x, errc code = errc::ok) {
    reply(copier, x, copy_reply{same_codes(x.get<copy_order>(1).items.size(), code), {}});
  }
  /// Answers a place or a fetch: with a frame for each page, or with this code.
  void give(const received& x, errc code = errc::ok) {
    const auto pages = x.get<frame_request>(1).pages.size();
    reply(worker, x, frames.give(pages, std::vector(pages, code)));
  }
  void fill(const received& x, errc code = errc::ok) {
    const auto& what = x.get<fill_request>(1);
    CHECK(what.gathered.size() == frames.pages_of(what.pin));
    frames.end(what.pin);
    reply(worker, x, io_reply{code == errc::ok ? what.gathered : same_codes(what.gathered.size(), code)});
  }
  /// Answers the unpins since the last call and returns how many pins they ended.
  std::size_t end_pins() {
    const auto all = worker.take<unpin_atom, pin_number>();
    for (const auto& x : all) {
      frames.end(x.get<pin_number>(1));
      reply(worker, x);
    }
    return all.size();
  }
  void finish(const received& x, errc code = errc::ok) {
    reply(shard, x, finish_reply{same_codes(x.get<finish_request>(1).pages.size(), code)});
  }

  std::vector<errc> results(std::uint64_t number) {
    return results_of(client().answer_to(number).value<transfer_result>());
  }
};

} // namespace troupe::test
