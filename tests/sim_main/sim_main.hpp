#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The common part of the programs of seeded simulations: options, seeds one after the other or in parallel, their
/// results, and the command that replays one.

namespace troupe::sim_main {

/// Counters of events, which show whether a range of seeds has covered the cases that it is meant to cover.
using tally = std::map<std::string, std::uint64_t, std::less<>>;

/// The result of one seed.
struct outcome {
  std::uint64_t seed = 0;
  /// Steps of the kind that the world counts.
  std::uint64_t steps = 0;
  /// Everything that happened, beyond the end of the steps too.
  std::uint64_t events = 0;
  std::uint64_t trace_hash = 0;
  /// The broken property and what broke it, empty if none is.
  std::string property;
  std::string failure;
  tally counts;
  /// The world, in a line.
  std::string description;
};

struct run_options {
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;
  /// The name of a mistake to build in; empty for none.
  std::string_view defect;
  bool verbose = false;
};

/// Another option of a program: `--name`, or `--name VALUE`.
struct flag {
  std::string_view name;
  std::string_view text;
  bool* set = nullptr;
};
struct choice {
  std::string_view name;
  std::string_view text;
  std::string_view* value = nullptr;
};

struct program {
  std::string_view name;
  /// The subject of the simulation, in a sentence or two.
  std::string_view about;
  /// The name of the steps.
  std::string_view steps_text;
  std::uint64_t default_steps = 1000;
  /// The values of `--defect`.
  std::vector<std::string_view> defects;
  std::vector<flag> flags{};
  std::vector<choice> choices{};
  /// After the options are known: the events that `--coverage` requires.
  std::function<std::vector<std::string_view>()> must_happen;
  std::function<outcome(const run_options&)> run;
  /// More lines about a seed that has failed; may be empty.
  std::function<void(const run_options&, const outcome&)> explain{};
  /// Seeds that may fail before it ends, unless one is expected to.
  std::uint64_t failures_max = ~std::uint64_t{0};
};

/// The names of requests that `asked_requests` has counted, and none of which was abandoned.
std::vector<std::string> never_abandoned(const tally& counts);

/// Returns the exit code. 0: no property was broken, or an expected one was. 1: otherwise. 2: wrong usage.
int run(const program& what, std::span<const char* const> arguments);

/// The mistakes that can be built in, by name.
template <class Defect, std::size_t Count>
using defect_table = std::array<std::pair<std::string_view, Defect>, Count>;

/// `Defect::none` for a name that is not in the table.
template <class Defect, std::size_t Count>
constexpr Defect find_defect(const defect_table<Defect, Count>& all, std::string_view name) noexcept {
  for (const auto& [known, which] : all)
    if (known == name)
      return which;
  return Defect::none;
}

/// The same for a program whose worlds are made of a seed, a number of steps and a mistake, and have nothing else to
/// say.
template <class World, class Defect, std::size_t Count>
int run_worlds(program what, const defect_table<Defect, Count>& defects, std::span<const char* const> arguments) {
  for (const auto& [name, which] : defects)
    what.defects.push_back(name);
  what.run = [&defects](const run_options& x) {
    auto out = World(x.seed, x.steps, find_defect(defects, x.defect)).run();
    out.seed = x.seed;
    out.steps = x.steps;
    return out;
  };
  what.failures_max = 5;
  return run(what, arguments);
}

} // namespace troupe::sim_main
