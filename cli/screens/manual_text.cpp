#include "cli/screens/manual_text.hpp"

#include "base/text_parts.hpp"
#include "cli/screens/words.hpp"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace troupe::cli {

namespace {

bool is_fence(std::string_view line) {
  return trimmed(line).starts_with("```");
}

/// The level of a heading; 0 if the line is none.
std::size_t heading_level(std::string_view line) {
  const auto level = std::min(line.find_first_not_of('#'), line.size());
  return level > 0 && level < line.size() && line[level] == ' ' ? level : 0;
}

std::string anchor_of(std::string_view heading) {
  std::string out;
  for (const auto c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ')
      out += '-';
    else if (byte >= 0x80 || std::isalnum(byte) != 0 || c == '_' || c == '-')
      out += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
  }
  return out;
}

/// A link or picture that begins at `text[at]`: what to print in its place, and its length. No length if it is none.
std::pair<std::string, std::size_t> link_at(std::string_view text, std::size_t at) {
  const bool is_picture = text[at] == '!';
  const auto open = at + (is_picture ? 1 : 0);
  if (open >= text.size() || text[open] != '[')
    return {};
  const auto middle = text.find("](", open);
  if (middle == std::string_view::npos || text.substr(open + 1, middle - open - 1).find('[') != std::string_view::npos)
    return {};
  const auto close = text.find(')', middle);
  if (close == std::string_view::npos)
    return {};
  const auto words = text.substr(open + 1, middle - open - 1);
  const auto target = text.substr(middle + 2, close - middle - 2);
  std::string out(words);
  if (is_picture)
    out = "[picture: " + out + "]";
  else if (!target.starts_with('#') && target != words)
    out.append(" (").append(target).append(")");
  return {std::move(out), close + 1 - at};
}

/// The text of a line, without the marks of links, bold letters and escapes. Code stays as it is.
std::string without_marks(std::string_view text) {
  std::string out;
  bool in_code = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && std::ispunct(static_cast<unsigned char>(text[i + 1])) != 0 &&
        (!in_code || text[i + 1] == '|')) {
      out += text[++i];
      continue;
    }
    in_code ^= text[i] == '`';
    if (in_code || text[i] == '`') {
      out += text[i];
      continue;
    }
    if (text.substr(i).starts_with("**")) {
      ++i;
      continue;
    }
    if (const auto [link, length] = link_at(text, i); length > 0) {
      out += without_marks(link);
      i += length - 1;
      continue;
    }
    out += text[i];
  }
  return out;
}

/// The cells of a row of a table; a bar that is escaped belongs to its cell.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> out;
  line = trimmed(line);
  line.remove_prefix(1);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < line.size(); ++i)
    if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) {
      out.push_back(without_marks(trimmed(line.substr(begin, i - begin))));
      begin = i + 1;
    }
  return out;
}

/// The line below the titles of a table. Titles may all be empty, so a line without a dash is none.
bool is_ruler(std::string_view line) {
  return line.find('-') != std::string_view::npos && line.find_first_not_of("|-: ") == std::string_view::npos;
}

/// The length of the mark of a list's item at the beginning of the line, "- " or "12. ", without the blanks before it;
/// 0 if the line begins none.
std::size_t mark_length(std::string_view line) {
  line = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("- ") || line.starts_with("* "))
    return 2;
  const auto digits = std::min(line.find_first_not_of("0123456789"), line.size());
  return digits > 0 && digits < 3 && line.substr(digits).starts_with(". ") ? digits + 2 : 0;
}

class writer {
public:
  explicit writer(std::size_t columns) : columns_(columns) {}

  std::string write(std::string_view markdown) {
    while (!markdown.empty())
      take(next_line(markdown));
    end_paragraph();
    end_table();
    while (out_.ends_with("\n\n"))
      out_.pop_back();
    return std::move(out_);
  }

private:
  void take(std::string_view line) {
    if (is_fence(line)) {
      end_paragraph();
      in_code_ = !in_code_;
      return;
    }
    if (in_code_) {
      out_.append(line.empty() ? "" : "    ").append(line).append("\n");
      return;
    }
    const auto text = trimmed(line);
    if (text.starts_with('|')) {
      end_paragraph();
      rows_.emplace_back(text);
      return;
    }
    end_table();
    if (text.empty())
      blank();
    else if (const auto level = heading_level(line); level > 0)
      heading(trimmed(line.substr(level)), level);
    else if (paragraph_.empty() && line.starts_with("    ") && !in_list_)
      out_.append(line).append("\n");
    else if (!text.starts_with('<'))
      add(line, text);
  }

  void blank() {
    end_paragraph();
    in_list_ = false;
    separate();
  }

  /// One empty line after what has been written.
  void separate() {
    if (!out_.empty() && !out_.ends_with("\n\n"))
      out_ += '\n';
  }

  void heading(std::string_view text, std::size_t level) {
    end_paragraph();
    separate();
    const auto plain = without_marks(text);
    out_.append(plain).append("\n");
    if (level < 3)
      out_.append(width_of(plain), level == 1 ? '=' : '-').append("\n");
  }

  void add(std::string_view line, std::string_view text) {
    if (const auto mark = mark_length(line); mark > 0) {
      end_paragraph();
      in_list_ = true;
      indent_ = line.find_first_not_of(' ');
      hang_ = indent_ + mark;
    } else if (paragraph_.empty()) {
      indent_ = hang_ = in_list_ ? line.find_first_not_of(' ') : 0;
    }
    paragraph_.append(paragraph_.empty() ? "" : " ").append(text);
  }

  void end_paragraph() {
    if (!paragraph_.empty())
      fill(without_marks(std::exchange(paragraph_, {})), indent_, hang_);
  }

  /// Writes text with so many blanks before its first line, and before the others.
  void fill(const std::string& text, std::size_t first, std::size_t others) {
    const auto least = std::size_t{20};
    const auto lines = wrapped(text, columns_ - std::min(columns_ - std::min(columns_, least), others));
    for (std::size_t i = 0; i < lines.size(); ++i)
      out_.append(i == 0 ? first : others, ' ').append(lines[i]).append("\n");
  }

  void end_table() {
    const auto lines = std::exchange(rows_, {});
    std::vector<std::vector<std::string>> rows;
    std::size_t most = 0;
    for (const auto& x : lines)
      if (!is_ruler(x)) {
        rows.push_back(cells_of(x));
        most = std::max(most, rows.back().size());
      }
    if (rows.size() < 2 || most == 0)
      return;
    for (auto& x : rows)
      x.resize(most);
    const bool has_titles = std::ranges::any_of(rows.front(), [](const std::string& x) { return !x.empty(); });
    if (const auto table = table_of({rows.begin() + (has_titles ? 0 : 1), rows.end()}); fits(table))
      out_ += table;
    else
      entries(rows);
  }

  bool fits(std::string_view text) const {
    while (!text.empty())
      if (width_of(next_line(text)) > columns_)
        return false;
    return true;
  }

  /// A table that is too wide: the first cell of each row, and below it the others, each with the title of its column.
  void entries(const std::vector<std::vector<std::string>>& rows) {
    for (std::size_t i = 1; i < rows.size(); ++i) {
      for (std::size_t j = 0; j < rows[i].size(); ++j) {
        const auto& title = rows.front()[j];
        if (!rows[i][j].empty())
          fill(title.empty() ? rows[i][j] : title + ": " + rows[i][j], j == 0 ? 0 : 4, j == 0 ? 2 : 6);
      }
    }
  }

  std::size_t columns_;
  std::string out_;
  std::string paragraph_;
  std::size_t indent_ = 0;
  std::size_t hang_ = 0;
  bool in_list_ = false;
  bool in_code_ = false;
  std::vector<std::string> rows_;
};

} // namespace

std::string_view title_of(std::string_view markdown) {
  while (!markdown.empty())
    if (const auto line = next_line(markdown); heading_level(line) > 0)
      return trimmed(line.substr(heading_level(line)));
  return {};
}

std::string_view section_of(std::string_view markdown, std::string_view anchor) {
  auto rest = markdown;
  bool in_code = false;
  const char* begin = nullptr;
  std::size_t level = 0;
  while (!rest.empty()) {
    const auto line = next_line(rest);
    in_code ^= is_fence(line);
    const auto here = in_code ? 0 : heading_level(line);
    if (here == 0)
      continue;
    if (begin != nullptr && here <= level)
      return {begin, static_cast<std::size_t>(line.data() - begin)};
    if (begin == nullptr && anchor_of(without_marks(trimmed(line.substr(here)))) == anchor) {
      begin = line.data();
      level = here;
    }
  }
  const auto* end = markdown.data() + markdown.size();
  return begin == nullptr ? std::string_view() : std::string_view(begin, static_cast<std::size_t>(end - begin));
}

std::string manual_text(std::string_view markdown, std::size_t columns) {
  return writer(columns).write(markdown);
}

} // namespace troupe::cli
