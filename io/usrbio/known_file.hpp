#pragma once

#include "base/unique_descriptor.hpp"
#include "io/usrbio/mount.hpp"

#include <memory>
#include <span>
#include <string>
#include <sys/types.h>

namespace troupe::io::usrbio {

/// A file that is registered with the client library.
///
/// A duplicate of the caller's descriptor is registered, so that it is deregistered before it is closed whatever the
/// caller does: the library makes a request to the daemon for each, by the descriptor, which fails after the close.
/// Without a daemon the deregistration fails as well; the duplicate then stays open for good, since the library would
/// refuse its number from then on.
class known_file {
public:
  /// Error: `invalid_argument` where the file is not on 3FS, `io_error`.
  static result<std::unique_ptr<known_file>> add(const std::shared_ptr<mount>& at, int descriptor);

  known_file(const known_file&) = delete;
  known_file& operator=(const known_file&) = delete;
  ~known_file();

  /// The registered descriptor; -1 after a renewal that failed.
  int descriptor() const noexcept { return own_.get(); }

  /// Whether the file belongs to another node, which may hold the lock on it.
  bool is_read_only() const noexcept;

  /// Registers the same file with a new daemon. Where the descriptor became invalid with the last one, the file is
  /// opened again by its path; it must be the same file, and is locked unless it is only read. Errors: `io_error`,
  /// `busy`.
  result<void> renew();

private:
  explicit known_file(std::shared_ptr<mount> at) : mount_(std::move(at)) {}

  result<void> register_duplicate_of(int descriptor);
  void withdraw() noexcept;
  result<unique_descriptor> opened_again() const;

  std::shared_ptr<mount> mount_;
  unique_descriptor own_;
  std::string path_;
  ino_t inode_ = 0;
  int flags_ = 0;
};

/// Renews all registered files. Returns an error if an own file cannot be renewed. A read-only file belongs to another
/// node, and may have been removed for good: its transfers fail until the reader opens it again.
result<void> renew_all(std::span<const std::unique_ptr<known_file>> files, const std::string& engine);

} // namespace troupe::io::usrbio
