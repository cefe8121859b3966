#include "config/overrides.hpp"

#include "config/outline.hpp"

#include <charconv>
#include <optional>
#include <variant>

namespace troupe::config {

namespace {

constexpr std::string_view origin = "--set";

using step = std::variant<std::string, std::size_t>;

/// Splits "storage.ranks[1].slab_bytes" into names and indexes.
std::optional<std::vector<step>> split_path(std::string_view path) {
  std::vector<step> steps;
  while (!path.empty()) {
    if (path.front() == '[') {
      std::size_t index = 0;
      const char* end = path.data() + path.size();
      const auto [stop, code] = std::from_chars(path.data() + 1, end, index);
      if (code != std::errc{} || stop == end || *stop != ']')
        return std::nullopt;
      path.remove_prefix(static_cast<std::size_t>(stop + 1 - path.data()));
      steps.emplace_back(index);
      if (!path.empty() && path.front() != '.' && path.front() != '[')
        return std::nullopt;
    } else {
      if (!steps.empty()) {
        if (path.front() != '.')
          return std::nullopt;
        path.remove_prefix(1);
      }
      const auto name = path.substr(0, path.find_first_of(".["));
      if (name.empty())
        return std::nullopt;
      path.remove_prefix(name.size());
      steps.emplace_back(std::string{name});
    }
  }
  if (steps.empty())
    return std::nullopt;
  return steps;
}

/// Walks document and schema in parallel, creating missing parts.
class walker {
public:
  walker(element& root, std::vector<problem>& problems) : at_(&root), problems_(problems) {}

  /// False if the path ends here, for a reason that was reported or that reading will report.
  bool enter(const step& s) {
    const auto* name = std::get_if<std::string>(&s);
    return name != nullptr ? enter_member(*name) : enter_item(std::get<std::size_t>(s));
  }

  /// Whether the value at the path is text.
  bool at_text() const noexcept { return schema_->form == outline_node::shape::value && schema_->is_text; }

  void set(element value) {
    if (at_ == nullptr)
      at_ = &parent_->children.emplace_back();
    value.key = inside_item_ ? std::string{} : schema_->key;
    *at_ = std::move(value);
  }

  const std::string& path() const noexcept { return path_; }

private:
  bool enter_member(const std::string& name) {
    const auto path = join(path_, name);
    if (schema_->form == outline_node::shape::value)
      return stop(path, "\"" + path_ + "\" is a value and has nothing below it");
    if (schema_->form == outline_node::shape::list && !inside_item_)
      return stop(path, "\"" + path_ + "\" is a list: name an entry, as in " + path_ + "[0]." + name);
    const auto* next = schema_->find(name);
    if (next == nullptr)
      return stop(path, no_such_key(name, schema_->names()));
    if (!at_->is<json_object>())
      return false;
    auto* member = at_->find(name);
    if (member == nullptr && next->form != outline_node::shape::value) {
      member = &at_->children.emplace_back();
      member->key = name;
      member->where = origin;
      if (next->form == outline_node::shape::object)
        member->value = json_object{};
      else
        member->value = json_list{};
    }
    // A missing value is added once the path has ended there.
    parent_ = at_;
    return move(path, next, member, false);
  }

  bool enter_item(std::size_t index) {
    const auto path = join(path_, index);
    if (schema_->form != outline_node::shape::list || inside_item_)
      return stop(path, "\"" + path_ + "\" is not a list");
    if (!at_->is<json_list>())
      return false;
    const auto count = at_->children.size();
    if (index > count)
      return stop(path, "\"" + path_ + "\" has " + std::to_string(count) + " entries, so the next one is " +
                            join(path_, count));
    if (index >= schema_->limit)
      return stop(path, "at most " + std::to_string(schema_->limit) + " entries");
    if (index == count) {
      auto& item = at_->children.emplace_back();
      item.where = origin;
      item.value = json_object{};
    }
    return move(path, schema_, &at_->children[index], true);
  }

  bool stop(const std::string& path, std::string text) {
    problems_.push_back({path, std::move(text), std::string{origin}});
    return false;
  }

  bool move(std::string path, const outline_node* schema, element* at, bool inside_item) {
    path_ = std::move(path);
    schema_ = schema;
    at_ = at;
    inside_item_ = inside_item;
    return true;
  }

  /// Null for a value that the document does not have.
  element* at_;
  element* parent_ = nullptr;
  const outline_node* schema_ = &outline();
  /// A list and its objects share a schema node; this distinguishes the two.
  bool inside_item_ = false;
  std::string path_;
  std::vector<problem>& problems_;
};

/// Parses VALUE as JSON if it is JSON, else takes it as text.
std::optional<element> read_value(const walker& target, std::string_view value, std::vector<problem>& problems) {
  element as_text;
  as_text.value = std::string{value};
  as_text.where = origin;
  auto document = read_document(value, origin, origin);
  if (document) {
    const bool keep = !target.at_text() || document->is<std::string>();
    return keep ? std::move(*document) : std::move(as_text);
  }
  // JSON with a repeated key must not be taken as text.
  const bool is_json = document.error().front().path != origin;
  if (!is_json || target.at_text())
    return as_text;
  for (auto& p : document.error())
    problems.push_back({target.path(), p.path + ": " + p.text, p.where});
  return std::nullopt;
}

void apply(element& root, std::string_view text, std::vector<problem>& problems) {
  const auto equals = text.find('=');
  const auto steps = split_path(text.substr(0, equals));
  if (equals == std::string_view::npos || !steps) {
    element shown;
    shown.value = std::string{text};
    problems.push_back({std::string{origin}, "expected PATH=VALUE such as http.port=0, got " + show(shown), {}});
    return;
  }
  walker target{root, problems};
  for (const auto& s : *steps)
    if (!target.enter(s))
      return;
  if (auto value = read_value(target, text.substr(equals + 1), problems))
    target.set(std::move(*value));
}

} // namespace

void apply_overrides(element& root, std::span<const std::string> overrides, std::vector<problem>& problems) {
  for (const auto& text : overrides)
    apply(root, text, problems);
}

} // namespace troupe::config
