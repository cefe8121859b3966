#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>

namespace troupe::store {

/// The directory of a store, held by this process. A file `TROUPE` in it marks it as a store and holds its schema; the
/// lock on that file marks it as in use. So another directory is never opened as a database.
class store_directory {
public:
  /// Creates the directory if it does not exist. Errors: `busy` if another process (or this one) has it open;
  /// `identity_mismatch` if it has another schema, or is neither a store nor empty; `corrupt` if files are missing;
  /// `io_error`, `no_space`.
  static result<store_directory> open(const std::filesystem::path& path);

  /// Whether there is a store of this schema; changes nothing. Errors: `identity_mismatch`, `corrupt`, `io_error` as
  /// above.
  static result<bool> check(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }

private:
  store_directory(std::filesystem::path path, unique_descriptor marker) noexcept;

  std::filesystem::path path_;
  /// Holds the lock; closing it releases the lock.
  unique_descriptor marker_;
};

} // namespace troupe::store
