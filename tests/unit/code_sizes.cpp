#include "tests/unit/code_sizes.hpp"

#include <algorithm>
#include <cctype>
#include <regex>
#include <utility>

namespace troupe::test {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// The end of the literal that begins with the quote at `at`, or the end of the text.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
  const auto quote = text[at];
  for (auto i = at + 1; i < text.size(); ++i)
    if (text[i] == '\\')
      ++i;
    else if (text[i] == quote || text[i] == '\n')
      return i + 1;
  return text.size();
}

std::size_t end_of_raw_string(std::string_view text, std::size_t at) {
  const auto open = text.find('(', at);
  if (open == std::string_view::npos)
    return text.size();
  const auto close = text.find(")" + std::string(text.substr(at + 1, open - at - 1)) + "\"", open);
  return close == std::string_view::npos ? text.size() : text.find('"', close + 1) + 1;
}

/// The text with blanks for comments, literals and lines of the preprocessor; line breaks stay.
std::string code_of(std::string_view text) {
  std::string out(text);
  const auto blank = [&](std::size_t from, std::size_t to) {
    for (auto i = from; i < std::min(to, out.size()); ++i)
      if (out[i] != '\n')
        out[i] = ' ';
  };
  bool line_is_empty = true;
  for (std::size_t i = 0; i < text.size();) {
    auto end = i + 1;
    const bool in_word = i > 0 && is_word(text[i - 1]);
    if (text.substr(i, 2) == "//" || (text[i] == '#' && line_is_empty)) {
      for (end = text.find('\n', i); end != std::string_view::npos && end > 0 && text[end - 1] == '\\';)
        end = text.find('\n', end + 1);
      end = std::min(end, text.size());
      blank(i, end);
    } else if (text.substr(i, 2) == "/*") {
      end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
      blank(i, end);
    } else if (text[i] == '"' && i > 0 && text[i - 1] == 'R') {
      end = end_of_raw_string(text, i);
      blank(i, end);
    } else if (text[i] == '"' || (text[i] == '\'' && !in_word)) { // not the separator of digits
      end = end_of_literal(text, i);
      blank(i, end);
    }
    line_is_empty = text[i] == '\n' || (line_is_empty && text[i] == ' ');
    i = end;
  }
  return out;
}

enum class scope : std::uint8_t { outside, type, function, value };

struct open_brace {
  scope kind = scope::value;
  std::string name;
  std::size_t begin = 0;
  std::size_t members = 0;
};

/// The text without the arguments of templates.
std::string without_arguments(const std::string& text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    depth += c == '<' ? 1 : 0;
    if (depth == 0)
      out += c;
    depth -= c == '>' && depth > 0 ? 1 : 0;
  }
  return out;
}

std::string class_name(const std::string& head) {
  static const std::regex pattern(R"(\b(?:class|struct|union|enum)\s+(?:class\s+)?(?:alignas\([^)]*\)\s+)?([\w:]+))");
  std::smatch found;
  const auto text = without_arguments(head);
  return std::regex_search(text, found, pattern) ? found[1].str() : std::string();
}

std::string function_name(const std::string& head) {
  static const std::regex pattern(R"(((?:[\w]+(?:<[^()]*>)?::)*~?(?:operator[^\s(]+|operator\(\)|\w+))\s*\()");
  std::smatch found;
  return std::regex_search(head, found, pattern) ? found[1].str() : std::string();
}

/// What the brace after `head`, the text since the last end of a statement, opens.
scope kind_of(const std::string& head, bool follows_blank) {
  static const std::regex names(R"((?:^|[\s)])(?:namespace\b[\w\s:]*|extern\s*)$)");
  static const std::regex types(R"((?:^|[\s>])(?:class|struct|union|enum)\s)");
  if (std::regex_search(head, names))
    return scope::outside;
  if (!follows_blank)
    return scope::value;
  const auto last = head.find_last_not_of(" \n");
  const char before = last == std::string::npos ? ' ' : head[last];
  if (before == '=' || before == ',' || before == '(' || before == '{')
    return scope::value;
  if (head.find('(') != std::string::npos)
    return scope::function;
  return std::regex_search(head, types) ? scope::type : scope::value;
}

/// Whether the statement of a class body declares a data member.
bool declares_member(const std::string& text) {
  static const std::regex pattern(R"([\w&*\]]\s+[&*]?\w+_\s*(?:\[[^\]]*\]\s*)?(?:=.*)?$)");
  static const std::regex other(R"(^\s*(?:using|friend|typedef|static|return|template)\b)");
  const auto statement = without_arguments(text);
  return statement.substr(0, statement.find('=')).find('(') == std::string::npos &&
         !std::regex_search(statement, other) && std::regex_search(statement, pattern);
}

/// The name of something in the braces that are open, with the names of the classes around it.
std::string name_in(const std::vector<open_brace>& open, const std::string& name) {
  std::string out;
  for (const auto& x : open)
    if (x.kind == scope::type)
      out += x.name + "::";
  return out + name;
}

std::size_t line_breaks(std::string_view code, std::size_t from, std::size_t to) {
  return static_cast<std::size_t>(std::ranges::count(code.substr(from, to - from), '\n'));
}

} // namespace

code_sizes sizes_of(std::string_view text) {
  code_sizes out;
  const auto code = code_of(text);
  std::vector<open_brace> open;
  std::string head;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    const bool in_body = !open.empty() && (open.back().kind == scope::function || open.back().kind == scope::value);
    if (c == '{') {
      const auto kind = in_body ? scope::value : kind_of(head, i > 0 && !is_word(code[i - 1]) && code[i - 1] != '>');
      const auto name = kind == scope::type ? class_name(head) : kind == scope::function ? function_name(head) : "";
      open.push_back({kind, name, i, 0});
      if (kind != scope::value)
        head.clear();
      continue;
    }
    if (c == '}' && !open.empty()) {
      const auto last = open.back();
      open.pop_back();
      if (last.kind == scope::function)
        out.functions.push_back({name_in(open, last.name), line_breaks(code, last.begin, i) + 1});
      if (last.kind == scope::type)
        out.classes.push_back({name_in(open, last.name), last.members});
      if (last.kind != scope::value)
        head.clear();
      continue;
    }
    if (in_body)
      continue; // what is in the braces of a value or function is no declaration of the class around it
    if (c == ';') {
      if (!open.empty() && open.back().kind == scope::type && declares_member(head))
        ++open.back().members;
      head.clear();
    } else if (c == ':' && (head.ends_with("public") || head.ends_with("private") || head.ends_with("protected"))) {
      head.clear();
    } else {
      head += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

} // namespace troupe::test
