#include "cli/output.hpp"
#include "cli/program.hpp"
#include "http/client/connection.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::cli {

namespace {

namespace ssl = boost::asio::ssl;

constexpr auto connect_time = std::chrono::seconds(10);
/// A removal waits for clients that are gone to come to rest, which may take a minute.
constexpr auto answer_time = std::chrono::minutes(5);
constexpr std::size_t max_answer_bytes = std::size_t{64} << 20U;

int wrong(const std::string& why) {
  std::cerr << "troupe: " << why << '\n';
  return exit_usage;
}

int failed(const std::string& why) {
  std::cerr << "troupe: " << why << '\n';
  return exit_failed;
}

/// The one token that the file has: visible characters, and a line end or none.
result<std::string> read_token(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string token;
  std::string more;
  if (!in || !std::getline(in, token) || token.empty() || std::getline(in, more) ||
      !std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; }))
    return fail(errc::invalid_argument, file.string() + " cannot be read, or is not one line with a token");
  return token;
}

std::string in_path(std::string_view name) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain)
      out += c;
    else
      out.append("%").append(1, digits[byte >> 4U]).append(1, digits[byte & 15U]);
  }
  return out;
}

/// One request to a node's HTTP server. The error is for people, `code` tells what the program ends with.
struct node_answer {
  int code = exit_ok;
  std::string why;
  client_detail::answer reply;
};

node_answer ask_node(const node_access& node, std::string_view method, const std::string& path) {
  const auto where = client_detail::parse_url(node.url);
  if (!where)
    return {exit_usage, where.error().text, {}};
  std::string token;
  if (node.token_file) {
    auto read = read_token(*node.token_file);
    if (!read)
      return {exit_usage, read.error().text, {}};
    token = std::move(*read);
  }
  std::unique_ptr<ssl::context> tls;
  if (where->tls) {
    tls = std::make_unique<ssl::context>(ssl::context::tls_client);
    boost::system::error_code bad;
    tls->set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::no_compression, bad);
    if (node.ca)
      tls->load_verify_file(node.ca->string(), bad);
    else
      tls->set_default_verify_paths(bad);
    if (bad)
      return {exit_usage, "cannot load authorities: " + bad.message(), {}};
  }
  const auto now = std::chrono::steady_clock::now();
  auto open = client_detail::connection::open(*where, tls.get(), now + connect_time);
  if (!open)
    return {exit_failed, node.url + ": " + open.error().why.text, {}};
  std::string request(method);
  request.append(" ").append(where->prefix).append(path).append(" HTTP/1.1\r\nHost: ").append(where->authority);
  if (!token.empty())
    request.append("\r\nAuthorization: Bearer ").append(token);
  request.append("\r\nConnection: close\r\n\r\n");
  auto reply = (*open)->exchange(request, max_answer_bytes, now + answer_time);
  if (!reply)
    return {exit_failed, node.url + ": " + reply.error().why.text, {}};
  if (reply->status >= 200 && reply->status < 300)
    return {exit_ok, {}, std::move(*reply)};
  const auto body = nlohmann::json::parse(reply->body, nullptr, false);
  const auto text = body.is_object() && body.contains("detail") && body["detail"].is_string()
                        ? body["detail"].get<std::string>()
                        : "the node answers " + std::to_string(reply->status);
  return {exit_failed, text, std::move(*reply)};
}

/// Columns as wide as what stands in them.
std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size())
        out.append(widths[i] - row[i].size() + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

} // namespace

int list_namespaces(const list_namespaces_options& options) {
  const auto answer = ask_node(options.node, "GET", "/v1/namespaces");
  if (answer.code != exit_ok)
    return answer.code == exit_usage ? wrong(answer.why) : failed(answer.why);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!body.is_object() || !body.contains("namespaces") || !body["namespaces"].is_array())
    return failed(options.node.url + " does not answer as a node does");
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

int cluster_status(const cluster_status_options& options) {
  const auto answer = ask_node(options.node, "GET", "/v1/cluster");
  if (answer.code != exit_ok)
    return answer.code == exit_usage ? wrong(answer.why) : failed(answer.why);
  const auto body = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!body.is_object() || !body.contains("nodes") || !body["nodes"].is_array())
    return failed(options.node.url + " does not answer as a node does");
  if (options.json)
    return print(body.dump() + "\n") ? exit_ok : exit_failed;
  if (body.value("cluster", "").empty())
    return print("the node is part of no cluster\n") ? exit_ok : exit_failed;
  std::vector<std::vector<std::string>> rows{
      {"NODE", "ADDRESS", "STATE", "NAMESPACES", "ASKED", "HAD", "LATE", "PAGES", "BYTES", "FAILED", "TROUBLE"}};
  for (const auto& x : body["nodes"]) {
    auto& row = rows.emplace_back();
    const auto name = x.value("node", "");
    row = {name.empty() ? "?" : name, x.value("address", ""), x.value("state", "")};
    for (const auto* key : {"namespaces", "asked", "had", "late", "pages", "bytes", "failed"})
      row.push_back(std::to_string(x.value(key, std::uint64_t{0})));
    row.push_back(x.value("trouble", ""));
  }
  return print("cluster " + body.value("cluster", "") + "\n\n" + table_of(rows)) ? exit_ok : exit_failed;
}

int remove_namespace(const remove_namespace_options& options) {
  const auto answer = ask_node(options.node, "DELETE",
                               "/v1/namespaces/" + in_path(options.name) + (options.force ? "?force=true" : ""));
  if (answer.code == exit_ok)
    return exit_ok;
  if (answer.code == exit_usage)
    return wrong(answer.why);
  const bool in_use = answer.reply.status == 409 && !options.force;
  return failed("namespace '" + options.name + "' is not removed: " + answer.why +
                (in_use ? " (--force sends away who uses it)" : ""));
}

} // namespace troupe::cli
