#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Whether `text` can be printed unchanged: one line of valid UTF-8 without terminal control characters. Thread-safe.
bool is_single_line(std::string_view text) noexcept;

/// Appends `text` such that it stays on one line and cannot control a terminal. Replaced are control characters (C0,
/// DEL, C1), separators of lines and paragraphs (U+2028, U+2029) and marks that reorder text (U+202A to U+202E, U+2066
/// to U+2069), by `\n`, `\r`, `\t`, `\xNN` or `\u{NNNN}`; bytes that are not UTF-8 become `\xNN`. Everything else,
/// backslashes included, stays unchanged, so the original cannot always be recovered. Thread-safe.
void append_single_line(std::string& out, std::string_view text);

} // namespace troupe
