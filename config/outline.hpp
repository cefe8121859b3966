#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// The schema as data: for checking overrides and listing keys in the documentation.

namespace troupe::config {

/// One key, or the whole file (with an empty key).
struct outline_node {
  enum class shape { value, object, list };

  std::string key;
  shape form = shape::object;
  /// Whether values are text, so that an override needs no quotes.
  bool is_text = false;
  bool is_required = false;
  /// "size, 64 KiB to 64 TiB"
  std::string type;
  /// The default as JSON text; "not set" for an optional key, empty for a required one.
  std::string fallback;
  std::string meaning;
  /// The limit of a list.
  std::size_t limit = 0;
  /// The keys of an object, or of each object in a list.
  std::vector<outline_node> children;

  const outline_node* find(std::string_view name) const noexcept;
  std::vector<std::string_view> names() const;
};

/// The whole file.
const outline_node& outline();

/// One row of the tables in docs/configuration.md.
struct documented_key {
  /// With `i` for any index: `storage.ranks[i].slab_bytes`.
  std::string path;
  /// `| key | type | default | meaning |`
  std::string row;
};

/// All keys that have values, in the order of the file.
std::vector<documented_key> documented_keys();

/// The error text for a name that is not among `names`, with the most similar one.
std::string no_such_key(std::string_view name, const std::vector<std::string_view>& names);

} // namespace troupe::config
