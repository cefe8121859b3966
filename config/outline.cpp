#include "config/outline.hpp"

#include "base/nearest_name.hpp"
#include "config/document.hpp"
#include "config/schema.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::config {

namespace {

/// Visits the schema and records its keys.
class outliner {
public:
  explicit outliner(outline_node& node) : node_(node) {}

  template <class T, class Kind>
  void field(std::string_view key, const T& value, const Kind& kind, std::string_view meaning) {
    auto& x = add(key, outline_node::shape::value, meaning);
    x.type = type_of(kind);
    x.is_text = std::is_same_v<Kind, text> || std::is_same_v<Kind, choice>;
    x.fallback = write_value(kind, value).value_or("not set");
  }

  template <class T, class Kind>
  void required(std::string_view key, const T& value, const Kind& kind, std::string_view meaning) {
    field(key, value, kind, meaning);
    node_.children.back().is_required = true;
    node_.children.back().fallback.clear();
  }

  template <class T>
  void group(std::string_view key, T& value, std::string_view meaning) {
    outliner inner{add(key, outline_node::shape::object, meaning)};
    describe(inner, value);
  }

  template <class T>
  void list(std::string_view key, const std::vector<T>&, std::size_t limit, std::string_view meaning) {
    auto& x = add(key, outline_node::shape::list, meaning);
    x.limit = limit;
    outliner inner{x};
    T item;
    describe(inner, item);
  }

private:
  outline_node& add(std::string_view key, outline_node::shape form, std::string_view meaning) {
    auto& x = node_.children.emplace_back();
    x.key = key;
    x.form = form;
    x.meaning = meaning;
    return x;
  }

  outline_node& node_;
};

void append_rows(const outline_node& node, const std::string& path, std::vector<documented_key>& rows) {
  for (const auto& x : node.children) {
    auto here = join(path, x.key);
    if (x.form == outline_node::shape::value) {
      const std::string fallback = x.is_required             ? "required"
                                   : x.fallback == "not set" ? "not set"
                                                             : "`" + x.fallback + "`";
      std::string row = "| `" + here + "`";
      for (const auto& cell : {x.type, fallback, x.meaning})
        row.append(" | ").append(cell);
      rows.push_back({here, row + " |"});
    } else {
      append_rows(x, x.form == outline_node::shape::list ? here + "[i]" : here, rows);
    }
  }
}

} // namespace

const outline_node* outline_node::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(children, name, &outline_node::key);
  return found == children.end() ? nullptr : &*found;
}

std::vector<std::string_view> outline_node::names() const {
  std::vector<std::string_view> result;
  for (const auto& x : children)
    result.emplace_back(x.key);
  return result;
}

const outline_node& outline() {
  static const outline_node root = [] {
    outline_node result;
    node_config defaults;
    outliner visitor{result};
    describe(visitor, defaults);
    return result;
  }();
  return root;
}

std::vector<documented_key> documented_keys() {
  std::vector<documented_key> rows;
  append_rows(outline(), {}, rows);
  return rows;
}

std::string no_such_key(std::string_view name, const std::vector<std::string_view>& names) {
  const auto meant = nearest_name(name, names);
  return meant.empty() ? "no such key" : "no such key; did you mean \"" + std::string{meant} + "\"?";
}

} // namespace troupe::config
