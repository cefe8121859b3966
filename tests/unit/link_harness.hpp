#pragma once

#include "actors/client/link/link_state.hpp"
#include "io/page.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::test {

inline constexpr owner_id harness_owner = 4711;
inline constexpr timestamp harness_start{};
inline const kv_geometry small_pages{2, 2, 4, 8, 2, 16};
inline const std::uint64_t harness_slot = io::slot_bytes(small_pages.page_bytes());

/// The rules of a link and their effects.
struct harness {
  explicit harness(bool comes_back = true, bool caller_logs = false, bool only_loads = false)
      : state({comes_back, std::chrono::milliseconds(200), std::chrono::milliseconds(1600), 1, "nobody has looked yet",
               5 * harness_slot + 4096, caller_logs, only_loads}) {
    state.start();
    collect();
  }

  void collect() {
    for (auto& x : state.take_outbox())
      effects.push_back(std::move(x));
  }

  /// All effects of a kind since the last call, in order.
  template <class Effect>
  std::vector<Effect> take() {
    collect();
    std::vector<Effect> out;
    std::erase_if(effects, [&](const link_effect& x) {
      if (const auto* one = std::get_if<Effect>(&x))
        out.push_back(*one);
      return std::holds_alternative<Effect>(x);
    });
    return out;
  }
  template <class Effect>
  Effect take_one() {
    auto all = take<Effect>();
    REQUIRE(all.size() == 1);
    return all.front();
  }

  static node_offer offer(owner_id as = harness_owner) {
    return {as, "a node", {5, 6}, "small", small_pages, {0, 1}, 64 * harness_slot};
  }

  link_try find() {
    const auto number = take_one<link_seek>().number;
    state.on_found(number);
    CHECK(take_one<link_attach>().number == number);
    return number;
  }
  void attach(const node_offer& as = offer()) { CHECK(state.on_attached(find(), as)); }

  /// Completes everything that the state needs to work, for two ranks.
  void bind_all() {
    state.on_bound(take_one<link_bind_lookup>().epoch, {}, harness_start);
    for (const auto& x : take<link_map>())
      state.on_mapped(x.epoch, x.rank, {}, harness_start);
    for (const auto& x : take<link_bind_transfer>())
      state.on_bound(x.epoch, {}, harness_start);
  }

  /// Answers the requests to copy engines to quiesce.
  void rest() {
    for (const auto& x : take<link_quiesce>())
      state.on_quiesced(x.owner, {});
  }
  /// The owners reported as quiesced since the last call, to the node that was left or to the current one.
  std::vector<owner_id> said(bool to_left) {
    std::vector<owner_id> out;
    collect();
    std::erase_if(effects, [&](const link_effect& x) {
      const auto* one = std::get_if<link_report_quiesced>(&x);
      if (one == nullptr || one->to_left != to_left)
        return false;
      out.push_back(one->owner);
      return true;
    });
    return out;
  }

  /// The code with which that wait has ended; `internal` if it has not.
  errc ended(link_wait who) {
    auto out = errc::internal;
    for (const auto& x : take<link_answer>()) {
      CHECK(answered.insert(x.wait).second); // once
      outcomes.emplace_back(x.wait, x.outcome ? errc::ok : x.outcome.error().code);
    }
    for (const auto& [wait, code] : outcomes)
      out = wait == who ? code : out;
    return out;
  }

  link_state state;
  std::vector<link_effect> effects;
  std::set<link_wait> answered;
  std::vector<std::pair<link_wait, errc>> outcomes;
};

} // namespace troupe::test
