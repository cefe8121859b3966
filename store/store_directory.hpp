#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>

namespace troupe::store {

/// The directory of a store, held by this process. A file `TROUPE` in it says that it is one, and which schema it has;
/// the lock of that file says that it is in use. So a directory that is not ours is never opened as a database.
class store_directory {
public:
  /// Makes the directory if there is none. Errors: busy if another process (or this one) has it open;
  /// identity_mismatch if it has another schema, or is neither ours nor empty; corrupt if files are missing; io_error,
  /// no_space.
  static result<store_directory> open(const std::filesystem::path& path);

  /// Whether a store is there, of this schema; changes nothing. Errors: identity_mismatch, corrupt, io_error as above.
  static result<bool> check(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }

private:
  store_directory(std::filesystem::path path, unique_descriptor marker) noexcept;

  std::filesystem::path path_;
  /// Has the lock; closing it gives the lock back.
  unique_descriptor marker_;
};

} // namespace troupe::store
