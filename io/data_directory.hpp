#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <sys/types.h>
#include <utility>

namespace troupe::io {

/// Says what is wrong with a directory that a node is to keep its data in. What lies there tells all keys and the salts
/// of tenants, so it is this user's alone: owned by the user, and of mode 0700. One that is not there is as good as one
/// that can be made, and one that `lock_data_directory` would make private as good as a private one.
///
/// Errors: `not_owner` (it is another user's), `invalid_argument` (others have rights in it, or it is no directory),
/// `io_error`.
result<void> check_data_directory(const std::filesystem::path& directory);

/// Keeps other nodes out of a data directory, as long as it lives. Two locks: one on the directory itself, which nobody
/// can remove while it is in use, and one on the file `lock` in it, for programs that look there, and for file systems
/// that lock no directories. One thread at a time.
class directory_lock {
public:
  directory_lock(std::filesystem::path path, unique_descriptor directory, unique_descriptor file)
      : path_(std::move(path)), directory_(std::move(directory)), file_(std::move(file)) {}

  /// Whether the file is found in the directory, and that at its path. False after either was removed or replaced.
  bool is_there() const;

  /// Makes the file again where it was removed, and locks it. Errors: `not_found` (the directory is not at its path any
  /// more: it was removed, or another one is there), `busy` (somebody else has locked the file meanwhile), `io_error`.
  result<void> renew();

  const std::filesystem::path& directory() const noexcept { return path_; }

private:
  std::filesystem::path path_;
  unique_descriptor directory_;
  unique_descriptor file_;
};

/// Makes the directory where it is not there, and takes its lock: the descriptor holds it. A directory of this user is
/// made private (0700) where it is empty but for `lost+found`, or where only a group that this process is in has rights
/// in it, as in a volume that Kubernetes mounts with `fsGroup`; the latter with a warning. Any other that is open to
/// others is refused as `check_data_directory` does, since rights that somebody gave are not taken away in passing.
///
/// Errors: `busy` where another node has it, and those of `check_data_directory`.
result<directory_lock> lock_data_directory(const std::filesystem::path& directory);

} // namespace troupe::io
