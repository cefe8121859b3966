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

constexpr auto cluster_patience = std::chrono::seconds(10);

std::uint64_t count_at(const nlohmann::json& x, const char* key) {
  return static_cast<std::uint64_t>(number_at(x, {key}));
}

std::string etcd_text(const nlohmann::json& body) {
  if (!body.contains("etcd"))
    return {};
  const auto trouble = text_at(body, {"etcd", "trouble"});
  return "etcd " + text_at(body, {"etcd", "endpoints"}) + ": " + text_at(body, {"etcd", "state"}) + ", " +
         count_text(static_cast<std::uint64_t>(number_at(body, {"etcd", "listed"}))) + " nodes are listed" +
         (trouble.empty() ? "" : "; " + trouble) + "\n";
}

/// Errors are printed below the table, because they are wider than any terminal.
std::string nodes_text(const nlohmann::json& body) {
  std::vector<std::vector<std::string>> rows{{"NODE", "ADDRESS", "STATE", "LAG", "NAMESPACES", "ASKED", "HAD", "LATE",
                                              "PAGES", "BYTES", "FAILED", "FROM FILES", "REFUSED FILES", "LEARNED"}};
  std::string troubles;
  for (const auto& x : list_at(body, {"nodes"})) {
    auto& row = rows.emplace_back();
    const auto name = text_at(x, {"node"});
    const auto address = text_at(x, {"address"});
    row.push_back(name.empty() ? "?" : name);
    row.push_back(address);
    const auto state = text_at(x, {"state"});
    row.push_back(state);
    row.push_back(state == "up" ? micros_text(number_at(x, {"lag_us"})) : "-");
    for (const auto* key : {"namespaces", "asked", "had", "late", "pages"})
      row.push_back(count_text(count_at(x, key)));
    row.push_back(bytes_text(number_at(x, {"bytes"})));
    for (const auto* key : {"failed", "file_pages"})
      row.push_back(count_text(count_at(x, key)));
    row.push_back(count_text(count_at(x, "files_stale") + count_at(x, "files_damaged") + count_at(x, "files_failed")));
    row.push_back(count_text(count_at(x, "learned_keys")));
    if (const auto trouble = text_at(x, {"trouble"}); !trouble.empty())
      troubles += "\n" + (name.empty() ? address : name) + ": " + trouble + "\n";
  }
  return table_of(rows) + troubles;
}

/// The directories of dead nodes from which pages are read.
std::string adopted_text(const nlohmann::json& body) {
  if (!body.contains("adopted"))
    return {};
  std::vector<std::vector<std::string>> rows{{"ADOPTED", "CLAIM", "KEYS", "ASKED", "HAD", "PAGES", "BYTES", "FAILED"}};
  for (const auto& x : list_at(body, {"adopted"})) {
    auto& row = rows.emplace_back();
    row.push_back(text_at(x, {"node"}));
    row.push_back(x.value("own", false) ? "this node" : "another node");
    for (const auto* key : {"keys", "asked", "had", "pages"})
      row.push_back(count_text(count_at(x, key)));
    row.push_back(bytes_text(number_at(x, {"bytes"})));
    row.push_back(count_text(count_at(x, "failed")));
  }
  return "\n" + table_of(rows);
}

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
  if (options.json)
    return print(body.dump() + "\n") ? exit_ok : exit_failed;
  if (text_at(body, {"cluster"}).empty())
    return print("the node is not part of a cluster\n") ? exit_ok : exit_failed;
  const auto head = "cluster " + text_at(body, {"cluster"}) + "\n" + etcd_text(body) + "\n";
  return print(head + nodes_text(body) + adopted_text(body)) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
