#include "tests/http_client/wire.hpp"

#include "http/server/json_body.hpp"
#include "http/server/json_text.hpp"

#include <limits>
#include <unordered_set>

namespace troupe::client_detail {

namespace {

using http::append_json;
using http::append_list;
using simdjson::dom::element;

void append_keys(std::string& out, std::span<const std::string> keys) {
  append_list(out, keys, [&](const std::string& x) { append_json(out, std::string_view{x}); });
}

std::string with_rank(rank_number rank) {
  std::string out = R"({"rank":)";
  append_json(out, std::uint64_t{rank});
  return out;
}

tl::unexpected<error> nonsense(std::string_view what) {
  return fail(errc::internal, "the server's answer makes no sense: " + std::string(what));
}

/// The list of that name in an object that is all of the body. What it refers to lives as long as `body`, and until the
/// next call on this thread.
result<simdjson::dom::array> read_list(std::string& body, std::string_view name) {
  const auto size = body.size();
  body.append(http::body_padding, ' ');
  const auto root = http::parse_json(std::string_view{body}.substr(0, size));
  if (!root)
    return nonsense(root.error().detail);
  simdjson::dom::array list;
  if (root->at_key(name).get(list) != simdjson::SUCCESS)
    return nonsense("there is no list \"" + std::string(name) + "\"");
  return list;
}

std::optional<slot_number> as_slot(const element& x) {
  std::uint64_t value = 0;
  if (x.get_uint64().get(value) != simdjson::SUCCESS || value > std::numeric_limits<slot_number>::max())
    return std::nullopt;
  return static_cast<slot_number>(value);
}

bool is_none(const element& x) {
  std::int64_t value = 0;
  return x.is_null() || (x.get_int64().get(value) == simdjson::SUCCESS && value == -1);
}

} // namespace

std::string initialize_body(std::uint64_t pages, metadata_client::client_role role) {
  std::string out = R"({"num_pages":)";
  append_json(out, pages);
  out += role == metadata_client::client_role::worker ? R"(,"role":"worker"})" : R"(,"role":"scheduler"})";
  return out;
}

std::string allocate_body(rank_number rank, std::span<const metadata_client::key_and_prefix> keys) {
  auto out = with_rank(rank) + R"(,"keys":)";
  append_list(out, keys, [&](const metadata_client::key_and_prefix& x) {
    out += '[';
    append_json(out, std::string_view{x.key});
    out += ',';
    append_json(out, std::string_view{x.prefix});
    out += ']';
  });
  out += '}';
  return out;
}

std::string confirm_body(rank_number rank, std::span<const metadata_client::key_and_page> confirmations,
                         std::span<const slot_number> pages_to_release) {
  auto out = with_rank(rank) + R"(,"confirmations":)";
  append_list(out, confirmations, [&](const metadata_client::key_and_page& x) {
    out += '[';
    append_json(out, std::string_view{x.key});
    out += ',';
    append_json(out, std::uint64_t{x.page});
    out += ']';
  });
  out += R"(,"pages_to_release":)";
  append_list(out, pages_to_release, [&](slot_number x) { append_json(out, std::uint64_t{x}); });
  out += '}';
  return out;
}

std::string exists_body(std::span<const std::string> keys) {
  std::string out = R"({"keys":)";
  append_keys(out, keys);
  out += '}';
  return out;
}

std::string locations_body(rank_number rank, std::span<const std::string> keys) {
  auto out = with_rank(rank) + R"(,"keys":)";
  append_keys(out, keys);
  out += '}';
  return out;
}

result<std::vector<metadata_client::allocation>>
read_allocations(std::string body, std::span<const metadata_client::key_and_prefix> asked) {
  const auto list = read_list(body, "results");
  if (!list)
    return tl::unexpected(list.error());
  std::vector<metadata_client::allocation> out;
  for (const auto item : *list) {
    simdjson::dom::array pair;
    std::string_view key;
    element page;
    if (item.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get_string().get(key) != simdjson::SUCCESS || pair.at(1).get(page) != simdjson::SUCCESS)
      return nonsense("a result is no pair of key and page");
    const auto slot = as_slot(page);
    if (!slot && !is_none(page))
      return nonsense("a page is no page number");
    out.push_back({std::string(key), slot});
  }
  // A writer must be sure which key its page is for.
  std::unordered_set<std::string_view> seen;
  std::size_t i = 0;
  for (const auto& x : asked) {
    if (!seen.insert(x.key).second)
      continue;
    if (i == out.size() || out[i].key != x.key)
      return nonsense("its keys are not those that were asked for");
    ++i;
  }
  if (i != out.size())
    return nonsense("there are more results than keys");
  return out;
}

result<std::vector<bool>> read_exists(std::string body, std::size_t asked) {
  const auto list = read_list(body, "exists");
  if (!list)
    return tl::unexpected(list.error());
  std::vector<bool> out;
  out.reserve(asked);
  for (const auto item : *list) {
    bool value = false;
    if (item.get_bool().get(value) != simdjson::SUCCESS)
      return nonsense("something is neither true nor false");
    out.push_back(value);
  }
  if (out.size() != asked)
    return nonsense("there is not one result per key");
  return out;
}

result<std::vector<std::optional<slot_number>>> read_locations(std::string body, std::size_t asked) {
  const auto list = read_list(body, "locations");
  if (!list)
    return tl::unexpected(list.error());
  std::vector<std::optional<slot_number>> out;
  out.reserve(asked);
  for (const auto item : *list) {
    out.push_back(as_slot(item));
    if (!out.back() && !is_none(item))
      return nonsense("a page is no page number");
  }
  if (out.size() != asked)
    return nonsense("there is not one result per key");
  return out;
}

std::string read_detail(std::string body) {
  constexpr std::size_t enough = 200;
  const auto size = body.size();
  body.append(http::body_padding, ' ');
  const auto root = http::parse_json(std::string_view{body}.substr(0, size));
  std::string_view text;
  if (root && root->at_key("detail").get_string().get(text) == simdjson::SUCCESS)
    return std::string(text);
  return body.substr(0, std::min(size, enough));
}

} // namespace troupe::client_detail
