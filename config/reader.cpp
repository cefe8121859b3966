#include "config/reader.hpp"

#include "config/outline.hpp"
#include "config/schema.hpp"

#include <algorithm>
#include <optional>

namespace troupe::config {

namespace {

template <class T, class Value>
void assign(T& target, Value&& value) {
  // Bounds have been checked; those of a whole number never exceed its member's type.
  target = static_cast<T>(std::forward<Value>(value));
}

void assign(std::filesystem::path& target, std::string&& value) {
  target = std::move(value);
}

void assign(std::optional<std::filesystem::path>& target, std::string&& value) {
  target.emplace(std::move(value));
}

void assign(std::optional<std::uint32_t>& target, std::uint64_t value) {
  target = static_cast<std::uint32_t>(value);
}

/// Visits the schema of one object and reads its values from the document.
class reader {
public:
  reader(const element& object, std::string path, std::vector<problem>& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  template <class T, class Kind>
  void field(std::string_view key, T& value, const Kind& kind, std::string_view) {
    known_.push_back(key);
    if (const auto* x = object_.find(key))
      take(*x, value, kind);
  }

  template <class T, class Kind>
  void required(std::string_view key, T& value, const Kind& kind, std::string_view meaning) {
    known_.push_back(key);
    if (const auto* x = object_.find(key))
      take(*x, value, kind);
    else
      problems_.push_back({join(path_, key), "is missing: " + std::string{meaning}, object_.where});
  }

  template <class T>
  void group(std::string_view key, T& value, std::string_view) {
    known_.push_back(key);
    if (const auto* x = object_.find(key))
      read_object(*x, join(path_, key), value);
  }

  template <class T>
  void list(std::string_view key, std::vector<T>& items, std::size_t limit, std::string_view) {
    known_.push_back(key);
    const auto* x = object_.find(key);
    if (x == nullptr)
      return;
    const auto path = join(path_, key);
    if (!x->is<json_list>())
      return report(path, "expected a list, got " + show(*x), *x);
    if (x->children.size() > limit)
      return report(
          path, std::to_string(x->children.size()) + " entries, at most " + std::to_string(limit) + " are allowed", *x);
    items.resize(x->children.size());
    for (std::size_t i = 0; i < items.size(); ++i)
      read_object(x->children[i], join(path, i), items[i]);
  }

  /// After the schema has been visited: reports members that it does not have.
  void refuse_unknown() {
    for (const auto& x : object_.children)
      if (std::ranges::find(known_, x.key) == known_.end())
        report(join(path_, x.key), no_such_key(x.key, known_), x);
  }

private:
  template <class T, class Kind>
  void take(const element& x, T& value, const Kind& kind) {
    if (auto read_value = read(kind, x))
      assign(value, std::move(*read_value));
    else
      report(join(path_, x.key), std::move(read_value.error()), x);
  }

  template <class T>
  void read_object(const element& x, std::string path, T& value) {
    if (!x.is<json_object>())
      return report(std::move(path), "expected an object, got " + show(x), x);
    reader inner{x, std::move(path), problems_};
    describe(inner, value);
    inner.refuse_unknown();
  }

  void report(std::string path, std::string text, const element& x) {
    problems_.push_back({std::move(path), std::move(text), x.where});
  }

  const element& object_;
  std::string path_;
  std::vector<problem>& problems_;
  std::vector<std::string_view> known_;
};

} // namespace

node_config read_config(const element& root, std::vector<problem>& problems) {
  node_config config;
  reader visitor{root, {}, problems};
  describe(visitor, config);
  visitor.refuse_unknown();
  return config;
}

} // namespace troupe::config
