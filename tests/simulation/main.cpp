#include "tests/simulation/foreign_world.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::simulation;

constexpr std::string_view usage =
    R"(usage: troupe-simulation [options]
Runs seeded simulations of a node, its clients, network and disks, and checks the invariants after every step.

  --seed N         the first seed (default 0)
  --seeds COUNT    how many seeds, one after the other (default 1)
  --steps M        events before the world winds down (default 1000)
  --jobs J         seeds at a time (default 1)
  --foreign        worlds of clients without tokens, with a durable index
  --verbose        print every event
  --hash           print the hash of each seed's trace
  --twice          run each seed twice and fail if the traces differ
  --coverage       fail if something that is meant to happen never happened
  --defect NAME    build a mistake into the simulated glue; --defect help lists them
  --expect NAMES   succeed if and only if some seed fails, and the first one that does breaks one of these properties,
                   separated by commas

Exit code 0: no invariant was broken. 1: one was; the seed and the way to replay it are printed. 2: wrong usage.
)";

struct arguments {
  run_options run;
  std::uint64_t seeds = 1;
  std::uint64_t jobs = 1;
  bool foreign = false;
  bool hash = false;
  bool twice = false;
  bool coverage = false;
  std::string_view expect;
};

/// What a range of seeds must have seen to be worth anything.
constexpr std::string_view must_happen[] = {
    "attachment",
    "cancel: blocks hold something else",
    "evicted key",
    "fence: waits for several transfers of a slot",
    "fault: client leaves",
    "fault: cut link",
    "fault: drained node",
    "fault: erased key",
    "fault: flipped bit in a read",
    "fault: flipped bit on disk",
    "fault: killed client",
    "fault: killed node",
    "fault: lost write",
    "fault: misdirected write",
    "fault: paused client",
    "fault: paused node",
    "fault: read error",
    "fault: slow process",
    "fault: slow transfer",
    "fault: torn write",
    "fault: truncated slab",
    "fault: write error",
    "fault: write outlives the node",
    "load: cancelled",
    "load: corrupt",
    "load: identity_mismatch",
    "load: io_error",
    "load: not_found",
    "load: ok",
    "load: slab_damaged",
    "load: stale",
    "load: timeout",
    "load: unreachable",
    "lookup: keys found",
    "lost node",
    "save: busy",
    "save: cancelled",
    "save: exists",
    "save: expired",
    "save: full",
    "save: io_error",
    "save: no_space",
    "save: ok",
    "save: timeout",
    "save: unreachable",
    "slab found damaged",
    "take: full",
    "take: limit_exceeded",
    "take: ok",
    "take: timeout",
};

constexpr std::string_view must_happen_to_foreign[] = {
    "allocate: busy",
    "allocate: exists",
    "allocate: full",
    "allocate: ok",
    "confirm: expired",
    "confirm: not_found",
    "confirm: ok",
    "confirm: stale",
    "evicted slot",
    "fault: cut link",
    "fault: killed client",
    "fault: killed node",
    "fault: killed while it started",
    "late write",
    "read: page",
    "request: no answer",
    "request: repeated",
    "run: with another registration",
    "run: without the index",
    "slot: free at once",
    "slot: rests",
    "store: lost what was not durable",
    "store: not of the last run",
    "store: restored page",
    "take: full",
    "take: ok",
    "take: timeout",
};

// An assertion of the rules ends the process. Which seed that was must be known then.
thread_local std::uint64_t current_seed = 0;
std::uint64_t current_steps = 0;

extern "C" void say_seed(int signal) {
  char text[160];
  const auto length =
      std::snprintf(text, sizeof text,
                    "\nsignal %d in seed %llu\nreplay: troupe-simulation --seed %llu "
                    "--steps %llu --verbose\n",
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
std::optional<int> parse(std::vector<std::string_view> args, arguments& out) {
  const std::pair<std::string_view, bool*> flags[] = {{"--verbose", &out.run.verbose},
                                                      {"--foreign", &out.foreign},
                                                      {"--hash", &out.hash},
                                                      {"--twice", &out.twice},
                                                      {"--coverage", &out.coverage}};
  const std::pair<std::string_view, std::uint64_t*> numbers[] = {
      {"--seed", &out.run.seed}, {"--seeds", &out.seeds}, {"--steps", &out.run.steps}, {"--jobs", &out.jobs}};
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
    if (args[i] == "--defect") {
      const auto found = find_defect(value);
      if (!found) {
        std::string names = "--defect: one of";
        for (const auto& [name, which] : defect_names)
          names.append(" ").append(name);
        return wrong_usage(names);
      }
      out.run.built_in = *found;
      known = true;
    }
    if (!known)
      return wrong_usage(std::string(args[i]).append(": not known"));
    ++i;
  }
  if (out.jobs == 0 || out.jobs > 256)
    return wrong_usage("--jobs: from 1 to 256");
  return std::nullopt;
}

outcome run_seed(const arguments& args, std::uint64_t seed) {
  auto options = args.run;
  options.seed = seed;
  current_seed = seed;
  const auto run = [&] { return args.foreign ? foreign_world(options).run() : world(options).run(); };
  auto first = run();
  if (!args.twice)
    return first;
  const auto second = run();
  if (first.trace_hash != second.trace_hash || first.events != second.events)
    first.property = "repeatable", first.failure = "the same seed took another course the second time";
  return first;
}

/// In order of seeds, however many jobs there are. Where a failure is expected it ends soon after the first one.
std::vector<outcome> run_all(const arguments& args) {
  std::vector<outcome> out(args.seeds);
  std::atomic<std::uint64_t> next = 0;
  std::atomic<bool> enough = false;
  const auto work = [&] {
    for (auto i = next++; i < args.seeds && !enough; i = next++) {
      out[i] = run_seed(args, args.run.seed + i);
      if (!args.expect.empty() && !out[i].failure.empty())
        enough = true;
    }
  };
  std::vector<std::thread> workers;
  for (std::uint64_t i = 1; i < args.jobs; ++i)
    workers.emplace_back(work);
  work();
  for (auto& x : workers)
    x.join();
  return out;
}

void print_failure(const arguments& args, const outcome& x) {
  std::printf("seed %llu breaks %s at event %llu: %s\n  world: %s\n"
              "  replay: troupe-simulation%s --seed %llu --steps %llu",
              static_cast<unsigned long long>(x.seed), x.property.c_str(), static_cast<unsigned long long>(x.events),
              x.failure.c_str(), x.parameters.c_str(), args.foreign ? " --foreign" : "",
              static_cast<unsigned long long>(x.seed), static_cast<unsigned long long>(args.run.steps));
  if (args.run.built_in != defect::none)
    std::printf(" --defect %s", std::string(to_string(args.run.built_in)).c_str());
  std::printf(" --verbose\n");
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
  current_steps = args.run.steps;
  for (const auto signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS})
    std::signal(signal, say_seed);
  const auto outcomes = run_all(args);
  tally counts;
  std::uint64_t events = 0;
  std::uint64_t ran = 0;
  std::uint64_t failed = 0;
  bool as_expected = false;
  for (const auto& x : outcomes) {
    if (x.events == 0)
      continue;
    ++ran;
    events += x.events;
    for (const auto& [what, n] : x.counts)
      counts[what] += n;
    if (args.hash)
      std::printf("seed %llu: %016llx\n", static_cast<unsigned long long>(x.seed),
                  static_cast<unsigned long long>(x.trace_hash));
    if (x.failure.empty())
      continue;
    if (failed++ == 0)
      as_expected = is_expected(args.expect, x.property);
    print_failure(args, x);
  }
  bool covered = true;
  const std::span wanted = args.foreign ? std::span<const std::string_view>(must_happen_to_foreign) : must_happen;
  for (const auto what : wanted)
    if (args.coverage && !counts.contains(what)) {
      covered = false;
      std::printf("never happened: %.*s\n", static_cast<int>(what.size()), what.data());
    }
  if (args.seeds > 1 && args.expect.empty())
    for (const auto& [what, n] : counts)
      std::printf("%12llu  %s\n", static_cast<unsigned long long>(n), what.c_str());
  std::printf("%llu seeds, %llu events, %llu failed\n", static_cast<unsigned long long>(ran),
              static_cast<unsigned long long>(events), static_cast<unsigned long long>(failed));
  if (!args.expect.empty())
    return as_expected ? 0 : 1;
  return failed == 0 && covered ? 0 : 1;
}
