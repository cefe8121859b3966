#include "cli/program.hpp"

#include <iostream>

namespace troupe::cli {

void print_problems(std::span<const config::problem> problems) {
  for (const auto& x : problems)
    std::cerr << config::to_string(x) << '\n';
}

int check_config(const check_config_options& options) {
  const auto loaded = config::load(options.config, options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  std::cout << config::to_json(*loaded);
  return exit_ok;
}

} // namespace troupe::cli
