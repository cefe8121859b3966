#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Formats numbers of a node for people at a terminal.

namespace troupe::cli {

/// "1.25 GiB"
std::string bytes_text(double bytes);
/// "12,345"
std::string count_text(std::uint64_t x);
/// "1.2 k/s"
std::string rate_text(double per_second);
/// "58.8 %", or a dash for none.
std::string percent_text(std::optional<double> share);
/// "0.38 GB/s" for 10⁹ bytes per second, and smaller units below 0.1 of them.
std::string speed_text(double gigabytes_per_second);
/// "5.3 ms"
std::string micros_text(double microseconds);
/// "2 h 3 min"
std::string span_text(double seconds);

/// Columns that the text takes on a terminal: the number of its characters.
std::size_t width_of(std::string_view text);
/// Exactly this many columns: cut, or padded with blanks at the end, or at the front.
std::string to_width(std::string_view text, std::size_t columns);
std::string to_right(std::string_view text, std::size_t columns);
/// The same, with "~" as the last character where text was cut.
std::string to_name(std::string_view text, std::size_t columns);
/// Lines of at most this many columns, broken at blanks, but not between a number and its unit; a longer word gets a
/// line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);
/// Replaces characters that a terminal does not print as text by question marks: clients choose names.
std::string printable(std::string_view text);
/// Columns as wide as their content. All rows are as long as the first. In a table that would be wider than `columns`,
/// the widest of the first `names` columns are cut, to eight characters at least.
std::string table_of(const std::vector<std::vector<std::string>>& rows, std::size_t columns = 1000,
                     std::size_t names = 1);

/// The value at these keys, each nested in the one before; 0 or empty if there is none of the type. Text is
/// `printable`.
double number_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
/// The same for counts, and that count as text for people.
std::uint64_t whole_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
std::string counted_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
/// "58.8 %": a part of a whole; a dash where that is 0.
std::string share_text(double part, double whole);
std::string text_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
/// A list, empty if there is none.
const nlohmann::json& list_at(const nlohmann::json& x, std::initializer_list<const char*> keys);

} // namespace troupe::cli
