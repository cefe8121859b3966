#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>

namespace troupe::io {

/// Says what is wrong with a directory that a node is to keep its data in. What lies there tells all keys and the salts
/// of tenants, so it is this user's alone: owned by the user, and of mode 0700. One that is not there is as good as one
/// that can be made, and one that `lock_data_directory` would make private as good as a private one.
///
/// Errors: `not_owner` (it is another user's), `invalid_argument` (others have rights in it, or it is no directory),
/// `io_error`.
result<void> check_data_directory(const std::filesystem::path& directory);

/// Makes the directory where it is not there, and takes its lock: the descriptor holds it. A directory of this user is
/// made private (0700) where it is empty but for `lost+found`, or where only a group that this process is in has rights
/// in it, as in a volume that Kubernetes mounts with `fsGroup`; the latter with a warning. Any other that is open to
/// others is refused as `check_data_directory` does, since rights that somebody gave are not taken away in passing.
///
/// Errors: `busy` where another node has it, and those of `check_data_directory`.
result<unique_descriptor> lock_data_directory(const std::filesystem::path& directory);

} // namespace troupe::io
