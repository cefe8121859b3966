#pragma once

#include "base/log.hpp"
#include "tests/actors/sim.hpp"

#include <array>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Messages that no valid client sends, and a requester that checks that each has one answer.

namespace troupe::test {

/// Fills messages with values from the edges, drawn at random: walks them as a serialiser does.
class hostile_filler {
public:
  using result_type = void;
  static constexpr bool reads_state = false;
  static constexpr bool writes_state = true;

  /// `ns` is the one namespace that exists. Batches have at most `batch_max` items, but for one in twenty, which has
  /// up to twice as many. Handles are null, or of one of `actors`.
  hostile_filler(std::uint64_t seed, const namespace_id& ns, std::size_t batch_max, std::vector<const probe*> actors)
      : random_(seed), ns_(ns), batch_max_(batch_max), actors_(std::move(actors)) {}

  template <class T>
  T make() {
    T out{};
    field(out);
    return out;
  }

  bool one_in(std::uint32_t n) { return random_() % n == 0; }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  template <class T>
  const T& one_of(const std::vector<T>& xs) {
    return xs[random_() % xs.size()];
  }

  template <class... Ts>
  void operator()(Ts&&... xs) {
    (field(xs), ...);
  }

private:
  template <class T>
  void field(T& x) {
    if constexpr (caf::meta::is_annotation<T>::value) {
    } else if constexpr (std::is_same_v<T, bool>) {
      x = one_in(2);
    } else if constexpr (std::is_integral_v<T>) {
      x = number<T>();
    } else if constexpr (std::is_enum_v<T>) {
      x = static_cast<T>(number<std::underlying_type_t<T>>());
    } else {
      inside(x);
    }
  }

  template <class T>
  T number() {
    constexpr auto most = std::numeric_limits<T>::max();
    constexpr auto least = std::numeric_limits<T>::min();
    const std::array<T, 10> edges{0, 1, 2, 3, 7, 100, static_cast<T>(most / 2), static_cast<T>(most - 1), most, least};
    return one_in(10) ? static_cast<T>(random_()) : edges[random_() % edges.size()];
  }

  template <class T>
  void inside(T& x) {
    inspect(*this, x);
  }
  /// None so long that a test had to wait for it.
  void inside(duration& x) {
    const std::array<duration, 7> edges{duration::zero(),
                                        duration(-1),
                                        duration::min(),
                                        std::chrono::hours(-1),
                                        std::chrono::milliseconds(1),
                                        std::chrono::milliseconds(150),
                                        std::chrono::seconds(1)};
    x = edges[random_() % edges.size()];
  }
  void inside(std::string& x) {
    const std::array<std::string, 6> edges{"", "small", "other", std::string(5000, 'x'), std::string("\0\xff\n\"", 4),
                                           "a"};
    x = edges[random_() % edges.size()];
  }
  void inside(namespace_id& x) {
    x = one_in(8) ? namespace_id{} : one_in(8) ? namespace_id{random_(), random_()} : ns_;
  }
  void inside(key_digest& x) {
    x = one_in(60) ? key_digest{} : key_digest{0x9e3779b97f4a7c15ULL * (1 + random_() % 12), random_() % 2};
  }
  void inside(ticket& x) { x = {one_of(std::vector<owner_id>{0, 7, 8, 9}), random_() % 12}; }
  void inside(slot_ref& x) {
    field(x.slot);
    x.generation = one_in(3) ? number<generation_number>() : static_cast<generation_number>(101 + random_() % 8);
    if (!one_in(3))
      x.slot %= 9;
  }
  void inside(location& x) {
    field(x.where);
    field(x.status);
  }
  void inside(child_delta& x) {
    field(x.parent);
    field(x.delta);
    field(x.evicted);
  }
  void inside(host_address& x) {
    for (auto& byte : x.bytes)
      field(byte);
  }
  void inside(page_frame& x) {
    x.offset = one_in(3) ? number<std::uint64_t>() : 4096 * (random_() % 20);
    field(x.status);
    field(x.promoted);
    field(x.size);
  }
  void inside(copy_item& x) {
    field(x.key);
    field(x.where);
    x.frame_offset = one_in(3) ? number<std::uint64_t>() : 4096 * (random_() % 20);
    field(x.block);
    field(x.frame);
  }
  void inside(latency_sample& x) {
    field(x.kind);
    field(x.items);
    field(x.nanoseconds);
  }
  std::size_t length() {
    return one_in(20) ? random_() % (2 * batch_max_ + 1) : random_() % std::min<std::size_t>(batch_max_, 9);
  }
  template <class T>
  void inside(packed<T>& x) {
    x.items.resize(length());
    for (auto& y : x.items)
      field(y);
  }
  template <class T>
  void inside(std::vector<T>& x) {
    x.resize(random_() % 4);
    for (auto& y : x)
      field(y);
  }
  void inside(caf::actor& x) { x = one_in(4) ? caf::actor{} : one_of(actors_)->as<>(); }
  template <class... Sigs>
  void inside(caf::typed_actor<Sigs...>& x) {
    x = one_in(4) ? caf::typed_actor<Sigs...>{} : one_of(actors_)->as<caf::typed_actor<Sigs...>>();
  }

  std::mt19937_64 random_;
  namespace_id ns_;
  std::size_t batch_max_;
  std::vector<const probe*> actors_;
};

/// Warnings about garbage are for users of the product and too many for the output of tests.
class quiet_log {
public:
  quiet_log() { log::set_level("off"); }
  ~quiet_log() { log::set_level("info"); }
  quiet_log(const quiet_log&) = delete;
  quiet_log& operator=(const quiet_log&) = delete;
};

/// Sends requests and keeps book of their answers.
class questioner {
public:
  explicit questioner(sim& world) : world_(world) {}

  template <class Handle, class... Ts>
  void ask(const Handle& to, Ts... xs) {
    auto text = caf::deep_to_string(std::forward_as_tuple(xs...)).substr(0, 400);
    for (auto& c : text)
      c = c < ' ' ? '.' : c;
    const auto number = world_.begin(to, std::move(xs)...);
    expect(number, std::move(text));
  }

  /// A request that the test has sent by itself.
  void expect(std::uint64_t number, std::string text) {
    open_.push_back({number, std::move(text)});
    collect();
  }

  /// The number of requests without an answer.
  std::size_t open() {
    collect();
    return open_.size();
  }

  std::size_t refused() const { return refused_; }
  std::size_t accepted() const { return accepted_; }

  /// All have been answered, once, by a result or by an error of ours with a sentence.
  void check_all_answered() {
    collect();
    for (const auto& x : open_) {
      INFO("no answer to " << x.text);
      CHECK(false);
    }
    CHECK(world_.client().answers_left() == 0);
    open_.clear();
  }

private:
  struct question {
    std::uint64_t number = 0;
    std::string text;
  };

  void collect() {
    std::vector<question> rest;
    for (auto& x : open_) {
      const auto got = world_.client().answer_to(x.number);
      if (!got.came) {
        rest.push_back(std::move(x));
        continue;
      }
      ++(got.failure.code == errc::ok ? accepted_ : refused_);
      INFO("question " << x.text << ", answer " << to_string(got.failure));
      if (got.failure.code != errc::ok)
        CHECK_FALSE(got.failure.text.empty());
      CHECK(got.failure.text.find("unexpected_message") == std::string::npos); // there is no handler
      CHECK(got.failure.text.find("runtime_error") == std::string::npos);      // or the handler throws
    }
    open_ = std::move(rest);
  }

  sim& world_;
  std::vector<question> open_;
  std::size_t refused_ = 0;
  std::size_t accepted_ = 0;
};

} // namespace troupe::test
