#include "config/units.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace troupe::config {

namespace {

struct unit {
  std::string_view name;
  std::uint64_t factor;
  /// Whether values are printed in this unit.
  bool preferred;
};

constexpr std::array size_units{
    unit{"TiB", std::uint64_t{1} << 40, true},
    unit{"GiB", std::uint64_t{1} << 30, true},
    unit{"MiB", std::uint64_t{1} << 20, true},
    unit{"KiB", std::uint64_t{1} << 10, true},
    unit{"TB", 1'000'000'000'000, false},
    unit{"GB", 1'000'000'000, false},
    unit{"MB", 1'000'000, false},
    unit{"KB", 1'000, false},
    unit{"B", 1, true},
};

constexpr std::array time_units{
    unit{"h", 3'600'000'000'000, true}, unit{"min", 60'000'000'000, true}, unit{"s", 1'000'000'000, true},
    unit{"ms", 1'000'000, true},        unit{"us", 1'000, true},           unit{"ns", 1, true},
};

/// People do not write more digits than this after the point.
constexpr std::size_t max_fraction_digits = 9;

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Takes the digits at the start of `text`. False if the number does not fit.
bool take_digits(std::string_view& text, std::uint64_t& number, std::size_t& digits) noexcept {
  digits = 0;
  while (digits < text.size() && is_digit(text[digits])) {
    const auto digit = static_cast<std::uint64_t>(text[digits] - '0');
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, digit, &number))
      return false;
    ++digits;
  }
  text.remove_prefix(digits);
  return true;
}

/// `numerator / 10^digits` of the unit, if it is whole.
std::optional<std::uint64_t> fraction_of(std::uint64_t numerator, std::size_t digits, std::uint64_t factor) noexcept {
  // Cancelling before multiplying cannot overflow: what remains is less than the unit.
  for (std::size_t i = 0; i < digits; ++i) {
    std::uint64_t denominator = 10;
    for (const std::uint64_t prime : {2, 5}) {
      if (numerator % prime == 0) {
        numerator /= prime;
        denominator /= prime;
      } else if (factor % prime == 0) {
        factor /= prime;
        denominator /= prime;
      }
    }
    if (denominator != 1)
      return std::nullopt;
  }
  return numerator * factor;
}

std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const unit> units) noexcept {
  std::uint64_t whole = 0;
  std::size_t digits = 0;
  if (!take_digits(text, whole, digits) || digits == 0)
    return std::nullopt;
  std::uint64_t numerator = 0;
  std::size_t fraction_digits = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!take_digits(text, numerator, fraction_digits) || fraction_digits == 0 || fraction_digits > max_fraction_digits)
      return std::nullopt;
  }
  if (text.starts_with(' '))
    text.remove_prefix(1);
  const auto found = std::ranges::find(units, text, &unit::name);
  if (found == units.end())
    return std::nullopt;
  const auto fraction = fraction_of(numerator, fraction_digits, found->factor);
  std::uint64_t total = 0;
  if (!fraction || __builtin_mul_overflow(whole, found->factor, &total) ||
      __builtin_add_overflow(total, *fraction, &total))
    return std::nullopt;
  return total;
}

std::string format_quantity(std::uint64_t x, std::span<const unit> units, std::string_view unit_of_zero) {
  if (x == 0)
    return "0 " + std::string{unit_of_zero};
  const auto fits = [x](const unit& u) { return u.preferred && x % u.factor == 0; };
  const auto found = std::ranges::find_if(units, fits);
  return std::to_string(x / found->factor) + " " + std::string{found->name};
}

} // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
  return parse_quantity(text, size_units);
}

std::string suggest_size(std::string_view text) {
  auto digits = text.find_first_not_of("0123456789.");
  if (digits == 0 || digits == std::string_view::npos)
    return {};
  auto written = text.substr(digits);
  if (written.starts_with(' '))
    written.remove_prefix(1);
  std::string letters(written);
  std::ranges::transform(letters, letters.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::string out;
  for (const std::string_view prefix : {"K", "M", "G", "T"}) {
    const char letter = static_cast<char>(prefix[0] - 'A' + 'a');
    // "g", "gb", "gi", "gib", in any case.
    const bool is_binary = letters == std::string{letter, 'i'} || letters == std::string{letter, 'i', 'b'};
    const bool is_either = letters == std::string{letter} || letters == std::string{letter, 'b'};
    if (!is_binary && !is_either)
      continue;
    const auto number = std::string(text.substr(0, digits)) + " " + std::string(prefix);
    out = '"' + number + "iB\"";
    if (is_either)
      out += " or \"" + number + "B\"";
  }
  return out;
}

std::optional<duration> parse_time(std::string_view text) noexcept {
  const auto nanoseconds = parse_quantity(text, time_units);
  if (!nanoseconds || *nanoseconds > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  return duration{static_cast<std::int64_t>(*nanoseconds)};
}

std::string format_size(std::uint64_t bytes) {
  return format_quantity(bytes, size_units, "B");
}

std::string format_time(duration x) {
  return format_quantity(static_cast<std::uint64_t>(x.count()), time_units, "s");
}

} // namespace troupe::config
