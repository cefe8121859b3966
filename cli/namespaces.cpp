#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/words.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace troupe::cli {

namespace {

/// A removal waits until disconnected clients have drained, which may take a minute.
constexpr auto answer_time = std::chrono::minutes(5);

int wrong(const std::string& why) {
  std::cerr << "troupe: " << why << '\n';
  return exit_usage;
}

int failed(const std::string& why) {
  std::cerr << "troupe: " << why << '\n';
  return exit_failed;
}

} // namespace

int list_namespaces(const list_namespaces_options& options) {
  const auto answer = ask_node(options.node, "GET", "/v1/namespaces", answer_time);
  if (answer.code != exit_ok)
    return answer.code == exit_usage ? wrong(answer.why) : failed(answer.why);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!body.is_object() || !body.contains("namespaces") || !body["namespaces"].is_array())
    return failed(answer.url + " does not answer as a Troupe node does");
  if (options.json)
    return print(body.dump() + "\n") ? exit_ok : exit_failed;
  std::vector<std::vector<std::string>> rows{{"NAME", "MODEL", "RANKS", "PAGE BYTES", "KEYS", "LEASES", "ID"}};
  const auto number = [](const nlohmann::json& x, const char* key) {
    return std::to_string(x.value(key, std::uint64_t{0}));
  };
  for (const auto& x : body["namespaces"])
    rows.push_back({x.value("name", ""), x.value("model", ""),
                    std::to_string(x.contains("ranks") ? x["ranks"].size() : std::size_t{0}), number(x, "page_bytes"),
                    number(x, "keys"), number(x, "leases"), x.value("id", "")});
  return print(table_of(rows)) ? exit_ok : exit_failed;
}

int remove_namespace(const remove_namespace_options& options) {
  const auto answer =
      ask_node(options.node, "DELETE",
               "/v1/namespaces/" + url_escaped(options.name) + (options.force ? "?force=true" : ""), answer_time);
  if (answer.code == exit_ok)
    return exit_ok;
  if (answer.code == exit_usage)
    return wrong(answer.why);
  return failed("namespace '" + options.name + "' is not removed: " + answer.why);
}

} // namespace troupe::cli
