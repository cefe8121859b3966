#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>

namespace troupe::io {

/// Says what is wrong with a directory that a node is to keep its data in. What lies there tells all keys and the salts
/// of tenants, so it is this user's alone: owned by the user, and of mode 0700. One that is not there is as good as one
/// that can be made.
///
/// Errors: `not_owner` (it is another user's), `invalid_argument` (others have rights in it, or it is no directory),
/// `io_error`.
result<void> check_data_directory(const std::filesystem::path& directory);

/// Makes the directory where it is not there, and takes its lock: the descriptor holds it. A directory that is empty
/// is made this user's alone; one with something in it is refused as `check_data_directory` does, since rights that
/// somebody gave are not taken away in passing.
///
/// Errors: `busy` where another node has it, and those of `check_data_directory`.
result<unique_descriptor> lock_data_directory(const std::filesystem::path& directory);

} // namespace troupe::io
