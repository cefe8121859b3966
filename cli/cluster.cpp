#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/cluster_screen.hpp"
#include "cli/screens/words.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <iostream>
#include <string>

namespace troupe::cli {

namespace {

constexpr auto cluster_patience = std::chrono::seconds(10);

} // namespace

int cluster_status(const cluster_status_options& options) {
  const auto answer = ask_node(options.node, "GET", "/v1/cluster", cluster_patience);
  const auto end = [](const std::string& why, int code) {
    std::cerr << "troupe: " << why << '\n';
    return code;
  };
  if (answer.code != exit_ok)
    return end(answer.why, answer.code);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!body.is_object() || !body.contains("nodes"))
    return end(answer.url + " does not answer as a Troupe node does", exit_failed);
  const auto is_part = !text_at(body, {"cluster"}).empty();
  const auto text = options.json ? body.dump() + "\n"
                    : is_part    ? cluster_screen(body, columns_of_stdout())
                                 : "the node is not part of a cluster\n";
  return print(text) && is_whole(body) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
