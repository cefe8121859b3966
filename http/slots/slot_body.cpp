#include "http/slots/slot_body.hpp"

#include "base/parse_number.hpp"
#include "http/server/json_text.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

namespace troupe::http::slots {

namespace {

constexpr std::uint64_t most_rank = std::numeric_limits<rank_number>::max() - 1;
constexpr std::uint64_t most_slot = std::numeric_limits<slot_number>::max() - 1;

tl::unexpected<rejection> unprocessable(std::string detail) {
  return tl::unexpected(rejection{status::unprocessable_content, std::move(detail)});
}

tl::unexpected<rejection> bad_request(std::string detail) {
  return tl::unexpected(rejection{status::bad_request, std::move(detail)});
}

std::string item_name(std::string_view list, std::size_t i) {
  return std::string{list} + "[" + std::to_string(i) + "]";
}

/// The two elements of a pair; none if it is not a pair.
std::optional<std::pair<simdjson::dom::element, simdjson::dom::element>> pair_of(const simdjson::dom::element& x) {
  simdjson::dom::array items;
  if (x.get_array().get(items) != simdjson::SUCCESS || items.size() != 2)
    return std::nullopt;
  auto at = items.begin();
  const auto first = *at;
  ++at;
  return std::pair{first, *at};
}

/// Finds repeated keys. Open addressing, at most half full.
class seen_keys {
public:
  explicit seen_keys(std::size_t keys) : slots_(std::bit_ceil(2 * keys + 1), none) {}

  /// The position of the key in `known`, to which it is added if it is missing.
  std::uint32_t find_or_add(const key_digest& key, std::vector<key_digest>& known) {
    const auto mask = slots_.size() - 1;
    for (auto at = mix(key) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == none) {
        slots_[at] = static_cast<std::uint32_t>(known.size());
        known.push_back(key);
        return slots_[at];
      }
      if (known[slots_[at]] == key)
        return slots_[at];
    }
  }

private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  std::vector<std::uint32_t> slots_;
};

/// A page number: none if there cannot be such a page, a rejection if it is not a whole number.
accepted<std::optional<slot_number>> read_page(const simdjson::dom::element& x, std::string_view list, std::size_t i) {
  std::uint64_t number = 0;
  if (x.get_uint64().get(number) == simdjson::SUCCESS)
    return number <= most_slot ? std::optional{static_cast<slot_number>(number)} : std::nullopt;
  if (x.is_int64())
    return std::nullopt; // negative
  return unprocessable(item_name(list, i) + ": a page must be a whole number");
}

std::size_t size_of(const json_list& list) {
  return list ? list->size() : 0;
}

/// Calls `read(element, position)` for each item until one is refused.
template <class Read>
accepted<void> for_each(const json_list& list, Read read) {
  if (!list)
    return {};
  std::size_t i = 0;
  for (const auto& x : *list)
    if (auto done = read(x, i++); !done)
      return done;
  return {};
}

} // namespace

accepted<rank_number> rank_from_text(std::string_view text) {
  const auto rank = parse_number(text);
  const bool is_canonical = text == "0" || (!text.empty() && text.front() != '0');
  if (!rank || !is_canonical || *rank > most_rank)
    return unprocessable("rank: expected a whole number, 0 to " + std::to_string(most_rank));
  return static_cast<rank_number>(*rank);
}

accepted<rank_number> rank_member(const simdjson::dom::object& body) {
  simdjson::dom::element found;
  if (body.at_key("rank").get(found) != simdjson::SUCCESS || found.is_null())
    return bad_request("rank: is missing");
  std::string_view text;
  if (found.get_string().get(text) == simdjson::SUCCESS)
    return rank_from_text(text);
  const auto number = as_unsigned(found, "rank", 0, most_rank);
  if (!number)
    return tl::unexpected(number.error());
  return static_cast<rank_number>(*number);
}

accepted<json_list> list_member(const simdjson::dom::object& body, std::string_view name, std::size_t max_items) {
  simdjson::dom::element found;
  if (body.at_key(name).get(found) != simdjson::SUCCESS)
    return json_list{};
  auto list = as_array(found, name, max_items);
  if (list)
    return json_list{*list};
  if (list.error().code == status::unprocessable_content)
    list.error().code = status::bad_request;
  return tl::unexpected(std::move(list.error()));
}

accepted<std::vector<key_digest>> read_keys(const json_list& list, std::string_view name, const body_rules& rules) {
  // Appending would make the compiler copy each digest by way of the stack, and wait for the copy.
  std::vector<key_digest> keys(size_of(list));
  if (keys.empty())
    return keys;
  std::size_t i = 0;
  for (const auto& x : *list) {
    std::string_view key;
    if (x.get_string().get(key) != simdjson::SUCCESS)
      return unprocessable(item_name(name, i) + ": a key must be a string");
    keys[i++] = rules.keys.digest(key);
  }
  return keys;
}

accepted<wanted_pages> read_wanted(const json_list& list, std::string_view name, const body_rules& rules,
                                   bool keep_text) {
  const auto count = size_of(list);
  wanted_pages out;
  out.keys.reserve(count);
  out.places.reserve(count);
  seen_keys seen{count};
  const auto all = for_each(list, [&](const auto& x, std::size_t i) -> accepted<void> {
    const auto pair = pair_of(x);
    std::string_view key;
    std::string_view parent;
    if (!pair || pair->first.get_string().get(key) != simdjson::SUCCESS ||
        !(pair->second.get_string().get(parent) == simdjson::SUCCESS || pair->second.is_null()))
      return unprocessable(item_name(name, i) + ": expected a pair of a key and the key before it");
    const auto known = out.keys.size();
    out.places.push_back(seen.find_or_add(rules.keys.digest(key), out.keys));
    if (!parent.empty() && out.keys.size() > known) {
      out.parents.resize(out.keys.size());
      out.parents.back() = rules.keys.digest(parent);
    }
    if (keep_text && out.keys.size() > known) {
      append_json(out.text, key);
      out.text_ends.push_back(out.text.size());
    }
    return {};
  });
  if (!all)
    return tl::unexpected(all.error());
  if (!out.parents.empty())
    out.parents.resize(out.keys.size());
  return out;
}

accepted<written_pages> read_written(const simdjson::dom::object& body, std::string_view written_name,
                                     std::string_view released_name, const body_rules& rules) {
  const auto written = list_member(body, written_name, rules.max_keys);
  if (!written)
    return tl::unexpected(written.error());
  simdjson::dom::element none;
  const bool is_null = body.at_key(released_name).get(none) == simdjson::SUCCESS && none.is_null();
  const auto released = is_null ? accepted<json_list>{} : list_member(body, released_name, rules.max_keys);
  if (!released)
    return tl::unexpected(released.error());
  written_pages out;
  auto all = for_each(*written, [&](const auto& x, std::size_t i) -> accepted<void> {
    const auto pair = pair_of(x);
    std::string_view key;
    if (!pair || pair->first.get_string().get(key) != simdjson::SUCCESS)
      return unprocessable(item_name(written_name, i) + ": expected a pair of a key and a page");
    const auto page = read_page(pair->second, written_name, i);
    if (!page)
      return tl::unexpected(page.error());
    if (*page)
      out.written.push_back({rules.keys.digest(key), {**page, 0}});
    else
      ++out.impossible;
    return {};
  });
  if (all)
    all = for_each(*released, [&](const auto& x, std::size_t i) -> accepted<void> {
      const auto page = read_page(x, released_name, i);
      if (!page)
        return tl::unexpected(page.error());
      if (*page)
        out.released.push_back(**page);
      else
        ++out.impossible;
      return {};
    });
  if (!all)
    return tl::unexpected(all.error());
  return out;
}

accepted<std::string> checked_name(std::string_view name) {
  constexpr std::size_t most = 64;
  const auto is_alphanumeric = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  const auto is_allowed = [&](char c) { return is_alphanumeric(c) || c == '.' || c == '-' || c == '_'; };
  if (name.empty() || name.size() > most || !is_alphanumeric(name.front()) || !std::ranges::all_of(name, is_allowed))
    return unprocessable("namespace: expected 1 to " + std::to_string(most) +
                         " letters, digits, '.', '-' and '_', a letter or digit first");
  return std::string{name};
}

} // namespace troupe::http::slots
