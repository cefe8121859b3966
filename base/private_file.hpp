#pragma once

#include "base/error.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Reads a file with secrets, which nobody but its owner and its group may be able to use. `what` says what it is, and
/// `secrets` what is in it, for messages: "tokens file", "tokens". Errors: invalid_argument for what is no file, or is
/// open to everybody on the machine; limit_exceeded for more than 1 MiB; those of the operating system. May wait for
/// the disk. Whoever calls it wipes the text when it is done with it.
result<std::string> read_private_file(const std::filesystem::path& file, std::string_view what,
                                      std::string_view secrets);

} // namespace troupe
