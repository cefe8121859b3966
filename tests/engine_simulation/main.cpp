#include "tests/engine_simulation/simulation.hpp"

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::engine_simulation;

constexpr std::string_view usage =
    R"(usage: troupe-engine-simulation [options]
Runs seeded simulations of an inference engine with both halves of the connector and a cache in which everything takes
its time and much goes wrong, and checks after every step what must hold.

  --seed N         the first seed (default 0)
  --seeds COUNT    how many seeds, one after the other (default 1)
  --steps M        steps of the engine in which requests and faults come (default 200)
  --verbose        print every event
  --hash           print the hash of each seed's trace
  --twice          run each seed twice and fail if the traces differ
  --coverage       fail if something that is meant to happen never happened
  --defect NAME    build a mistake into the simulated halves; --defect help lists them
  --expect NAMES   succeed if and only if some seed fails, and the first one that does breaks one of these properties,
                   separated by commas
  --ignore NAMES   do not check these properties, separated by commas
  --no-connector   the engine alone
  --no-shrink      do not look for a smaller run that fails in the same way

Exit code 0: all properties hold. 1: one does not; the seed and the way to replay it are printed. 2: wrong usage.
)";

struct arguments {
  std::uint64_t seed = 0;
  std::uint64_t seeds = 1;
  std::uint64_t steps = 200;
  defect built_in = defect::none;
  std::string_view expect;
  std::string_view ignore;
  bool verbose = false;
  bool hash = false;
  bool twice = false;
  bool coverage = false;
  bool no_connector = false;
  bool no_shrink = false;
};

std::uint64_t current_seed = 0;
std::uint64_t current_steps = 0;

extern "C" void say_seed(int signal) {
  char text[160];
  const auto length =
      std::snprintf(text, sizeof text,
                    "\nsignal %d in seed %llu\nreplay: troupe-engine-simulation --seed %llu --steps %llu --verbose\n",
                    signal, static_cast<unsigned long long>(current_seed),
                    static_cast<unsigned long long>(current_seed), static_cast<unsigned long long>(current_steps));
  if (::write(STDERR_FILENO, text, static_cast<std::size_t>(length)) < 0)
    std::_Exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::optional<std::uint64_t> to_number(std::string_view text) {
  std::uint64_t out = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failure != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return out;
}

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%.*s", what.c_str(), static_cast<int>(usage.size()), usage.data());
  return 2;
}

/// The exit code if the program is to end.
std::optional<int> parse(const std::vector<std::string_view>& args, arguments& out) {
  const std::pair<std::string_view, bool*> flags[] = {{"--verbose", &out.verbose},
                                                      {"--hash", &out.hash},
                                                      {"--twice", &out.twice},
                                                      {"--coverage", &out.coverage},
                                                      {"--no-connector", &out.no_connector},
                                                      {"--no-shrink", &out.no_shrink}};
  const std::pair<std::string_view, std::uint64_t*> numbers[] = {
      {"--seed", &out.seed}, {"--seeds", &out.seeds}, {"--steps", &out.steps}};
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help") {
      std::printf("%.*s", static_cast<int>(usage.size()), usage.data());
      return 0;
    }
    bool known = false;
    for (const auto& [name, flag] : flags)
      if (args[i] == name)
        known = *flag = true;
    if (known)
      continue;
    if (i + 1 == args.size())
      return wrong_usage(std::string(args[i]).append(": not known, or its value is missing"));
    const auto value = args[i + 1];
    for (const auto& [name, number] : numbers) {
      if (args[i] != name)
        continue;
      const auto parsed = to_number(value);
      if (!parsed)
        return wrong_usage(std::string(name).append(": not a number: ").append(value));
      *number = *parsed;
      known = true;
    }
    if (args[i] == "--expect") {
      out.expect = value;
      known = true;
    }
    if (args[i] == "--ignore") {
      out.ignore = value;
      known = true;
    }
    if (args[i] == "--defect") {
      const auto found = find_defect(value);
      if (!found) {
        std::string names = "--defect: one of";
        for (const auto& [name, which] : defect_names)
          names.append(" ").append(name);
        return wrong_usage(names);
      }
      out.built_in = *found;
      known = true;
    }
    if (!known)
      return wrong_usage(std::string(args[i]).append(": not known"));
    ++i;
  }
  return std::nullopt;
}

plan plan_of(const arguments& args, std::uint64_t seed) {
  auto p = make_plan(seed, static_cast<std::uint32_t>(args.steps));
  p.connector = !args.no_connector;
  p.ignored = std::string(",").append(args.ignore).append(",");
  return p;
}

outcome run_seed(const arguments& args, std::uint64_t seed) {
  current_seed = seed;
  const auto p = plan_of(args, seed);
  auto first = run(p, args.built_in, args.verbose);
  if (!args.twice)
    return first;
  const auto second = run(p, args.built_in, false);
  if (first.trace_hash != second.trace_hash || first.steps != second.steps) {
    first.property = "repeatable";
    first.failure = "the same seed took another course the second time";
  }
  return first;
}

void print_failure(const arguments& args, const outcome& x) {
  const auto p = plan_of(args, x.seed);
  std::printf("seed %llu breaks %s in step %llu: %s\n  %s\n  replay: troupe-engine-simulation --seed %llu --steps %llu",
              static_cast<unsigned long long>(x.seed), x.property.c_str(), static_cast<unsigned long long>(x.steps),
              x.failure.c_str(), p.describe().c_str(), static_cast<unsigned long long>(x.seed),
              static_cast<unsigned long long>(args.steps));
  if (args.built_in != defect::none)
    std::printf(" --defect %s", std::string(to_string(args.built_in)).c_str());
  std::printf("%s --verbose\n", args.no_connector ? " --no-connector" : "");
  if (args.no_shrink || x.property == "repeatable")
    return;
  const auto small = shrink(p, args.built_in, x.property);
  const auto again = run(small, args.built_in, args.verbose);
  std::printf("  the same with %zu of %zu actions, in step %llu: %s\n", small.actions.size(), p.actions.size(),
              static_cast<unsigned long long>(again.steps), again.failure.c_str());
  for (const auto& action : small.actions)
    std::printf("    %s\n", action.describe().c_str());
}

bool is_expected(std::string_view names, std::string_view property) {
  for (std::size_t first = 0; first <= names.size();) {
    const auto last = std::min(names.find(',', first), names.size());
    if (names.substr(first, last - first) == property)
      return true;
    first = last + 1;
  }
  return false;
}

} // namespace

int main(int argc, char** argv) {
  arguments args;
  if (const auto code = parse({argv + 1, argv + argc}, args))
    return *code;
  current_steps = args.steps;
  for (const auto signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS})
    std::signal(signal, say_seed);
  tally counts{};
  std::uint64_t steps = 0;
  std::uint64_t ran = 0;
  std::uint64_t failed = 0;
  bool as_expected = false;
  for (std::uint64_t i = 0; i < args.seeds; ++i) {
    const auto x = run_seed(args, args.seed + i);
    ++ran;
    steps += x.steps;
    for (std::size_t k = 0; k < seen_count; ++k)
      counts[k] += x.counts[k];
    if (args.hash)
      std::printf("seed %llu: %016llx\n", static_cast<unsigned long long>(x.seed),
                  static_cast<unsigned long long>(x.trace_hash));
    if (x.property.empty())
      continue;
    ++failed;
    print_failure(args, x);
    as_expected = is_expected(args.expect, x.property);
    if (!args.expect.empty() || failed >= 5)
      break;
  }
  bool covered = true;
  for (std::size_t k = 0; k < seen_count; ++k) {
    const auto name = to_string(static_cast<seen>(k));
    if (args.coverage && counts[k] == 0) {
      covered = false;
      std::printf("never happened: %.*s\n", static_cast<int>(name.size()), name.data());
    }
    if (args.seeds > 1 && args.expect.empty() && counts[k] > 0)
      std::printf("%12llu  %.*s\n", static_cast<unsigned long long>(counts[k]), static_cast<int>(name.size()),
                  name.data());
  }
  std::printf("%llu seeds, %llu steps, %llu failed\n", static_cast<unsigned long long>(ran),
              static_cast<unsigned long long>(steps), static_cast<unsigned long long>(failed));
  if (!args.expect.empty())
    return as_expected ? 0 : 1;
  return failed == 0 && covered ? 0 : 1;
}
