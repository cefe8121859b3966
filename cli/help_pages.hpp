#pragma once

#include <span>
#include <string_view>

namespace troupe::cli {

/// A page of the documentation, as Markdown.
struct help_page {
  /// The file in docs/, without its ending: "install".
  std::string_view name;
  std::string_view text;
};

/// The pages that are part of the program, by name: those of docs/ for operators and for authors of engines.
std::span<const help_page> help_pages() noexcept;

} // namespace troupe::cli
