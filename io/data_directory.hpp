#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <sys/types.h>
#include <utility>

namespace troupe::io {

/// Checks whether a node may keep its data in a directory. The data reveals all keys and the salts of tenants, so the
/// directory must be owned by this user and have mode 0700. A missing directory passes if it can be created, and one
/// that `lock_data_directory` would make private counts as private.
///
/// Errors: `not_owner` (it belongs to another user), `invalid_argument` (others have rights in it, or it is not a
/// directory), `io_error`.
result<void> check_data_directory(const std::filesystem::path& directory);

/// Keeps other nodes out of a data directory while it lives. It holds two locks: one on the directory itself, which
/// cannot be removed while it is in use, and one on the file `lock` in it, for programs that look there and for file
/// systems that cannot lock directories. One thread at a time.
class directory_lock {
public:
  directory_lock(std::filesystem::path path, unique_descriptor directory, unique_descriptor file)
      : path_(std::move(path)), directory_(std::move(directory)), file_(std::move(file)) {}

  /// Whether the file is in the directory and the directory at its path. False after either was removed or replaced.
  bool is_there() const;

  /// Creates the file again where it was removed, and locks it. Errors: `not_found` (the directory was removed or
  /// replaced), `busy` (another process has locked the file meanwhile), `io_error`.
  result<void> renew();

  const std::filesystem::path& directory() const noexcept { return path_; }

private:
  std::filesystem::path path_;
  unique_descriptor directory_;
  unique_descriptor file_;
};

/// Creates the directory if it does not exist, and locks it; the result holds the lock. A directory of this user is
/// made private (0700) where it is empty except for `lost+found`, or where only a group of this process has rights in
/// it, as in a volume that Kubernetes mounts with `fsGroup`; the latter is logged as a warning. Any other directory
/// that is open to others is refused as by `check_data_directory`, since rights that were granted on purpose must not
/// be revoked silently.
///
/// Errors: `busy` where another node has locked it, and those of `check_data_directory`.
result<directory_lock> lock_data_directory(const std::filesystem::path& directory);

} // namespace troupe::io
