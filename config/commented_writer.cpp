#include "config/document.hpp"
#include "config/node_config.hpp"
#include "config/outline.hpp"
#include "config/schema.hpp"

#include <algorithm>

namespace troupe::config {

namespace {

constexpr std::size_t comment_columns = 100;

/// Selects the keys to write.
class choice_of_keys {
public:
  explicit choice_of_keys(std::span<const std::string> keys) : keys_(keys) {}

  bool has(std::string_view path) const {
    return keys_.empty() || std::ranges::any_of(keys_, [&](const std::string& key) {
             return path == key || (path.starts_with(key) && path.substr(key.size()).starts_with('.'));
           });
  }
  /// Whether the key, or a key inside it, is selected.
  bool has_any_in(std::string_view path) const {
    return has(path) || std::ranges::any_of(keys_, [&](std::string_view key) {
             return key.starts_with(path) && key.substr(path.size()).starts_with('.');
           });
  }

private:
  std::span<const std::string> keys_;
};

/// Visits the schema of one object and writes its members, each below comments that explain it.
class commented_writer {
public:
  commented_writer(std::string& out, const choice_of_keys& chosen, const outline_node& node, std::string path,
                   std::size_t depth)
      : out_(out), chosen_(chosen), node_(node), path_(std::move(path)), indent_(2 * depth, ' ') {}

  template <class T, class Kind>
  void field(std::string_view key, const T& value, const Kind& kind, std::string_view meaning) {
    if (!chosen_.has(join(path_, key)))
      return;
    comment(std::string(meaning));
    const auto* known = node_.find(key);
    const auto fallback = known == nullptr || known->is_required ? "required" : "default: " + known->fallback;
    comment((known == nullptr || known->type.empty() ? "" : known->type + "; ") + fallback);
    if (const auto text = write_value(kind, value))
      member(key) += *text;
    else
      comment("\"" + std::string(key) + "\": not set");
  }

  template <class T, class Kind>
  void required(std::string_view key, const T& value, const Kind& kind, std::string_view meaning) {
    field(key, value, kind, meaning);
  }

  template <class T>
  void group(std::string_view key, T& value, std::string_view meaning) {
    const auto path = join(path_, key);
    const auto* known = node_.find(key);
    if (!chosen_.has_any_in(path) || known == nullptr)
      return;
    comment(std::string(meaning));
    write_object(member(key), chosen_, *known, path, indent_.size() / 2, value);
  }

  template <class T>
  void list(std::string_view key, std::vector<T>& items, std::size_t, std::string_view meaning) {
    const auto path = join(path_, key);
    const auto* known = node_.find(key);
    if ((items.empty() && !chosen_.has_any_in(path)) || known == nullptr)
      return;
    comment(std::string(meaning));
    auto& out = member(key);
    out += '[';
    // All keys of an item, since a part of them would have another meaning.
    const choice_of_keys all({});
    for (std::size_t i = 0; i < items.size(); ++i) {
      out += (i == 0 ? "\n" : ",\n") + indent_ + "  ";
      write_object(out, all, *known, path, indent_.size() / 2 + 1, items[i]);
    }
    out += items.empty() ? "]" : "\n" + indent_ + "]";
  }

  template <class T>
  static void write_object(std::string& out, const choice_of_keys& chosen, const outline_node& node,
                           const std::string& path, std::size_t depth, T& value) {
    out += '{';
    commented_writer inner{out, chosen, node, path, depth + 1};
    describe(inner, value);
    // The remaining comments have no member after them.
    out += inner.pending_ + "\n" + std::string(2 * depth, ' ') + "}";
  }

private:
  /// Adds a comment before the next member, wrapped into lines.
  void comment(const std::string& text) {
    std::string line;
    const auto end_line = [&] {
      if (!line.empty())
        pending_ += "\n" + indent_ + "//" + line;
      line.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find(' ', at), text.size());
      if (!line.empty() && indent_.size() + line.size() + 1 + end - at > comment_columns)
        end_line();
      line.append(" ").append(text, at, end - at);
      at = end + 1;
    }
    end_line();
  }

  std::string& member(std::string_view key) {
    out_ += first_ ? "" : ",";
    first_ = false;
    out_ += pending_ + "\n" + indent_;
    pending_.clear();
    // Keys are words of the schema: nothing to escape.
    return out_.append("\"").append(key).append("\": ");
  }

  std::string& out_;
  const choice_of_keys& chosen_;
  const outline_node& node_;
  std::string path_;
  std::string indent_;
  std::string pending_;
  bool first_ = true;
};

} // namespace

std::string to_commented_json(const node_config& config, std::span<const std::string> keys) {
  auto copy = config;
  std::string out;
  commented_writer::write_object(out, choice_of_keys(keys), outline(), {}, 0, copy);
  out += '\n';
  return out;
}

node_config without_secrets(const node_config& config) {
  auto out = config;
  for (auto& x : out.namespaces)
    x.salt.clear();
  return out;
}

} // namespace troupe::config
