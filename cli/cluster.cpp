#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/words.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

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
    return end(answer.url + " does not answer as a node does", exit_failed);
  if (options.json)
    return print(body.dump() + "\n") ? exit_ok : exit_failed;
  if (text_at(body, {"cluster"}).empty())
    return print("the node is part of no cluster\n") ? exit_ok : exit_failed;
  std::vector<std::vector<std::string>> rows{{"NODE", "ADDRESS", "STATE", "LAG", "NAMESPACES", "ASKED", "HAD", "LATE",
                                              "PAGES", "BYTES", "FAILED", "FROM FILES", "TROUBLE"}};
  for (const auto& x : list_at(body, {"nodes"})) {
    auto& row = rows.emplace_back();
    const auto name = text_at(x, {"node"});
    row.push_back(name.empty() ? "?" : name);
    row.push_back(text_at(x, {"address"}));
    row.push_back(text_at(x, {"state"}));
    row.push_back(text_at(x, {"state"}) == "up" ? micros_text(number_at(x, {"lag_us"})) : "-");
    for (const auto* key : {"namespaces", "asked", "had", "late", "pages", "bytes", "failed", "file_pages"})
      row.push_back(count_text(static_cast<std::uint64_t>(number_at(x, {key}))));
    row.push_back(text_at(x, {"trouble"}));
  }
  std::string etcd;
  if (body.contains("etcd")) {
    const auto trouble = text_at(body, {"etcd", "trouble"});
    etcd = "etcd " + text_at(body, {"etcd", "endpoints"}) + ": " + text_at(body, {"etcd", "state"}) + ", " +
           count_text(static_cast<std::uint64_t>(number_at(body, {"etcd", "listed"}))) + " nodes are listed" +
           (trouble.empty() ? "" : "; " + trouble) + "\n";
  }
  std::string adopted;
  if (body.contains("adopted")) {
    std::vector<std::vector<std::string>> dead{
        {"ADOPTED", "CLAIM", "KEYS", "ASKED", "HAD", "PAGES", "BYTES", "FAILED"}};
    for (const auto& x : list_at(body, {"adopted"})) {
      auto& row = dead.emplace_back();
      row.push_back(text_at(x, {"node"}));
      row.push_back(x.value("own", false) ? "this node" : "another node");
      for (const auto* key : {"keys", "asked", "had", "pages", "bytes", "failed"})
        row.push_back(count_text(static_cast<std::uint64_t>(number_at(x, {key}))));
    }
    adopted = "\n" + table_of(dead);
  }
  return print("cluster " + text_at(body, {"cluster"}) + "\n" + etcd + "\n" + table_of(rows) + adopted) ? exit_ok
                                                                                                        : exit_failed;
}

} // namespace troupe::cli
