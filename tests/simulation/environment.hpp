#pragma once

#include "base/error.hpp"
#include "tests/simulation/defect.hpp"
#include "tests/simulation/parameters.hpp"
#include "tests/simulation/schedule.hpp"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace troupe::simulation {

/// Counters of events, which show whether a range of seeds has covered the cases that it is meant to cover.
using tally = std::map<std::string, std::uint64_t, std::less<>>;

/// State that all parts of one simulated world share. Worlds share nothing with each other.
class environment {
public:
  environment(std::uint64_t seed, defect built_in, bool verbose);

  random_source random;
  const parameters p;
  simulation::schedule schedule;
  const defect built_in;
  /// Counts the turns of actors.
  std::uint64_t turn = 0;
  /// Counts processes.
  std::uint32_t processes = 0;
  /// No new faults and no new work from now on.
  bool winding_down = false;

  timestamp now() const noexcept { return schedule.now(); }
  bool has(defect which) const noexcept { return built_in == which; }
  bool verbose() const noexcept { return verbose_; }

  /// One event of the trace: goes into the hash, and to stdout if verbose. `comment` goes to stdout only.
  void trace(std::string_view what, std::initializer_list<std::uint64_t> numbers = {}, const std::string& comment = {});
  std::uint64_t trace_hash() const noexcept { return hash_; }

  void count(std::string_view what, std::uint64_t n = 1);
  /// "what: name of code"
  void count(std::string_view what, errc code);
  const tally& counts() const noexcept { return counts_; }

  /// An invariant is broken; `property` is a short name for its kind. The first one stays.
  void fail(std::string_view property, std::string text);
  /// The same, unless `wrong` is empty.
  void judge(std::string_view property, std::string wrong);
  bool failed() const noexcept { return !failure_.empty(); }
  const std::string& property() const noexcept { return property_; }
  const std::string& failure() const noexcept { return failure_; }

private:
  void mix_in(std::uint64_t x) noexcept { hash_ = (hash_ ^ x) * 0x100000001b3ULL; }

  bool verbose_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  tally counts_;
  std::string property_;
  std::string failure_;
};

} // namespace troupe::simulation
