#include "workload/replay/text_table.hpp"

#include "base/utf8.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace troupe::replay {

namespace {

/// Three significant digits: 6.45, 64.5, 645.
std::string three_digits(double x) {
  if (x < 9.995)
    return fmt::format("{:.2f}", x);
  return x < 99.95 ? fmt::format("{:.1f}", x) : fmt::format("{:.0f}", x);
}

} // namespace

std::string human_count(std::uint64_t n) {
  auto out = std::to_string(n);
  for (auto i = out.size(); i > 3; i -= 3)
    out.insert(i - 3, 1, ',');
  return out;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  // From 999.5 on, three digits would round up to a fourth.
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit)
    value /= 1024.0;
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

std::string human_time(duration d) {
  const auto ns = static_cast<double>(d.count());
  if (ns < 999.5)
    return fmt::format("{} ns", d.count());
  if (ns < 999.5e3)
    return fmt::format("{} µs", three_digits(ns / 1e3));
  if (ns < 999.5e6)
    return fmt::format("{} ms", three_digits(ns / 1e6));
  if (ns < 119.95e9)
    return fmt::format("{} s", three_digits(ns / 1e9));
  const auto seconds = (d.count() + 500'000'000) / 1'000'000'000;
  if (seconds < 7200)
    return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds % 3600 / 60);
}

std::string human_percent(double share) {
  return fmt::format("{:.1f} %", share * 100.0);
}

double share(std::uint64_t part, std::uint64_t whole) noexcept {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double finite(double x) noexcept {
  return std::isfinite(x) ? x : 0.0;
}

duration from_seconds(double x) noexcept {
  return duration(std::llround(finite(x) * 1e9));
}

double gigabytes_per_second(std::uint64_t bytes, duration d) noexcept {
  return d.count() <= 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(d.count());
}

std::size_t display_width(std::string_view text) noexcept {
  return characters_in(text);
}

std::string_view fitting(std::string_view text, std::size_t columns) noexcept {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (continues_character(text[end]))
      continue; // belongs to the previous character
    if (columns == 0)
      break;
    --columns;
  }
  return text.substr(0, end);
}

text_table::text_table(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void text_table::row(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string text_table::str(std::size_t indent) const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], display_width(row[column]));
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - display_width(row[column]), ' ');
      if (column == 0)
        line.append(row[column]).append(padding);
      else
        line.append("  ").append(padding).append(row[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.append(line).append("\n");
  }
  return out;
}

} // namespace troupe::replay
