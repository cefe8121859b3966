#include "tests/sim_main/sim_main.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <unistd.h>

namespace troupe::sim_main {

namespace {

constexpr std::uint64_t jobs_max = 256;

/// Events "asked: NAME" must come with events "abandoned: NAME": the caller ended before the answer.
constexpr std::string_view asked = "asked: ";
constexpr std::string_view abandoned = "abandoned: ";

struct arguments {
  run_options run;
  std::uint64_t seeds = 1;
  std::uint64_t jobs = 1;
  bool hash = false;
  bool twice = false;
  bool coverage = false;
  std::string_view expect;
};

// An assertion of the rules ends the process. Which seed that was must be known then.
thread_local std::uint64_t current_seed = 0;
std::string replay_of_any_seed;

extern "C" void say_seed(int signal) {
  char text[400];
  const auto length = std::snprintf(text, sizeof text, "\nsignal %d in seed %llu\nreplay:%s --verbose --seed %llu\n",
                                    signal, static_cast<unsigned long long>(current_seed), replay_of_any_seed.c_str(),
                                    static_cast<unsigned long long>(current_seed));
  if (::write(STDERR_FILENO, text, std::min(static_cast<std::size_t>(length), sizeof text - 1)) < 0)
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

std::string usage(const program& what) {
  std::string out = "usage: " + std::string(what.name) + " [options]\n" + std::string(what.about) + "\n\n";
  const auto add = [&out](std::string_view option, std::string_view text) {
    out.append("  ").append(option).append(std::max<std::size_t>(17 - std::min<std::size_t>(option.size(), 16), 1),
                                           ' ');
    out.append(text).append("\n");
  };
  add("--seed N", "the first seed (default 0)");
  add("--seeds COUNT", "how many seeds, one after the other (default 1)");
  add("--steps M", std::string(what.steps_text) + " (default " + std::to_string(what.default_steps) + ")");
  add("--jobs J", "seeds at a time (default 1)");
  add("--verbose", "print every event");
  add("--hash", "print the hash of each seed's trace");
  add("--twice", "run each seed twice and fail if the traces differ");
  add("--coverage", "fail if an expected event never happened");
  add("--defect NAME", "inject a defect; --defect help lists them");
  add("--expect NAMES", "succeed if and only if some seed fails, and the first one that does breaks one of these\n"
                        "                   properties, separated by commas");
  for (const auto& x : what.flags)
    add(x.name, x.text);
  for (const auto& x : what.choices)
    add(std::string(x.name) + " NAMES", x.text);
  return out + "\nExit code 0: all properties hold. 1: one does not; the seed and the way to replay it are printed. 2: "
               "wrong usage.\n";
}

int wrong_usage(const program& what, const std::string& problem) {
  std::fprintf(stderr, "%s\n%s", problem.c_str(), usage(what).c_str());
  return 2;
}

/// The exit code if the program is to end.
std::optional<int> parse(const program& what, std::span<const char* const> args, arguments& out) {
  std::vector<flag> flags{{"--verbose", {}, &out.run.verbose},
                          {"--hash", {}, &out.hash},
                          {"--twice", {}, &out.twice},
                          {"--coverage", {}, &out.coverage}};
  flags.insert(flags.end(), what.flags.begin(), what.flags.end());
  std::vector<choice> choices{{"--expect", {}, &out.expect}, {"--defect", {}, &out.run.defect}};
  choices.insert(choices.end(), what.choices.begin(), what.choices.end());
  const std::pair<std::string_view, std::uint64_t*> numbers[] = {
      {"--seed", &out.run.seed}, {"--seeds", &out.seeds}, {"--steps", &out.run.steps}, {"--jobs", &out.jobs}};
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string_view name = args[i];
    const auto is_it = [name](const auto& x) { return x.name == name; };
    if (name == "--help") {
      std::printf("%s", usage(what).c_str());
      return 0;
    }
    if (const auto x = std::find_if(flags.begin(), flags.end(), is_it); x != flags.end()) {
      *x->set = true;
      continue;
    }
    const auto text = std::find_if(choices.begin(), choices.end(), is_it);
    const auto number =
        std::find_if(std::begin(numbers), std::end(numbers), [name](const auto& x) { return x.first == name; });
    if ((text == choices.end() && number == std::end(numbers)) || i + 1 == args.size())
      return wrong_usage(what, std::string(name).append(": not known, or its value is missing"));
    const std::string_view value = args[++i];
    if (text != choices.end()) {
      *text->value = value;
      continue;
    }
    const auto parsed = to_number(value);
    if (!parsed)
      return wrong_usage(what, std::string(name).append(": not a number: ").append(value));
    *number->second = *parsed;
  }
  if (const auto wanted = out.run.defect;
      !wanted.empty() && std::find(what.defects.begin(), what.defects.end(), wanted) == what.defects.end()) {
    std::string names = "--defect: one of";
    for (const auto& x : what.defects)
      names.append(" ").append(x);
    return wrong_usage(what, names);
  }
  if (out.jobs == 0 || out.jobs > jobs_max)
    return wrong_usage(what, "--jobs: from 1 to " + std::to_string(jobs_max));
  return std::nullopt;
}

outcome run_seed(const program& what, const arguments& args, std::uint64_t seed) {
  auto options = args.run;
  options.seed = seed;
  current_seed = seed;
  auto first = what.run(options);
  if (!args.twice)
    return first;
  options.verbose = false;
  const auto second = what.run(options);
  if (first.trace_hash != second.trace_hash || first.events != second.events) {
    first.property = "repeatable";
    first.failure = "the same seed took another course the second time";
  }
  return first;
}

/// In order of seeds, however many jobs there are. Where a failure is expected it ends soon after the first one.
std::vector<outcome> run_all(const program& what, const arguments& args) {
  std::vector<outcome> out(args.seeds);
  std::atomic<std::uint64_t> next = 0;
  std::atomic<std::uint64_t> failures = 0;
  const auto most = args.expect.empty() ? what.failures_max : 1;
  const auto work = [&] {
    for (auto i = next++; i < args.seeds && failures < most; i = next++) {
      out[i] = run_seed(what, args, args.run.seed + i);
      failures += out[i].property.empty() ? 0 : 1;
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

/// Repeats the program's own options that were given.
std::string replay(const program& what, const arguments& args) {
  auto out = " " + std::string(what.name);
  for (const auto& x : what.flags)
    if (*x.set)
      out.append(" ").append(x.name);
  for (const auto& x : what.choices)
    if (!x.value->empty())
      out.append(" ").append(x.name).append(" ").append(*x.value);
  out.append(" --steps ").append(std::to_string(args.run.steps));
  if (!args.run.defect.empty())
    out.append(" --defect ").append(args.run.defect);
  return out;
}

void print_failure(const program& what, const arguments& args, const outcome& x) {
  std::printf("seed %llu breaks %s at event %llu: %s\n  %s\n  replay:%s --verbose --seed %llu\n",
              static_cast<unsigned long long>(x.seed), x.property.c_str(), static_cast<unsigned long long>(x.events),
              x.failure.c_str(), x.description.c_str(), replay(what, args).c_str(),
              static_cast<unsigned long long>(x.seed));
  if (what.explain) {
    auto options = args.run;
    options.seed = x.seed;
    what.explain(options, x);
  }
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

int run(const program& what, std::span<const char* const> given) {
  arguments args;
  args.run.steps = what.default_steps;
  if (const auto code = parse(what, given, args))
    return *code;
  replay_of_any_seed = replay(what, args);
  for (const auto signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS})
    std::signal(signal, say_seed);
  const auto outcomes = run_all(what, args);
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
    for (const auto& [name, n] : x.counts)
      counts[name] += n;
    if (args.hash)
      std::printf("seed %llu: %016llx\n", static_cast<unsigned long long>(x.seed),
                  static_cast<unsigned long long>(x.trace_hash));
    if (x.property.empty())
      continue;
    if (failed++ == 0)
      as_expected = is_expected(args.expect, x.property);
    print_failure(what, args, x);
  }
  bool covered = true;
  if (args.coverage)
    for (const auto name : what.must_happen())
      if (!counts.contains(name)) {
        covered = false;
        std::printf("never happened: %.*s\n", static_cast<int>(name.size()), name.data());
      }
  if (args.coverage)
    for (const auto& [name, n] : counts)
      if (name.starts_with(asked) && !counts.contains(std::string(abandoned) + name.substr(asked.size()))) {
        covered = false;
        std::printf("no caller has left before the answer: %s\n", name.c_str() + asked.size());
      }
  if (args.seeds > 1 && args.expect.empty())
    for (const auto& [name, n] : counts)
      std::printf("%12llu  %s\n", static_cast<unsigned long long>(n), name.c_str());
  std::printf("%llu seeds, %llu events, %llu failed\n", static_cast<unsigned long long>(ran),
              static_cast<unsigned long long>(events), static_cast<unsigned long long>(failed));
  if (!args.expect.empty())
    return as_expected ? 0 : 1;
  return failed == 0 && covered ? 0 : 1;
}

} // namespace troupe::sim_main
