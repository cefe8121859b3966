#pragma once

#include <cstddef>
#include <string_view>

namespace troupe::cli {

/// Opens /dev/null for each of stdin, stdout and stderr that is closed. Otherwise the next file to be opened, which may
/// be a slab, would get its number, and output would be written into it. To be called first in the program.
void open_standard_streams();

/// Writes all of `text` to stdout. Returns false, with an error on stderr, if it cannot be written, as on a full disk
/// or into a closed pipe: a lost report is no success.
bool print(std::string_view text);

/// The width of the terminal at stdout, or 80.
std::size_t columns_of_stdout();

} // namespace troupe::cli
