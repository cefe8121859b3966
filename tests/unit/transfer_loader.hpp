#pragma once

#include "actors/client/transfer/load_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <utility>
#include <vector>

namespace troupe::test {

/// The state of a load coordinator with its effects, and helpers for the answers of other parts.
struct loader {
  explicit loader(const transfer::node_binding& node = test_binding(),
                  const transfer::coordinator_options& how = test_options())
      : state(how), effects(state) {
    state.bind(node);
  }

  transfer::load_state state;
  effects_of<transfer::load_state, transfer::load_effect> effects;

  frame_keeper worker;

  template <class T>
  std::vector<T> take() {
    end_pins();
    return effects.take<T>();
  }
  template <class T>
  T one() {
    auto all = take<T>();
    REQUIRE(all.size() == 1);
    return std::move(all.front());
  }

  void located(const transfer::load_locate& x, timestamp now = t0, std::uint32_t first_slot = 0) {
    state.on_locate(x.call, locate_reply{locations(x.request.keys, first_slot)}, now);
  }
  void fetched(const transfer::load_fetch& x, timestamp now = t0, const std::vector<errc>& why_not = {}) {
    state.on_fetch(x.call, worker.give(x.request.pages.size(), why_not), now);
  }
  void scattered(const transfer::load_scatter& x, timestamp now = t0) {
    state.on_scatter(x.call, copy_reply{same_codes(x.order.items.size()), 2 * ms}, now);
  }
  void released(const transfer::load_release& x, timestamp now = t0) { state.on_release(x.call, {}, now); }
  void release_all(timestamp now = t0) {
    for (const auto& x : take<transfer::load_release>())
      released(x, now);
  }

  /// How many pins were ended since the last call.
  std::size_t end_pins() {
    const auto all = effects.take<transfer::load_unpin>();
    for (const auto& x : all) {
      worker.end(x.pin);
      state.on_unpin(x.call, {}, t0);
    }
    return all.size();
  }

  /// Nothing of any task is left anywhere. Without a window there is no node any more that pins would matter to.
  void check_quiesced(std::uint32_t window) {
    end_pins();
    CHECK(state.calls_under_way() == 0);
    CHECK(state.open_tasks() == 0);
    CHECK(state.window_left() == window);
    CHECK(effects.left() == 0);
    if (window > 0)
      CHECK(worker.open_pins() == 0);
  }
};

} // namespace troupe::test
