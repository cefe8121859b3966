#pragma once

#include <string>
#include <string_view>

/// What this program is: all of it known when it was built.

namespace troupe::cli {

/// "0.1.0"
std::string_view version() noexcept;

/// Of the sources, short, with "-dirty" where files differed from it; "unknown" where they were in no repository.
std::string_view commit() noexcept;

/// "troupe 0.1.0 (commit 0123abc)"
std::string one_line_version();

/// The same, and what it speaks, reads and writes, and what was left out of it: `troupe --version`.
std::string version_text();

} // namespace troupe::cli
