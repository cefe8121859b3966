#include "tests/engine_simulation/simulation.hpp"
#include "tests/sim_main/sim_main.hpp"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::engine_simulation;

/// Options of this program alone.
struct choices {
  std::string_view ignored;
  bool no_connector = false;
  bool no_shrink = false;

  plan plan_of(const sim_main::run_options& x) const {
    auto p = make_plan(x.seed, static_cast<std::uint32_t>(x.steps));
    p.connector = !no_connector;
    p.ignored = std::string(",").append(ignored).append(",");
    return p;
  }
};

sim_main::outcome run_seed(const choices& how, const sim_main::run_options& x) {
  const auto p = how.plan_of(x);
  const auto came = run(p, sim_main::find_defect(defect_names, x.defect), x.verbose);
  sim_main::outcome out;
  out.seed = x.seed;
  out.steps = out.events = came.steps;
  out.trace_hash = came.trace_hash;
  out.property = came.property;
  out.failure = came.failure;
  for (std::size_t i = 0; i < seen_count; ++i)
    if (came.counts[i] > 0)
      out.counts.emplace(to_string(static_cast<seen>(i)), came.counts[i]);
  out.description = p.describe();
  return out;
}

/// Prints a smaller run that fails in the same way.
void print_smaller(const choices& how, const sim_main::run_options& x, const sim_main::outcome& came) {
  if (how.no_shrink || came.property == "repeatable")
    return;
  const auto p = how.plan_of(x);
  const auto built_in = sim_main::find_defect(defect_names, x.defect);
  const auto small = shrink(p, built_in, came.property);
  const auto again = run(small, built_in, x.verbose);
  std::printf("  the same with %zu of %zu actions, in step %llu: %s\n", small.actions.size(), p.actions.size(),
              static_cast<unsigned long long>(again.steps), again.failure.c_str());
  for (const auto& action : small.actions)
    std::printf("    %s\n", action.describe().c_str());
}

} // namespace

int main(int argc, char** argv) {
  choices how;
  sim_main::program what;
  what.name = "troupe-engine-simulation";
  what.about =
      "Runs seeded simulations of an inference engine with both halves of the connector and a slow and faulty\n"
      "cache, and checks all properties after every step.";
  what.steps_text = "steps of the engine in which requests and faults come";
  what.default_steps = 200;
  for (const auto& [name, which] : defect_names)
    what.defects.push_back(name);
  what.flags = {{"--no-connector", "the engine alone", &how.no_connector},
                {"--no-shrink", "do not look for a smaller run that fails in the same way", &how.no_shrink}};
  what.choices = {{"--ignore", "do not check these properties, separated by commas", &how.ignored}};
  what.must_happen = [] {
    std::vector<std::string_view> all;
    for (std::size_t i = 0; i < seen_count; ++i)
      all.push_back(to_string(static_cast<seen>(i)));
    return all;
  };
  what.run = [&how](const sim_main::run_options& x) { return run_seed(how, x); };
  what.explain = [&how](const sim_main::run_options& x, const sim_main::outcome& came) { print_smaller(how, x, came); };
  what.failures_max = 5;
  return sim_main::run(what, {argv + 1, argv + argc});
}
