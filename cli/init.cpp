#include "base/host_memory.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "config/default_node.hpp"

#include <string>
#include <vector>

namespace troupe::cli {

config::load_result load_default(std::span<const std::string> overrides) {
  return config::parse(config::to_json(config::default_node(available_memory())), "the defaults", overrides);
}

int init(const init_options& options) {
  const auto loaded = load_default(options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  std::vector<std::string> keys;
  if (!options.all) {
    keys = config::first_keys();
    // Overridden keys are printed too. Items of lists have no name; lists are printed as a whole.
    for (const auto& x : options.overrides)
      keys.push_back(x.substr(0, x.find_first_of("=[")));
  }
  return print("// A node of Troupe. docs/configuration.md explains every key; `troupe init --all` prints all of "
               "them,\n// and `troupe check-config FILE` lists the errors of a config.\n" +
               config::to_commented_json(*loaded, keys))
             ? exit_ok
             : exit_failed;
}

} // namespace troupe::cli
