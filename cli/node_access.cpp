#include "cli/node_access.hpp"

#include "base/local_socket.hpp"
#include "http_client/client_tls.hpp"
#include "http_client/endpoint.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>

namespace troupe::cli {

namespace {

constexpr duration connect_time = std::chrono::seconds(10);
constexpr std::size_t max_answer_bytes = std::size_t{64} << 20U;

/// The only token in the file: visible characters, and at most one line end.
result<std::string> read_token(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string token;
  std::string more;
  if (!in || !std::getline(in, token) || token.empty() || std::getline(in, more) ||
      !std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; }))
    return fail(errc::invalid_argument, file.string() + " cannot be read, or is not a single line with a token");
  return token;
}

/// The data directory of the packaged service.
constexpr const char* service_data = "/var/lib/troupe";

/// The default node: the one that runs as a service, if this user has access to it, or else the one of the quick start.
std::string usual_url() {
  return connect_local(service_data, http_socket_name) ? "unix:" + std::string(service_data) : "http://127.0.0.1:18000";
}

/// The cause of a failed connection, without the address, which the sentence names anyway.
std::string unreachable(const std::string& url, const client_detail::endpoint& where, std::string why) {
  if (const auto address = where.host + ":" + where.port + ": "; why.starts_with(address))
    why.erase(0, address.size());
  // Errors about sockets already ask whether a node is running; `http.enabled` opens a socket.
  return "cannot reach a node at " + url + ": " + why +
         (where.socket.empty() ? "; is one running (`troupe serve`), and does its config have http.enabled?"
                               : " (http.enabled)");
}

/// A node has other sockets beside the one for HTTP, in the same directory.
std::string unanswered(const std::string& url, const client_detail::endpoint& where, const std::string& why) {
  const bool is_other = std::filesystem::path(where.socket).filename() == actors_socket_name;
  return url + ": " + why + (is_other ? std::string("; a node answers at its ") + http_socket_name : std::string());
}

/// The error text of an answer that is not a success.
std::string refusal(const std::string& url, const client_detail::answer& reply) {
  if (reply.status == 401)
    return url + " needs a token: name its file with --token-file";
  const auto body = nlohmann::json::parse(reply.body, nullptr, false);
  if (body.is_object() && body.contains("detail") && body["detail"].is_string())
    return body["detail"].get<std::string>();
  return "the server at " + url + " is not a Troupe node: status " + std::to_string(reply.status);
}

node_answer ask_at(const std::string& url, const node_access& node, std::string_view method, const std::string& path,
                   duration patience) {
  const auto where = client_detail::parse_url(url);
  if (!where)
    return {exit_usage, where.error().text};
  std::string token;
  if (node.token_file) {
    auto read = read_token(*node.token_file);
    if (!read)
      return {exit_usage, read.error().text};
    token = std::move(*read);
  }
  std::shared_ptr<boost::asio::ssl::context> tls;
  if (where->tls) {
    auto loaded = client_detail::load_client_tls({node.ca, {}, {}});
    if (!loaded)
      return {exit_usage, loaded.error().text};
    tls = std::move(*loaded);
  }
  const auto now = std::chrono::steady_clock::now();
  auto open = client_detail::connection::open(*where, tls.get(), now + std::min(patience, connect_time));
  if (!open)
    return {exit_failed, unreachable(url, *where, open.error().why.text)};
  std::string request(method);
  request.append(" ").append(where->prefix).append(path).append(" HTTP/1.1\r\nHost: ").append(where->authority);
  if (!token.empty())
    request.append("\r\nAuthorization: Bearer ").append(token);
  request.append("\r\nConnection: close\r\n\r\n");
  auto reply = (*open)->exchange(request, max_answer_bytes, now + patience);
  if (!reply)
    return {exit_failed, unanswered(url, *where, reply.error().why.text)};
  if (reply->status >= 200 && reply->status < 300)
    return {exit_ok, {}, std::move(*reply)};
  auto why = refusal(url, *reply);
  return {exit_failed, std::move(why), std::move(*reply)};
}

} // namespace

node_answer ask_node(const node_access& node, std::string_view method, const std::string& path, duration patience) {
  const auto url = node.url.empty() ? usual_url() : node.url;
  auto out = ask_at(url, node, method, path, patience);
  out.url = url;
  return out;
}

std::string url_of(std::string_view address) {
  std::string text(address);
  if (address.find("://") != std::string_view::npos || address.starts_with("unix:"))
    return text;
  // An existing path is preferred, and so is a text that looks like a path: "data" is a directory before it is a host
  // name.
  std::error_code ignored;
  const auto there = std::filesystem::status(text, ignored).type();
  const bool is_path = address.starts_with('/') || address.starts_with('.') ||
                       there == std::filesystem::file_type::directory || there == std::filesystem::file_type::socket;
  return (is_path ? "unix:" : "http://") + text;
}

std::string url_escaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
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

} // namespace troupe::cli
