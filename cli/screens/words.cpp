#include "cli/screens/words.hpp"

#include "base/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace troupe::cli {

namespace {

/// Formats as printf does; the numbers here are short.
std::string digits(double x, int behind) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", behind, x);
  return text.data();
}

template <std::size_t N>
std::string scaled(double x, const std::array<const char*, N>& units, double base) {
  std::size_t i = 0;
  while (x >= base && i + 1 < units.size()) {
    x /= base;
    ++i;
  }
  const int behind = x >= 100 || x == std::floor(x) ? 0 : x >= 10 ? 1 : 2;
  return digits(x, behind) + units[i];
}

const nlohmann::json* find(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  const auto* at = &x;
  for (const auto* key : keys) {
    if (!at->is_object() || !at->contains(key))
      return nullptr;
    at = &(*at)[key];
  }
  return at;
}

/// Whether the text begins with a unit, as in "s, " or "GB/s".
bool begins_with_unit(std::string_view text) {
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB",  "µs",   "ms",   "s",  "min",
                                    "h", "d",   "%",   "k/s", "M/s", "GB/s", "MB/s", "kB/s", "G/s"};
  const auto word = text.substr(0, text.find_first_of(" ,;.)"));
  return std::ranges::find(units, word) != units.end();
}

/// The place of the first blank at which a line may end.
std::size_t end_of_word(std::string_view text) {
  auto at = text.find(' ');
  while (at != std::string_view::npos && at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9' &&
         begins_with_unit(text.substr(at + 1)))
    at = text.find(' ', at + 1);
  return at;
}

} // namespace

std::string bytes_text(double bytes) {
  return scaled(bytes, std::array{" B", " KiB", " MiB", " GiB", " TiB", " PiB"}, 1024);
}

std::string count_text(std::uint64_t x) {
  auto out = std::to_string(x);
  for (auto at = out.size(); at > 3;)
    out.insert(at -= 3, 1, ',');
  return out;
}

std::string rate_text(double per_second) {
  return scaled(per_second, std::array{"", " k", " M", " G"}, 1000) + "/s";
}

std::string percent_text(std::optional<double> share) {
  return share ? digits(100 * *share, 1) + " %" : std::string("-");
}

std::string speed_text(double gigabytes_per_second) {
  const auto x = gigabytes_per_second;
  if (x >= 0.1)
    return digits(x, x >= 100 ? 1 : 2) + " GB/s";
  const auto one = [](double y, const char* unit) { return digits(y, y >= 10 || y == std::floor(y) ? 0 : 1) + unit; };
  return x <= 0 || x >= 1e-4 ? one(std::max(x, 0.0) * 1e3, " MB/s") : one(x * 1e6, " kB/s");
}

std::string micros_text(double microseconds) {
  if (microseconds >= 1e6)
    return digits(microseconds / 1e6, 2) + " s";
  return microseconds >= 1000 ? digits(microseconds / 1000, 1) + " ms" : digits(microseconds, 0) + " µs";
}

std::string span_text(double seconds) {
  const auto s = static_cast<std::uint64_t>(std::max(seconds, 0.0));
  const auto two = [](std::uint64_t a, const char* first, std::uint64_t b, const char* second) {
    return std::to_string(a) + first + " " + std::to_string(b) + second;
  };
  if (s < 60)
    return std::to_string(s) + " s";
  if (s < 3600)
    return std::to_string(s / 60) + " min";
  return s < 86400 ? two(s / 3600, " h", s % 3600 / 60, " min") : two(s / 86400, " d", s % 86400 / 3600, " h");
}

std::size_t width_of(std::string_view text) {
  return characters_in(text);
}

std::string to_width(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  std::size_t taken = 0;
  while (bytes < text.size() && (taken < columns || continues_character(text[bytes]))) {
    taken += continues_character(text[bytes]) ? 0 : 1;
    ++bytes;
  }
  return std::string(text.substr(0, bytes)) + std::string(columns - taken, ' ');
}

std::string to_right(std::string_view text, std::size_t columns) {
  const auto width = width_of(text);
  return width >= columns ? to_width(text, columns) : std::string(columns - width, ' ') + std::string(text);
}

std::string to_name(std::string_view text, std::size_t columns) {
  if (width_of(text) <= columns || columns == 0)
    return to_width(text, columns);
  return to_width(text, columns - 1) + "~";
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> out;
  std::string line;
  while (!text.empty()) {
    const auto word = text.substr(0, end_of_word(text));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!line.empty() && width_of(line) + 1 + width_of(word) > columns) {
      out.push_back(line);
      line.clear();
    }
    line.append(line.empty() ? "" : " ").append(word);
  }
  if (!line.empty())
    out.push_back(line);
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? c : '?';
  }
  return out;
}

std::string table_of(const std::vector<std::vector<std::string>>& rows, std::size_t columns, std::size_t names) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));
  std::size_t all = 2 * (widths.size() - 1);
  for (const auto width : widths)
    all += width;
  constexpr std::size_t name_least = 8;
  for (; all > columns; --all) {
    auto& widest = *std::max_element(widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(names));
    if (widest <= name_least)
      break;
    --widest;
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += (i > 0 ? "  " : "") + to_name(row[i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

double number_at(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  const auto* found = find(x, keys);
  return found != nullptr && found->is_number() ? found->get<double>() : 0;
}

std::uint64_t whole_at(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  return static_cast<std::uint64_t>(std::max(number_at(x, keys), 0.0));
}

std::string counted_at(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  return count_text(whole_at(x, keys));
}

std::string share_text(double part, double whole) {
  return percent_text(whole > 0 ? std::optional(part / whole) : std::nullopt);
}

std::string text_at(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  const auto* found = find(x, keys);
  return found != nullptr && found->is_string() ? printable(found->get<std::string>()) : std::string();
}

const nlohmann::json& list_at(const nlohmann::json& x, std::initializer_list<const char*> keys) {
  static const auto nothing = nlohmann::json::array();
  const auto* found = find(x, keys);
  return found != nullptr && found->is_array() ? *found : nothing;
}

} // namespace troupe::cli
