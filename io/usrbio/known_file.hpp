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
/// What is registered is a duplicate of the caller's descriptor, so that it is taken back before it is closed whatever
/// the caller does: the library asks the daemon for each, by the descriptor, and after the close nothing would happen.
/// Where the daemon is gone, nothing happens either; the duplicate then stays open for good, since the library would
/// refuse its number ever after.
class known_file {
public:
  /// Error: `invalid_argument` where the file is not on 3FS, `io_error`.
  static result<std::unique_ptr<known_file>> add(const std::shared_ptr<mount>& at, int descriptor);

  known_file(const known_file&) = delete;
  known_file& operator=(const known_file&) = delete;
  ~known_file();

  /// Of what is registered; -1 after a renewal that failed.
  int descriptor() const noexcept { return own_.get(); }

  /// It is somebody else's, who may have the lock on it.
  bool is_read_only() const noexcept;

  /// Registers the same file anew, with another daemon. Where the descriptor went with the last one, the file is opened
  /// again by its path; it must be the same one, and is locked unless it is only read. Error: `io_error`, `busy`.
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

/// Renews all of them that are there. An own file comes back, or the error says why not; one that is only read is
/// somebody else's, and may be gone for good: its transfers fail then, until whoever reads it opens it anew.
result<void> renew_all(std::span<const std::unique_ptr<known_file>> files, const std::string& engine);

} // namespace troupe::io::usrbio
