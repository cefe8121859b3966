#pragma once

#include "base/error.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Reads a file with secrets, which only its owner and its group may be able to access. `what` names the file and
/// `secrets` its content, for messages: "tokens file", "tokens". Errors: `invalid_argument` for something that is not a
/// file, or is accessible to all users; `limit_exceeded` for more than 1 MiB; those of the operating system. May wait
/// for the disk. The caller wipes the text after use.
result<std::string> read_private_file(const std::filesystem::path& file, std::string_view what,
                                      std::string_view secrets);

} // namespace troupe
