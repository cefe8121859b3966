#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "offline/slab_check.hpp"

#include <iostream>

namespace troupe::cli {

namespace {

std::string in_gigabytes(std::uint64_t bytes) {
  constexpr std::uint64_t tenth = 100'000'000;
  const auto tenths = (bytes + tenth / 2) / tenth;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

} // namespace

int check_slabs(const check_slabs_options& options) {
  const auto loaded = config::load(options.config, options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  progress_display display(options.quiet);
  const auto report = offline::check_slabs(
      *loaded,
      [&](std::uint64_t done, std::uint64_t all) {
        display.wait("checked " + in_gigabytes(done) + " of " + in_gigabytes(all) + " GB");
      },
      options.ignore_claims);
  display.clear();
  if (!report) {
    // Nothing was checked: this must not look like a corrupt disk.
    std::cerr << "troupe check-slabs: " << report.error().text << '\n';
    return exit_usage;
  }
  if (!print(options.json ? offline::to_json(*report) : offline::to_text(*report)))
    return exit_failed;
  return report->sound() ? exit_ok : exit_failed;
}

} // namespace troupe::cli
