#pragma once

#include <string>
#include <string_view>

/// The version of this program, known at build time.

namespace troupe::cli {

/// "0.1.0"
std::string_view version() noexcept;

/// The commit of the sources, short, with "-dirty" if files were modified; "unknown" outside a repository.
std::string_view commit() noexcept;

/// "troupe 0.1.0 (commit 0123abc)"
std::string one_line_version();

/// The same, with its protocols and formats and the parts left out of the build: `troupe --version`.
std::string version_text();

} // namespace troupe::cli
