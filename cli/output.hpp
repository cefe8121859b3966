#pragma once

#include <string_view>

namespace troupe::cli {

/// Opens /dev/null for each of stdin, stdout and stderr that is closed: else the next file that is opened, which may be
/// a slab, would get its number and what is printed. The first call of the program.
void open_standard_streams();

/// Writes all of `text` to stdout. Says on stderr what is wrong where it cannot be written, as on a full disk or into a
/// pipe that nobody reads, and returns false: a report that is lost is no success.
bool print(std::string_view text);

} // namespace troupe::cli
