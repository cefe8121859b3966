#include "actors/cluster/etcd/etcd_protocol.hpp"

#include "base/base64.hpp"
#include "base/parse_number.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace troupe::cluster {

namespace {

using json = nlohmann::json;

/// The limit of a node name in an entry.
constexpr std::size_t max_node_name = 256;
/// The most characters of etcd's refusal that go into the log.
constexpr std::size_t max_refusal = 200;
/// The limit of a token, which is a few words or a JWT.
constexpr std::size_t max_token_bytes = std::size_t{8} << 10U;

/// The first key after all those with the prefix.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 255)
    prefix.pop_back();
  if (prefix.empty())
    return std::string(1, '\0'); // etcd's notation for the end of all keys
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

/// 0 where it is left out; empty where it is not a number, or is negative, which etcd's never are.
std::optional<std::int64_t> number_at(const json& x, const char* key) {
  const auto found = x.find(key);
  if (found == x.end())
    return 0;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  std::optional<std::int64_t> out;
  if (found->is_string())
    out = parse_number<std::int64_t>(found->get_ref<const std::string&>());
  else if (found->is_number_unsigned() && found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most))
    out = found->get<std::int64_t>();
  return out && *out >= 0 ? out : std::nullopt;
}

std::optional<std::string> bytes_at(const json& x, const char* key) {
  const auto found = x.find(key);
  if (found == x.end())
    return std::string{};
  if (!found->is_string())
    return std::nullopt;
  return from_base64(found->get_ref<const std::string&>());
}

std::string text_at(const json& x, const char* key) {
  const auto found = x.find(key);
  return found != x.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

/// Makes a text safe for the log and for JSON.
std::string notified(std::string_view text) {
  std::string out(text.substr(0, max_refusal));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

tl::unexpected<error> senseless(std::string_view what) {
  return fail(errc::corrupt, "etcd's answer is not a valid " + std::string(what));
}

/// Status codes of gRPC.
constexpr std::int64_t code_invalid_argument = 3;
constexpr std::int64_t code_not_found = 5;
constexpr std::int64_t code_permission_denied = 7;
constexpr std::int64_t code_failed_precondition = 9;
constexpr std::int64_t code_unauthenticated = 16;

constexpr unsigned status_fine = 200;

/// Parses an answer as an object; an error where etcd refuses.
result<json> read_object(std::string_view text, std::string_view what) {
  auto out = json::parse(text, nullptr, false);
  if (!out.is_object())
    return senseless(what);
  return out;
}

/// A refusal by etcd.
struct etcd_refusal {
  std::int64_t code = 0;
  std::string why;
};

/// Streams put the refusal into an object of its own; gateways of 3.6 leave `error` out.
etcd_refusal refusal_of(const json& x) {
  const auto inner = x.find("error");
  const auto& at = inner != x.end() && inner->is_object() ? *inner : x;
  auto why = text_at(at, "error");
  if (why.empty())
    why = text_at(at, "message");
  const auto code = number_at(at, at.contains("grpc_code") ? "grpc_code" : "code");
  return {code.value_or(0), notified(why)};
}

tl::unexpected<error> refused(const etcd_reply& reply, etcd_refusal x) {
  if (x.why.empty())
    x.why = "etcd answered with status " + std::to_string(reply.status);
  const auto says = [&](std::string_view part) { return x.why.find(part) != std::string::npos; };
  if (x.code == code_not_found)
    return fail(errc::not_found, x.why);
  if (says("user name is empty"))
    return fail(errc::expired, "etcd requires a login; set cluster.etcd.user and cluster.etcd.password_file");
  if (x.code == code_unauthenticated || says("revision of auth store is old"))
    return fail(errc::expired, x.why);
  if (x.code == code_permission_denied)
    return fail(errc::unreachable,
                x.why + "; grant the user a role with readwrite permission on the prefix of the nodes");
  return fail(errc::unreachable, x.why);
}

/// The error for an answer that is not JSON: from a proxy in front of etcd's gateway, or from another server.
std::string plain_refusal(const etcd_reply& reply) {
  const auto says = [&](std::string_view part) { return reply.body.find(part) != std::string::npos; };
  if (says("CommonName of client"))
    return "etcd with authentication enabled refuses a client certificate with a common name over its JSON gateway; "
           "use "
           "one without (cluster.etcd.tls.certificate)";
  if (says("HTTP request to an HTTPS server"))
    return "etcd expects TLS there; set cluster.etcd.tls.ca";
  return "the listener there answered with status " + std::to_string(reply.status) + " and is not etcd";
}

result<json> read_reply(const etcd_reply& reply, std::string_view what) {
  auto out = read_object(reply.body, what);
  if (reply.status == status_fine)
    return out;
  if (!out)
    return fail(errc::unreachable, plain_refusal(reply));
  return refused(reply, refusal_of(*out));
}

std::optional<std::int64_t> revision_of(const json& x) {
  const auto header = x.find("header");
  if (header == x.end() || !header->is_object())
    return std::nullopt;
  return number_at(*header, "revision");
}

std::optional<etcd_entry> entry_of(const json& x) {
  if (!x.is_object())
    return std::nullopt;
  auto key = bytes_at(x, "key");
  auto value = bytes_at(x, "value");
  const auto revision = number_at(x, "mod_revision");
  if (!key || key->empty() || !value || !revision)
    return std::nullopt;
  return etcd_entry{std::move(*key), std::move(*value), *revision, false};
}

/// Reads the list at `key`, each item with `read`; false if an item is invalid.
template <class Read>
bool read_list(const json& x, const char* key, std::vector<etcd_entry>& out, Read read) {
  const auto found = x.find(key);
  if (found == x.end())
    return true;
  if (!found->is_array())
    return false;
  for (const auto& item : *found) {
    auto entry = read(item);
    if (!entry)
      return false;
    out.push_back(std::move(*entry));
  }
  return true;
}

std::optional<etcd_entry> event_of(const json& x) {
  if (!x.is_object() || !x.contains("kv"))
    return std::nullopt;
  auto out = entry_of(x.at("kv"));
  if (out)
    out->removed = text_at(x, "type") == "DELETE";
  return out;
}

} // namespace

std::string login_body(std::string_view user, std::string_view password) {
  return json{{"name", user}, {"password", password}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string grant_body(std::int64_t seconds) {
  return json{{"TTL", std::to_string(seconds)}}.dump();
}

std::string keep_alive_body(std::int64_t lease) {
  return json{{"ID", std::to_string(lease)}}.dump();
}

std::string put_body(std::string_view key, std::string_view value, std::int64_t lease) {
  return json{{"key", to_base64(key)}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}}.dump();
}

std::string range_body(std::string_view prefix) {
  return json{{"key", to_base64(prefix)}, {"range_end", to_base64(end_of(std::string(prefix)))}}.dump();
}

std::string watch_body(std::string_view prefix, std::int64_t from_revision) {
  const json what{{"key", to_base64(prefix)},
                  {"range_end", to_base64(end_of(std::string(prefix)))},
                  {"start_revision", std::to_string(from_revision)}};
  return json{{"create_request", what}}.dump();
}

result<std::string> read_login(const etcd_reply& reply) {
  const auto x = read_object(reply.body, "login answer");
  if (reply.status == status_fine) {
    if (!x)
      return tl::unexpected<error>(x.error());
    auto token = text_at(*x, "token");
    // The token becomes part of a header, so it must not have spaces or control characters.
    if (token.empty() || token.size() > max_token_bytes ||
        !std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; }))
      return senseless("login answer");
    return token;
  }
  if (!x)
    return fail(errc::unreachable, plain_refusal(reply));
  const auto refusal = refusal_of(*x);
  const auto says = [&](std::string_view part) { return refusal.why.find(part) != std::string::npos; };
  if (refusal.code == code_failed_precondition && says("not enabled"))
    return fail(errc::unsupported, "etcd has authentication disabled");
  // etcd's own text is not used, because it may repeat the credentials.
  if (refusal.code == code_invalid_argument)
    return fail(errc::invalid_argument,
                "etcd refused the user or its password; put the right password into the file of "
                "cluster.etcd.password_file, which is read again at each login");
  return refused(reply, refusal);
}

result<etcd_lease> read_grant(const etcd_reply& reply) {
  const auto x = read_reply(reply, "lease");
  if (!x)
    return tl::unexpected<error>(x.error());
  const auto id = number_at(*x, "ID");
  const auto seconds = number_at(*x, "TTL");
  if (!id || *id == 0 || !seconds || *seconds == 0)
    return senseless("lease");
  return etcd_lease{*id, *seconds};
}

result<etcd_lease> read_keep_alive(const etcd_reply& reply) {
  const auto x = read_reply(reply, "lease");
  if (!x)
    return tl::unexpected<error>(x.error());
  const auto inner = x->find("result");
  if (inner == x->end() && x->contains("error"))
    return refused(reply, refusal_of(*x));
  if (inner == x->end() || !inner->is_object())
    return senseless("lease");
  const auto id = number_at(*inner, "ID");
  const auto seconds = number_at(*inner, "TTL");
  if (!id || *id == 0 || !seconds)
    return senseless("lease");
  return etcd_lease{*id, *seconds};
}

result<std::int64_t> read_put(const etcd_reply& reply) {
  const auto x = read_reply(reply, "put answer");
  if (!x)
    return tl::unexpected<error>(x.error());
  const auto revision = revision_of(*x);
  if (!revision)
    return senseless("put answer");
  return *revision;
}

result<etcd_range> read_range(const etcd_reply& reply) {
  const auto x = read_reply(reply, "list of keys");
  if (!x)
    return tl::unexpected<error>(x.error());
  const auto revision = revision_of(*x);
  etcd_range out;
  if (!revision || *revision == std::numeric_limits<std::int64_t>::max() ||
      !read_list(*x, "kvs", out.entries, entry_of))
    return senseless("list of keys");
  out.revision = *revision;
  return out;
}

result<etcd_news> read_watch(std::string_view line) {
  const auto x = read_object(line, "watch event");
  if (!x)
    return tl::unexpected<error>(x.error());
  const auto inner = x->find("result");
  if (inner == x->end() || !inner->is_object()) {
    if (!x->contains("error"))
      return senseless("watch event");
    const auto why = refusal_of(*x).why;
    return etcd_news{0, {}, why.empty() ? "etcd has ended the watch" : why};
  }
  etcd_news out;
  const auto revision = revision_of(*inner);
  if (!revision || !read_list(*inner, "events", out.entries, event_of))
    return senseless("watch event");
  out.revision = *revision;
  const auto compacted = number_at(*inner, "compact_revision");
  const auto canceled = inner->find("canceled");
  if (compacted.value_or(1) != 0)
    out.end = "the revisions of the watch have been compacted";
  else if (canceled != inner->end() && canceled->is_boolean() && canceled->get<bool>())
    out.end = "etcd has ended the watch: " + notified(text_at(*inner, "cancel_reason"));
  return out;
}

std::string write_listed(const listed_node& x) {
  return json{{"node", x.node}, {"incarnation", std::to_string(x.incarnation)}}.dump(-1, ' ', false,
                                                                                     json::error_handler_t::replace);
}

result<listed_node> read_listed(std::string_view value) {
  const auto x = json::parse(value, nullptr, false);
  const auto wrong = [] { return fail(errc::corrupt, "its value does not name a node"); };
  if (!x.is_object())
    return wrong();
  listed_node out{text_at(x, "node"), 0};
  const auto incarnation = parse_number(text_at(x, "incarnation"));
  if (out.node.empty() || out.node.size() > max_node_name || !incarnation || *incarnation == 0)
    return wrong();
  out.incarnation = *incarnation;
  return out;
}

bool is_listed_address(std::string_view x) {
  constexpr std::size_t max_host = 253;
  const auto colon = x.rfind(':');
  if (colon == std::string_view::npos)
    return false;
  auto host = x.substr(0, colon);
  const auto port = x.substr(colon + 1);
  const auto number = parse_number<std::uint16_t>(port);
  if (!number || *number == 0 || port.front() == '0')
    return false;
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets)
    host = host.substr(1, host.size() - 2);
  const auto fits = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           (in_brackets && (c == ':' || c == '%'));
  };
  return !host.empty() && host.size() <= max_host && std::ranges::all_of(host, fits) &&
         in_brackets == (host.find(':') != std::string_view::npos);
}

} // namespace troupe::cluster
