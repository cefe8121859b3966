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

/// What the wires of slot clients have in common: parts of bodies. As everywhere, a body is read completely before
/// any of it is used.

namespace troupe::http::slots {

/// What reading a body needs.
struct body_rules {
  /// Items of one list.
  std::size_t max_keys = 65536;
  const client_keys& keys;
};

/// A rank: a whole number below 2^32 - 1 in decimal digits, without sign or leading zeros. Else 422.
accepted<rank_number> rank_from_text(std::string_view text);

/// The member "rank". As a string it means the same as the number. 400 if it is missing or null, 422 if it is no rank.
accepted<rank_number> rank_member(const simdjson::dom::object& body);

/// Nothing stands for an empty list.
using json_list = std::optional<simdjson::dom::array>;

/// An array, or nothing if it is missing. 400 if it is anything else, as the server that these clients know answers.
accepted<json_list> list_member(const simdjson::dom::object& body, std::string_view name, std::size_t max_items);

/// Strings, as digests, in their order. 422 if one is no string.
accepted<std::vector<key_digest>> read_keys(const json_list& list, std::string_view name, const body_rules& rules);

/// Keys that need pages.
struct wanted_pages {
  /// Each once, in the order in which they first occur.
  std::vector<key_digest> keys;
  /// Per key: the key before it, null where none was named. Empty if none was for any.
  std::vector<key_digest> parents;
  /// Per key of the request: its place in `keys`.
  std::vector<std::uint32_t> places;
  /// With `keep_text`, the strings of `keys` as JSON, one behind the other; and where each ends.
  std::string text;
  std::vector<std::size_t> text_ends;
};

/// Pairs of a key and the key before it, which may be empty or null, as it is in what vLLM sends. Nothing says that it
/// is true, and the registry does not rely on it. Where a key occurs twice, the first pair counts. 422 if one is no
/// such pair.
accepted<wanted_pages> read_wanted(const json_list& list, std::string_view name, const body_rules& rules,
                                   bool keep_text);

/// What became of pages that were given out.
struct written_pages {
  /// Generation 0: whatever it is.
  std::vector<page_ref> written;
  std::vector<slot_number> released;
  /// How many items named a page that cannot be: negative, or 2^32 - 1 and more.
  std::uint32_t impossible = 0;
};

/// Pairs of key and page, and page numbers, for which null is an empty list as well. 400 if it is no list, 422 if an
/// item has another shape.
accepted<written_pages> read_written(const simdjson::dom::object& body, std::string_view written_name,
                                     std::string_view released_name, const body_rules& rules);

/// A name that may stand in a path and in a log: 1 to 64 letters, digits, dots, hyphens and underscores, a letter or
/// digit first. Else 422.
accepted<std::string> checked_name(std::string_view name);

} // namespace troupe::http::slots
