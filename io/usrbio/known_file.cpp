#include "io/usrbio/known_file.hpp"

#include "base/log.hpp"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <vector>

namespace troupe::io::usrbio {

namespace {

// The most attempts to skip numbers that the library still has from descriptors that were closed without a
// deregistration.
constexpr int most_stale_numbers = 64;

} // namespace

result<std::unique_ptr<known_file>> known_file::add(const std::shared_ptr<mount>& at, int descriptor) {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
  if (failed || !at->client().is_hf3fs(descriptor))
    return fail(errc::invalid_argument,
                "'" + path.string() + "' is not on 3FS, so the io engine usrbio cannot serve it");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return tl::unexpected(system_error(errno, "cannot stat '" + path.string() + "'"));
  std::unique_ptr<known_file> made(new known_file(at));
  made->path_ = path.string();
  made->inode_ = status.st_ino;
  made->flags_ = ::fcntl(descriptor, F_GETFL);
  if (auto done = made->register_duplicate_of(descriptor); !done)
    return tl::unexpected(std::move(done.error()));
  return made;
}

bool known_file::is_read_only() const noexcept {
  return (flags_ & O_ACCMODE) == O_RDONLY;
}

known_file::~known_file() {
  withdraw();
}

result<void> known_file::register_duplicate_of(int descriptor) {
  std::vector<unique_descriptor> stale;
  for (int i = 0; i < most_stale_numbers; ++i) {
    unique_descriptor made(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!made)
      return tl::unexpected(system_error(errno, "cannot register '" + path_ + "' with 3FS"));
    const auto code = mount_->client().reg_fd(made.get(), 0);
    if (code <= 0) {
      own_ = std::move(made);
      return {};
    }
    if (code != EINVAL)
      return tl::unexpected(system_error(code, "3FS's client library refuses '" + path_ + "'"));
    stale.push_back(std::move(made));
  }
  return fail(errc::io_error, "3FS's client library refuses '" + path_ + "': it has all numbers in use");
}

void known_file::withdraw() noexcept {
  if (!own_)
    return;
  if (mount_->client().is_hf3fs(own_.get())) {
    mount_->client().dereg_fd(own_.get());
    own_.reset();
    return;
  }
  // It stays open without its lock, which has no meaning on an unmounted file system.
  ::flock(own_.get(), LOCK_UN);
  static_cast<void>(own_.release());
}

result<void> known_file::renew() {
  if (own_ && mount_->client().is_hf3fs(own_.get())) {
    const unique_descriptor last(::fcntl(own_.get(), F_DUPFD_CLOEXEC, 0));
    withdraw();
    return register_duplicate_of(last.get());
  }
  withdraw();
  const auto again = opened_again();
  if (!again)
    return tl::unexpected(again.error());
  return register_duplicate_of(again->get());
}

result<unique_descriptor> known_file::opened_again() const {
  unique_descriptor made(::open(path_.c_str(), (flags_ & (O_ACCMODE | O_DIRECT)) | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!made || ::fstat(made.get(), &status) != 0)
    return tl::unexpected(system_error(errno, "cannot open '" + path_ + "' again"));
  if (status.st_ino != inode_)
    return fail(errc::io_error, "'" + path_ + "' was replaced while 3FS's daemon restarted");
  // The lock was lost with the daemon, and another process may have taken it. A reader had none: it would keep the
  // owner of the file out.
  if (!is_read_only() && ::flock(made.get(), LOCK_EX | LOCK_NB) != 0)
    return tl::unexpected(system_error(errno, "cannot lock '" + path_ + "' again"));
  return made;
}

result<void> renew_all(std::span<const std::unique_ptr<known_file>> files, const std::string& engine) {
  for (const auto& file : files) {
    auto done = file ? file->renew() : result<void>{};
    if (done)
      continue;
    if (!file->is_read_only())
      return done;
    log::get("io")->warn("{}: {}; the file must be opened again", engine, done.error().text);
  }
  return {};
}

} // namespace troupe::io::usrbio
