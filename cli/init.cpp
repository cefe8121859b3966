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
    // What was asked for is to be seen, and to be kept. Of lists, which stand as they are, no item has a name.
    for (const auto& x : options.overrides)
      keys.push_back(x.substr(0, x.find_first_of("=[")));
  }
  return print(
             "// A node of Troupe. docs/configuration.md explains every key; `troupe init --all` prints all of them,\n"
             "// and `troupe check-config FILE` says what is wrong with a config.\n" +
             config::to_commented_json(*loaded, keys))
             ? exit_ok
             : exit_failed;
}

} // namespace troupe::cli
