#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/status_screen.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <iostream>

namespace troupe::cli {

namespace {

/// Longer than the node itself waits for its actors.
constexpr duration status_patience = std::chrono::seconds(10);

} // namespace

int status(const status_options& options) {
  const auto answer = ask_node(options.node, "GET",
                               "/v1/status?history=" + std::string(options.json ? "true" : "false"), status_patience);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (answer.code != exit_ok || !is_status(body)) {
    const auto why = answer.code == exit_ok ? answer.url + " does not answer as a Troupe node does" : answer.why;
    std::cerr << "troupe: " << why << '\n';
    return exit_unreachable;
  }
  const auto text = options.json ? answer.reply.body + "\n" : status_screen(body, columns_of_stdout());
  if (!print(text))
    return exit_unreachable;
  return body.value("health", "") == "healthy" ? exit_ok : exit_degraded;
}

} // namespace troupe::cli
