#pragma once

#include "actors/client/transfer/save_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <utility>
#include <vector>

namespace troupe::test {

/// A save coordinator's state with its effects, and short names for what the others answer.
struct saver {
  explicit saver(const transfer::node_binding& node = test_binding(),
                 const transfer::coordinator_options& how = test_options())
      : state(how), effects(state) {
    state.bind(node);
  }

  transfer::save_state state;
  effects_of<transfer::save_state, transfer::save_effect> effects;

  template <class T>
  std::vector<T> take() {
    return effects.take<T>();
  }
  template <class T>
  T one() {
    auto all = take<T>();
    REQUIRE(all.size() == 1);
    return std::move(all.front());
  }

  void grant(const transfer::save_reserve& x, timestamp now = t0, std::uint32_t first_slot = 0) {
    state.on_reserve(x.call, reserve_reply{locations(x.request.keys, first_slot)}, now);
  }
  void gathered(const transfer::save_gather& x, timestamp now = t0) {
    state.on_gather(x.call, copy_reply{same_codes(x.order.items.size()), 2 * ms}, now);
  }
  void written(const transfer::save_write& x, timestamp now = t0) {
    state.on_write(x.call, io_reply{same_codes(x.batch.items.size())}, now);
  }
  void committed(const transfer::save_commit& x, timestamp now = t0) {
    state.on_commit(x.call, finish_reply{same_codes(x.request.pages.size())}, now);
  }
  void aborted(const transfer::save_abort& x, timestamp now = t0) {
    state.on_abort(x.call, finish_reply{same_codes(x.request.pages.size())}, now);
  }

  /// Nothing of any task is left anywhere.
  void check_at_rest(std::uint32_t buffers) {
    CHECK(state.calls_under_way() == 0);
    CHECK(state.open_tasks() == 0);
    CHECK(state.free_buffers() == buffers);
    CHECK(state.next_deadline() == timestamp::max());
    CHECK(effects.left() == 0);
  }
};

} // namespace troupe::test
