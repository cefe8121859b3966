#pragma once

#include "base/clock.hpp"
#include "tests/group_simulation/defect.hpp"
#include "tests/group_simulation/model.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::group_simulation {

/// State that all parts of a simulated run share: its seed, its time, and what has happened.
class world {
public:
  using action = std::function<void()>;

  /// `ignored`: properties that are not checked, separated by commas.
  world(std::uint64_t seed, defect built_in, std::string_view ignored, bool verbose)
      : random(seed), made(make_shape(random)), built_in_(built_in), ignored_("," + std::string(ignored) + ","),
        verbose_(verbose) {}

  simulation::random_source random;
  const shape made;
  /// Nothing fails any more.
  bool calm = false;

  bool has(defect x) const noexcept { return built_in_ == x; }
  bool rarely(std::uint64_t n) { return !calm && random.one_in(n); }

  timestamp now() const noexcept { return now_; }
  void after(duration time, action what) { agenda_.emplace(std::pair(now_ + time, ++sequence_), std::move(what)); }
  bool quiet() const noexcept { return agenda_.empty(); }
  /// Time passes, and what is due happens.
  void pass(duration time) {
    const auto until = now_ + time;
    while (!agenda_.empty() && agenda_.begin()->first.first <= until) {
      now_ = agenda_.begin()->first.first;
      const auto what = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      what();
    }
    now_ = until;
  }

  void count(std::string_view what) { ++out.counts[std::string(what)]; }
  /// One event of the trace.
  void trace(std::string_view what, std::string_view who, std::uint64_t a = 0, std::uint64_t b = 0);
  /// A property is broken. The first one stays.
  void broken(std::string_view property, std::string text);
  bool failed() const noexcept { return !out.property.empty(); }

  sim_main::outcome out;

private:
  defect built_in_;
  std::string ignored_;
  bool verbose_;
  timestamp now_{std::chrono::hours(1000)};
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
};

} // namespace troupe::group_simulation
