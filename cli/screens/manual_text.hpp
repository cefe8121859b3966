#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Pages of the documentation, which are Markdown, as text for a terminal.

namespace troupe::cli {

/// The title of a page: its first heading, without its mark.
std::string_view title_of(std::string_view markdown);

/// The part of a page below the heading with this anchor, with that heading, up to the next heading of the same or a
/// higher level; empty if no heading has the anchor. Anchors are those that GitHub gives to headings, as in links.
std::string_view section_of(std::string_view markdown, std::string_view anchor);

/// The page as text of at most `columns` columns, except blocks of code and long words, which stay as they are. Tables
/// that are wider become an entry per row. Links name their target if it is not on the same page.
std::string manual_text(std::string_view markdown, std::size_t columns);

} // namespace troupe::cli
