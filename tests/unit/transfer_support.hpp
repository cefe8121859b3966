#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

/// Support code for the tests of the transfer coordinators.

namespace troupe::test {

inline constexpr timestamp t0{std::chrono::hours(1)};
inline constexpr std::chrono::milliseconds ms{1};

inline constexpr std::uint64_t test_slot_bytes = 8192;
inline constexpr std::uint64_t test_page_bytes = 4096;
inline constexpr namespace_id test_namespace{11, 12};

inline key_digest key(std::uint64_t n) {
  return hash_key(std::as_bytes(std::span(&n, 1)));
}

inline transfer::coordinator_options test_options(std::uint32_t batch_pages = 32, std::uint32_t tasks_max = 256) {
  return {test_namespace, 3, test_page_bytes, test_slot_bytes, batch_pages, tasks_max};
}

inline transfer::node_binding test_binding(std::uint32_t window = 8, std::uint32_t shards = 1) {
  transfer::node_binding out;
  out.owner = 77;
  out.ticket_stream = 5;
  out.shard_count = shards;
  out.batch_keys_max = 64;
  out.batch_pages_max = 4096;
  out.reservation_max = std::chrono::seconds(60);
  out.lease_max = std::chrono::seconds(60);
  out.window_pages = window;
  return out;
}

/// `count` blocks, keys from `first` on, in blocks from 100 on.
inline transfer_task test_task(std::uint32_t count, std::uint64_t first = 0,
                               duration deadline = std::chrono::seconds(1)) {
  transfer_task out;
  for (std::uint32_t i = 0; i < count; ++i) {
    out.keys.items.push_back(key(first + i));
    out.blocks.items.push_back(100 + i);
  }
  out.parent = key(1'000'000 + first);
  out.deadline = deadline;
  return out;
}

inline transfer_task tagged(std::uint64_t tag, transfer_task work) {
  work.tag = tag;
  return work;
}

/// The only element.
template <class T>
T only(std::vector<T> all) {
  REQUIRE(all.size() == 1);
  return std::move(all.front());
}

/// The effects of a state, taken out of its outbox and kept until the test takes them.
template <class State, class Effect>
class effects_of {
public:
  explicit effects_of(State& state) : state_(state) {}

  /// All effects of kind T that were not taken yet, in order.
  template <class T>
  std::vector<T> take() {
    for (auto& x : state_.take_outbox())
      kept_.push_back(std::move(x));
    std::vector<T> out;
    std::vector<Effect> rest;
    for (auto& x : kept_) {
      if (auto* found = std::get_if<T>(&x))
        out.push_back(std::move(*found));
      else
        rest.push_back(std::move(x));
    }
    kept_ = std::move(rest);
    return out;
  }

  /// The only effect of kind T that was not taken yet.
  template <class T>
  T one() {
    return only(take<T>());
  }

  /// How many effects were not taken.
  std::size_t left() {
    for (auto& x : state_.take_outbox())
      kept_.push_back(std::move(x));
    return kept_.size();
  }

private:
  State& state_;
  std::vector<Effect> kept_;
};

template <class Code>
packed<std::uint8_t> codes(std::initializer_list<Code> list) {
  packed<std::uint8_t> out;
  for (const auto code : list)
    out.items.push_back(static_cast<std::uint8_t>(code));
  return out;
}

inline packed<std::uint8_t> same_codes(std::size_t count, errc code = errc::ok) {
  return std::vector<std::uint8_t>(count, static_cast<std::uint8_t>(code));
}

inline std::vector<errc> results_of(const transfer_result& x) {
  std::vector<errc> out;
  for (const auto code : x.results)
    out.push_back(static_cast<errc>(code));
  return out;
}

/// Slots 0, 1, … of generation 7 for all keys of a request.
template <class Keys>
std::vector<location> locations(const Keys& keys, std::uint32_t first_slot = 0) {
  std::vector<location> out;
  for (std::uint32_t i = 0; i < keys.size(); ++i)
    out.push_back({{first_slot + i, 7}, 0});
  return out;
}

/// An io worker's frames and pins, as far as a coordinator sees them: no frame is given twice, and every pin is ended
/// exactly once.
class frame_keeper {
public:
  /// A frame for each page, but for those with a code.
  frame_reply give(std::size_t pages, const std::vector<errc>& why_not = {}) {
    frame_reply out;
    std::set<std::uint64_t> pinned;
    for (std::size_t i = 0; i < pages; ++i) {
      if (i < why_not.size() && why_not[i] != errc::ok) {
        out.frames.items.push_back({0, static_cast<std::uint32_t>(why_not[i])});
        continue;
      }
      std::uint64_t offset = 3 * test_slot_bytes;
      while (in_use_.contains(offset))
        offset += test_slot_bytes;
      in_use_.insert(offset);
      pinned.insert(offset);
      out.frames.items.push_back({offset, 0});
    }
    if (pinned.empty())
      return out;
    out.pin = ++last_;
    pins_.emplace(out.pin, std::pair(std::move(pinned), pages));
    return out;
  }

  /// The number of requested pages.
  std::size_t pages_of(pin_number pin) const {
    REQUIRE(pins_.contains(pin));
    return pins_.at(pin).second;
  }
  void end(pin_number pin) {
    INFO("pin " << pin);
    REQUIRE(pins_.contains(pin)); // never given, or ended before
    for (const auto offset : pins_.at(pin).first)
      in_use_.erase(offset);
    pins_.erase(pin);
  }

  std::size_t open_pins() const { return pins_.size(); }
  std::size_t in_use() const { return in_use_.size(); }

private:
  std::map<pin_number, std::pair<std::set<std::uint64_t>, std::size_t>> pins_;
  std::set<std::uint64_t> in_use_;
  pin_number last_ = 100;
};

/// The state of a transfer coordinator that is attached to a node, with its effects and the frames of its io worker.
template <class State, class Effect>
struct attached_coordinator {
  explicit attached_coordinator(const transfer::node_binding& node = test_binding(),
                                const transfer::coordinator_options& how = test_options())
      : state(how), effects(state) {
    state.bind(node);
  }

  State state;
  effects_of<State, Effect> effects;
  frame_keeper worker;

  /// Nothing of any task is left anywhere. Without a window there is no node any more that pins would matter to.
  void check_quiesced(std::uint32_t window) {
    CHECK(state.calls_under_way() == 0);
    CHECK(state.open_tasks() == 0);
    CHECK(state.window_left() == window);
    CHECK(state.next_deadline() == timestamp::max());
    CHECK(effects.left() == 0);
    if (window > 0)
      CHECK(worker.open_pins() == 0);
  }
};

inline tl::unexpected<error> no_answer() {
  return fail(errc::timeout, "no answer");
}

} // namespace troupe::test
