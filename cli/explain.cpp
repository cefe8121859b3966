#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/explain_screen.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <iostream>
#include <string>

namespace troupe::cli {

namespace {

/// Longer than the node itself waits for its actors.
constexpr duration explain_patience = std::chrono::seconds(10);

} // namespace

int explain(const explain_options& options) {
  auto path = "/v1/explain?last=" + std::to_string(options.last);
  const auto add = [&path](const char* name, const std::string& value) {
    if (!value.empty())
      path.append("&").append(name).append("=").append(url_escaped(value));
  };
  add("client", options.client);
  add("request", options.request);
  add("namespace", options.namespace_name);
  const auto answer = ask_node(options.node, "GET", path, explain_patience);
  const auto failed = [&](const std::string& why) {
    std::cerr << "troupe: " << why << '\n';
    // An answer that is no success concerns the question; without one, the node cannot be reached.
    return answer.reply.status >= 400 && answer.reply.status < 500 ? exit_failed : exit_unreachable;
  };
  if (answer.code != exit_ok)
    return failed(answer.why);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!is_explanation(body))
    return failed(answer.url + " does not answer as a Troupe node does");
  if (!print(options.json ? answer.reply.body + "\n" : explain_screen(body, columns_of_stdout())))
    return exit_unreachable;
  return body["kept"].get<bool>() ? exit_ok : exit_failed;
}

} // namespace troupe::cli
