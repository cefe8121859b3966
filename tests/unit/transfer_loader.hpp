#pragma once

#include "actors/client/transfer/load_state.hpp"
#include "tests/unit/transfer_support.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::test {

/// The state of a load coordinator with its effects, and helpers for the answers of other parts.
struct loader : attached_coordinator<transfer::load_state, transfer::load_effect> {
  using attached_coordinator::attached_coordinator;

  template <class T>
  std::vector<T> take() {
    end_pins();
    return effects.take<T>();
  }
  template <class T>
  T one() {
    return only(take<T>());
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

  /// As above, with all pins ended.
  void check_quiesced(std::uint32_t window) {
    end_pins();
    attached_coordinator::check_quiesced(window);
  }
};

} // namespace troupe::test
