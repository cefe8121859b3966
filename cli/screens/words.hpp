#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Words for the numbers of a node, for people who look at a terminal.

namespace troupe::cli {

/// "1.25 GiB"
std::string bytes_text(double bytes);
/// "12,345"
std::string count_text(std::uint64_t x);
/// "1.2 k/s"
std::string rate_text(double per_second);
/// "58.8 %", and a dash for nothing.
std::string percent_text(std::optional<double> share);
/// "0.38 GB/s"
std::string gbps_text(double x);
/// "5.3 ms"
std::string micros_text(double microseconds);
/// "2 h 3 min"
std::string span_text(double seconds);

/// Columns that the text takes on a terminal: as many as it has characters.
std::size_t width_of(std::string_view text);
/// Exactly so many columns: cut, or filled up with blanks at the end, or at the front.
std::string to_width(std::string_view text, std::size_t columns);
std::string to_right(std::string_view text, std::size_t columns);
/// Lines of at most so many columns, broken at blanks; a word that is longer has a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);
/// What a terminal would not print as text becomes a question mark: names are chosen by clients.
std::string printable(std::string_view text);
/// Columns as wide as what stands in them. All rows are as long as the first.
std::string table_of(const std::vector<std::vector<std::string>>& rows);

/// What lies at these keys, one inside the other; 0, or empty, where there is nothing of the kind.
double number_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
std::string text_at(const nlohmann::json& x, std::initializer_list<const char*> keys);
/// A list, empty where there is none.
const nlohmann::json& list_at(const nlohmann::json& x, std::initializer_list<const char*> keys);

} // namespace troupe::cli
