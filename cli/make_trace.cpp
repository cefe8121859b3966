#include "cli/output.hpp"
#include "cli/program.hpp"
#include "workload/replay/trace.hpp"

#include <iostream>

namespace troupe::cli {

int make_trace(const make_trace_options& options) {
  const auto made = replay::generate_trace(options.generator, options.block_tokens, options.limit);
  if (!made) {
    std::cerr << "troupe make-trace: " << made.error().text << '\n';
    return exit_usage;
  }
  std::string text;
  for (const auto& x : made->requests)
    text.append(replay::to_json(x)).append("\n");
  return print(text) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
