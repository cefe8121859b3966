#include "cli/screens/cluster_screen.hpp"

#include "cli/screens/words.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace troupe::cli {

namespace {

using nlohmann::json;
using table_rows = std::vector<std::vector<std::string>>;

/// The node's name, or its address until it has answered once.
std::string name_of(const json& node) {
  const auto name = text_at(node, {"node"});
  return name.empty() ? text_at(node, {"address"}) : name;
}

bool is_self(const json& node) {
  return text_at(node, {"state"}) == "self";
}

/// A table with a row for each other node.
template <class Cells>
std::string table_of_others(const json& cluster, std::vector<std::string> head, std::size_t columns, Cells cells) {
  table_rows rows{std::move(head)};
  for (const auto& node : list_at(cluster, {"nodes"}))
    if (!is_self(node))
      rows.push_back(cells(node));
  return rows.size() > 1 ? "\n" + table_of(rows, columns) : std::string();
}

std::string etcd_sentence(const json& cluster) {
  const auto trouble = text_at(cluster, {"etcd", "trouble"});
  return "etcd " + text_at(cluster, {"etcd", "endpoints"}) + ": " + text_at(cluster, {"etcd", "state"}) + ", " +
         counted_at(cluster, {"etcd", "listed"}) + " nodes are listed" + (trouble.empty() ? "" : "; " + trouble);
}

std::string states(const json& cluster, std::size_t columns) {
  table_rows rows{{"NODE", "ADDRESS", "STATE", "LAG", "NAMESPACES"}};
  for (const auto& node : list_at(cluster, {"nodes"})) {
    const auto state = text_at(node, {"state"});
    const auto name = text_at(node, {"node"});
    rows.push_back({name.empty() ? "?" : name, text_at(node, {"address"}), state,
                    state == "up" ? micros_text(number_at(node, {"lag_us"})) : "-", counted_at(node, {"namespaces"})});
  }
  return table_of(rows, columns, 2);
}

std::string traffic(const json& cluster, std::size_t columns) {
  auto out = table_of_others(cluster, {"FETCHED", "ASKED", "HAD", "LATE", "PAGES", "BYTES", "FAILED"}, columns,
                             [](const json& x) -> std::vector<std::string> {
                               return {name_of(x),
                                       counted_at(x, {"asked"}),
                                       counted_at(x, {"had"}),
                                       counted_at(x, {"late"}),
                                       counted_at(x, {"pages"}),
                                       bytes_text(number_at(x, {"bytes"})),
                                       counted_at(x, {"failed"})};
                             });
  out += table_of_others(cluster, {"SERVED", "PAGES", "BYTES", "LEARNED KEYS"}, columns,
                         [](const json& x) -> std::vector<std::string> {
                           return {name_of(x), counted_at(x, {"served_pages"}),
                                   bytes_text(number_at(x, {"served_bytes"})), counted_at(x, {"learned_keys"})};
                         });
  const auto has_files = [](const json& x) {
    return whole_at(x, {"file_pages"}) + whole_at(x, {"files_stale"}) + whole_at(x, {"files_damaged"}) +
               whole_at(x, {"files_failed"}) >
           0;
  };
  if (std::ranges::any_of(list_at(cluster, {"nodes"}), has_files))
    out += table_of_others(cluster, {"FILES", "PAGES READ", "STALE", "DAMAGED", "FAILED"}, columns,
                           [](const json& x) -> std::vector<std::string> {
                             return {name_of(x), counted_at(x, {"file_pages"}), counted_at(x, {"files_stale"}),
                                     counted_at(x, {"files_damaged"}), counted_at(x, {"files_failed"})};
                           });
  return out;
}

/// The directories of dead nodes from which pages are read.
std::string adopted(const json& cluster, std::size_t columns) {
  if (!cluster.contains("adopted"))
    return {};
  table_rows rows{{"ADOPTED", "CLAIM", "KEYS", "ASKED", "HAD", "PAGES", "BYTES", "FAILED"}};
  for (const auto& x : list_at(cluster, {"adopted"}))
    rows.push_back({text_at(x, {"node"}), x.value("own", false) ? "this node" : "another node", counted_at(x, {"keys"}),
                    counted_at(x, {"asked"}), counted_at(x, {"had"}), counted_at(x, {"pages"}),
                    bytes_text(number_at(x, {"bytes"})), counted_at(x, {"failed"})});
  return "\n" + table_of(rows, columns);
}

} // namespace

bool is_whole(const json& cluster) {
  const auto is_away = [](const json& node) { return text_at(node, {"state"}) == "unreachable"; };
  return std::ranges::none_of(list_at(cluster, {"nodes"}), is_away) &&
         text_at(cluster, {"etcd", "state"}) != "unreachable";
}

std::string cluster_screen(const json& cluster, std::size_t columns) {
  auto out = "cluster " + text_at(cluster, {"cluster"}) + ", protocol " + counted_at(cluster, {"protocol"}) + "\n";
  if (cluster.contains("etcd"))
    for (const auto& line : wrapped(etcd_sentence(cluster), columns))
      out += line + "\n";
  out += "\n" + states(cluster, columns);
  for (const auto& node : list_at(cluster, {"nodes"}))
    if (const auto trouble = text_at(node, {"trouble"}); !trouble.empty()) {
      out += "\n";
      for (const auto& line : wrapped(name_of(node) + ": " + trouble, columns))
        out += line + "\n";
    }
  return out + traffic(cluster, columns) + adopted(cluster, columns);
}

std::vector<std::string> cluster_sentences(const json& cluster) {
  const auto& nodes = list_at(cluster, {"nodes"});
  const auto away = std::ranges::count_if(nodes, [](const json& x) { return text_at(x, {"state"}) == "unreachable"; });
  std::vector<std::string> out{
      text_at(cluster, {"cluster"}) + ", protocol " + counted_at(cluster, {"protocol"}) + ": " +
      count_text(nodes.size()) + " nodes, " +
      (away == 0 ? "all reachable" : count_text(static_cast<std::uint64_t>(away)) + " unreachable")};
  if (cluster.contains("etcd"))
    out.push_back(etcd_sentence(cluster));
  for (const auto& node : nodes) {
    if (is_self(node))
      continue;
    const auto trouble = text_at(node, {"trouble"});
    const auto state = text_at(node, {"state"});
    out.push_back(name_of(node) + " at " + text_at(node, {"address"}) + ": " + state +
                  (state == "up" ? ", lag " + micros_text(number_at(node, {"lag_us"})) : "") + ", fetched " +
                  bytes_text(number_at(node, {"bytes"})) + ", served " + bytes_text(number_at(node, {"served_bytes"})) +
                  ", " + counted_at(node, {"learned_keys"}) + " keys learned" +
                  (trouble.empty() ? "" : " (" + trouble + ")"));
  }
  if (const auto count = list_at(cluster, {"adopted"}).size(); count > 0)
    out.push_back(count_text(count) + " directories of dead nodes are read: see `troupe cluster status`");
  return out;
}

} // namespace troupe::cli
