#pragma once

#include "config/node_config.hpp"

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Parses JSON text into a tree with the position of each value, for error messages.

namespace troupe::config {

/// A whole number below zero.
struct negative_number {
  std::int64_t value = 0;
};

struct json_null {};
struct json_list {};
struct json_object {};

/// One value of a document.
struct element {
  /// The member's name if the value is in an object.
  std::string key;
  std::variant<json_null, bool, std::uint64_t, negative_number, double, std::string, json_list, json_object> value;
  /// The items of lists and objects, in the order of the text.
  std::vector<element> children;
  /// A number as it was written.
  std::string spelling;
  /// As in `problem::where`.
  std::string where;

  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(value);
  }

  /// The member of an object, or null.
  const element* find(std::string_view name) const noexcept;
  element* find(std::string_view name) noexcept;
};

/// The value as a message shows it: short, quoted, without control characters.
std::string show(const element& x);

/// `path` followed by a member's name or an index; names with other characters are written as `["…"]`.
std::string join(std::string_view path, std::string_view key);
std::string join(std::string_view path, std::size_t index);

/// Whether bytes are valid text of a config: UTF-8 without control characters.
bool is_plain_text(std::string_view text);

/// Parses JSON with comments. Refused, besides invalid JSON: a repeated key in one object, more than 16 levels. `where`
/// is the position of all values; empty: their lines. Syntax errors have the path `origin`.
tl::expected<element, std::vector<problem>> read_document(std::string_view text, std::string_view origin,
                                                          std::string_view where = {});

} // namespace troupe::config
