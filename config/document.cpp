#include "config/document.hpp"

#include "base/utf8.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::config {

namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 16;
constexpr std::size_t max_shown = 48;

/// The position of the last character that was read. A line feed belongs to the line that it ends.
struct text_position {
  std::size_t line = 1;
  std::size_t column = 0;
  bool line_ended = false;

  void advance(char c) noexcept {
    if (line_ended) {
      ++line;
      column = 0;
    }
    ++column;
    line_ended = c == '\n';
  }
};

std::string to_string(const text_position& x) {
  return "line " + std::to_string(x.line) + ", column " + std::to_string(x.column);
}

/// Feeds the JSON lexer and counts lines: the lexer's own events have no positions.
class counting_iterator {
public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  counting_iterator(const char* at, text_position* position) : at_(at), position_(position) {}

  reference operator*() const noexcept { return *at_; }

  counting_iterator& operator++() noexcept {
    position_->advance(*at_++);
    return *this;
  }

  counting_iterator operator++(int) noexcept {
    auto before = *this;
    ++*this;
    return before;
  }

  friend bool operator==(const counting_iterator& a, const counting_iterator& b) noexcept { return a.at_ == b.at_; }

private:
  const char* at_;
  text_position* position_;
};

/// Builds the tree from the events of the parser. The parser requires these names.
class tree_builder {
public:
  tree_builder(std::string_view origin, std::string_view where, const text_position& position)
      : origin_(origin), where_(where), position_(position) {}

  bool null() { return add(json_null{}); }
  bool boolean(bool x) { return add(x); }
  bool number_unsigned(std::uint64_t x) { return add(x, std::to_string(x)); }
  bool number_integer(std::int64_t x) { return add(negative_number{x}, std::to_string(x)); }
  bool number_float(double x, const std::string& spelling) { return add(x, spelling); }
  bool string(std::string& x) { return add(std::move(x)); }
  bool binary(json::binary_t&) { return false; }

  bool start_object(std::size_t) { return open(json_object{}); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(json_list{}); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto& parent = open_.back();
    if (const auto* first = parent.find(name); first != nullptr)
      report(join(path(), name), "the key is repeated; first at " + first->where);
    key_ = std::move(name);
    key_where_ = here();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: what is wrong"
    std::string text = e.what();
    if (const auto id = text.find("] "); text.starts_with('[') && id != std::string::npos)
      text.erase(0, id + 2);
    if (const auto place = text.find(": "); text.starts_with("parse error") && place != std::string::npos)
      text.erase(0, place + 2);
    // Such as YAML, which other programs take.
    if (open_.empty())
      text += "; a config is one JSON object, which begins with {";
    problems_.push_back({std::string{origin_}, to_string(position_) + ": " + text, {}});
    return false;
  }

  tl::expected<element, std::vector<problem>> finish() && {
    if (!problems_.empty())
      return tl::unexpected(std::move(problems_));
    return std::move(root_);
  }

private:
  std::string here() const { return where_.empty() ? "line " + std::to_string(position_.line) : std::string{where_}; }

  /// The path of the innermost open list or object.
  std::string path() const {
    std::string result;
    for (std::size_t i = 1; i < open_.size(); ++i)
      result = open_[i - 1].is<json_list>() ? join(result, open_[i - 1].children.size()) : join(result, open_[i].key);
    return result;
  }

  void report(std::string path, std::string text) { problems_.push_back({std::move(path), std::move(text), here()}); }

  template <class T>
  element make(T&& value, std::string spelling = {}) {
    element x;
    x.value = std::forward<T>(value);
    x.spelling = std::move(spelling);
    const bool member = !open_.empty() && open_.back().is<json_object>();
    x.key = member ? std::move(key_) : std::string{};
    x.where = member ? std::move(key_where_) : here();
    return x;
  }

  template <class T>
  bool add(T&& value, std::string spelling = {}) {
    place(make(std::forward<T>(value), std::move(spelling)));
    return true;
  }

  void place(element x) {
    if (open_.empty())
      root_ = std::move(x);
    else
      open_.back().children.push_back(std::move(x));
  }

  template <class T>
  bool open(T kind) {
    if (open_.size() == max_depth) {
      report(std::string{origin_}, "more than " + std::to_string(max_depth) + " levels of lists and objects");
      return false;
    }
    open_.push_back(make(kind));
    return true;
  }

  bool close() {
    auto x = std::move(open_.back());
    open_.pop_back();
    place(std::move(x));
    return true;
  }

  std::string_view origin_;
  std::string_view where_;
  const text_position& position_;
  std::vector<element> open_;
  element root_;
  std::string key_;
  std::string key_where_;
  std::vector<problem> problems_;
};

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_word(std::string_view text) noexcept {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && std::ranges::all_of(text, plain);
}

} // namespace

const element* element::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(children, name, &element::key);
  return is<json_object>() && found != children.end() ? &*found : nullptr;
}

element* element::find(std::string_view name) noexcept {
  return const_cast<element*>(std::as_const(*this).find(name));
}

std::string show(const element& x) {
  if (const auto* text = std::get_if<std::string>(&x.value)) {
    if (text->size() <= max_shown)
      return json_string(*text);
    // Cut between characters, not inside one.
    auto length = max_shown;
    while (length > 0 && continues_character((*text)[length]))
      --length;
    return json_string(std::string_view{*text}.substr(0, length)) + "…";
  }
  if (const auto* flag = std::get_if<bool>(&x.value))
    return *flag ? "true" : "false";
  if (x.is<json_null>())
    return "null";
  if (x.is<json_list>())
    return "a list";
  if (x.is<json_object>())
    return "an object";
  return x.spelling.size() <= max_shown ? x.spelling : x.spelling.substr(0, max_shown) + "…";
}

std::string join(std::string_view path, std::string_view key) {
  std::string result{path};
  if (!is_word(key))
    return result + "[" + json_string(key) + "]";
  if (!result.empty())
    result += '.';
  return result.append(key);
}

std::string join(std::string_view path, std::size_t index) {
  return std::string{path} + "[" + std::to_string(index) + "]";
}

bool is_plain_text(std::string_view text) {
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return false;
  std::string literal{'"'};
  for (const char c : text) {
    if (c == '"' || c == '\\')
      literal += '\\';
    literal += c;
  }
  literal += '"';
  // The JSON library decides here what is valid UTF-8.
  return json::accept(literal);
}

tl::expected<element, std::vector<problem>> read_document(std::string_view text, std::string_view origin,
                                                          std::string_view where) {
  // The parser's own text and position differ between its versions.
  if (text.empty())
    return tl::unexpected(std::vector{problem{std::string{origin}, "line 1, column 1: the text is empty", {}}});
  text_position position;
  tree_builder builder{origin, where, position};
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    // The lexer takes it for the end of the text and would ignore the rest.
    std::ranges::for_each(text.substr(0, nul + 1), [&](char c) { position.advance(c); });
    return tl::unexpected(std::vector{problem{std::string{origin}, to_string(position) + ": a NUL byte", {}}});
  }
  const char* end = text.data() + text.size();
  json::sax_parse(counting_iterator{text.data(), &position}, counting_iterator{end, &position}, &builder,
                  json::input_format_t::json, true, true);
  return std::move(builder).finish();
}

} // namespace troupe::config
