#pragma once

#include "base/digest.hpp"
#include "base/identifiers.hpp"
#include "http/server/json_body.hpp"
#include "http/slots/client_keys.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

/// Parts of bodies that the protocols of slot clients have in common. As everywhere, a body is validated completely
/// before any of it is used.

namespace troupe::http::slots {

/// Parameters for reading a body.
struct body_rules {
  /// Limit of items in one list.
  std::size_t max_keys = 65536;
  const client_keys& keys;
};

/// A rank: a whole number below 2^32 - 1 in decimal digits, without sign or leading zeros. Else 422.
accepted<rank_number> rank_from_text(std::string_view text);

/// The member "rank". A string means the same as the number. 400 if it is missing or null, 422 if it is not a rank.
accepted<rank_number> rank_member(const simdjson::dom::object& body);

/// None means an empty list.
using json_list = std::optional<simdjson::dom::array>;

/// An array, or none if it is missing. 400 for anything else, like the server that these clients are written for.
accepted<json_list> list_member(const simdjson::dom::object& body, std::string_view name, std::size_t max_items);

/// Strings, as digests, in their order. 422 if one is not a string.
accepted<std::vector<key_digest>> read_keys(const json_list& list, std::string_view name, const body_rules& rules);

/// Keys that need pages.
struct wanted_pages {
  /// Distinct keys, in the order of their first occurrence.
  std::vector<key_digest> keys;
  /// Per key: its parent, null if none was named. Empty if no key has one.
  std::vector<key_digest> parents;
  /// Per key of the request: its position in `keys`.
  std::vector<std::uint32_t> places;
  /// With `keep_text`, the strings of `keys` as JSON, concatenated; and where each ends.
  std::string text;
  std::vector<std::size_t> text_ends;
};

/// Pairs of a key and its parent, which may be empty or null, as vLLM sends it. The parent is unverified, and the
/// registry does not rely on it. Of a repeated key, the first pair counts. 422 if one is not such a pair.
accepted<wanted_pages> read_wanted(const json_list& list, std::string_view name, const body_rules& rules,
                                   bool keep_text);

/// The results of writes to reserved pages.
struct written_pages {
  /// Generation 0: any.
  std::vector<page_ref> written;
  std::vector<slot_number> released;
  /// Items with an impossible page number: negative, or 2^32 - 1 and more.
  std::uint32_t impossible = 0;
};

/// Pairs of key and page, and page numbers; null is an empty list as well. 400 if it is not a list, 422 if an item has
/// another shape.
accepted<written_pages> read_written(const simdjson::dom::object& body, std::string_view written_name,
                                     std::string_view released_name, const body_rules& rules);

/// A name that is valid in a path and in a log: 1 to 64 letters, digits, dots, hyphens and underscores, a letter or
/// digit first. Else 422.
accepted<std::string> checked_name(std::string_view name);

} // namespace troupe::http::slots
