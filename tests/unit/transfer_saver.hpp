#pragma once

#include "actors/client/transfer/save_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <cstdint>
#include <type_traits>
#include <vector>

namespace troupe::test {

/// The state of a save coordinator with its effects, and helpers for the answers of other parts.
struct saver : attached_coordinator<transfer::save_state, transfer::save_effect> {
  using attached_coordinator::attached_coordinator;

  /// Whether places are answered as they come, with a frame for each page.
  bool places_at_once = true;

  /// A fill that is taken has arrived: its pin has ended.
  template <class T>
  std::vector<T> take() {
    if (places_at_once && !std::is_same_v<T, transfer::save_place>)
      for (auto all = effects.take<transfer::save_place>(); !all.empty(); all = effects.take<transfer::save_place>())
        for (const auto& x : all)
          placed(x);
    auto out = effects.take<T>();
    if constexpr (std::is_same_v<T, transfer::save_fill>)
      for (const auto& x : out) {
        CHECK(x.request.gathered.size() == worker.pages_of(x.request.pin));
        worker.end(x.request.pin);
      }
    return out;
  }
  template <class T>
  T one() {
    return only(take<T>());
  }

  void grant(const transfer::save_reserve& x, timestamp now = t0, std::uint32_t first_slot = 0) {
    state.on_reserve(x.call, reserve_reply{locations(x.request.keys, first_slot)}, now);
  }
  void placed(const transfer::save_place& x, timestamp now = t0, const std::vector<errc>& why_not = {}) {
    state.on_place(x.call, worker.give(x.request.pages.size(), why_not), now);
  }
  void gathered(const transfer::save_gather& x, timestamp now = t0) {
    state.on_gather(x.call, copy_reply{same_codes(x.order.items.size()), 2 * ms}, now);
  }
  void filled(const transfer::save_fill& x, timestamp now = t0) {
    state.on_fill(x.call, io_reply{x.request.gathered}, now);
  }
  /// The frames of one place are given back, with this code for each page.
  void gives_back(const std::vector<errc>& why, timestamp now = t0) {
    const auto x = one<transfer::save_fill>();
    std::vector<errc> said;
    for (const auto code : x.request.gathered)
      said.push_back(static_cast<errc>(code));
    CHECK(said == why);
    filled(x, now);
  }
  void committed(const transfer::save_commit& x, timestamp now = t0) {
    state.on_commit(x.call, finish_reply{same_codes(x.request.pages.size())}, now);
  }
  void aborted(const transfer::save_abort& x, timestamp now = t0) {
    state.on_abort(x.call, finish_reply{same_codes(x.request.pages.size())}, now);
  }
};

} // namespace troupe::test
