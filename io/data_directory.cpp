#include "io/data_directory.hpp"

#include "base/log.hpp"
#include "base/same_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

constexpr mode_t private_directory = 0700;
constexpr mode_t private_file = 0600;
constexpr mode_t rights_of_others = S_IRWXG | S_IRWXO;

std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return text.data();
}

result<void> judge_owner(const fs::path& directory, const struct stat& status) {
  if (status.st_uid == ::geteuid())
    return {};
  return fail(errc::not_owner, directory.string() + " belongs to user " + std::to_string(status.st_uid) +
                                   ", and the node runs as user " + std::to_string(::geteuid()) +
                                   ": run it as the owner, or name another data_dir");
}

bool has_private_mode(const struct stat& status) {
  return (status.st_mode & rights_of_others) == 0;
}

/// Whether only a group of this process has rights beside the owner. The kubelet changes a volume with `fsGroup` so at
/// each mount (g+rwX and the set-group-ID bit), so it has to be repaired and not refused.
bool is_open_to_own_group_alone(const struct stat& status) {
  if ((status.st_mode & S_IRWXO) != 0)
    return false;
  if (status.st_gid == ::getegid())
    return true;
  const auto count = ::getgroups(0, nullptr);
  std::vector<gid_t> groups(count > 0 ? static_cast<std::size_t>(count) : 0);
  const auto got = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return std::ranges::find(groups, status.st_gid) != groups.end();
}

/// Whether the directory contains only what mkfs makes at the root of an ext file system. A directory that cannot be
/// read does not count as empty.
bool is_unused(const fs::path& directory) {
  std::error_code failure;
  fs::directory_iterator entries(directory, failure);
  if (failure)
    return false;
  const auto is_made_by_mkfs = [](const fs::directory_entry& x) { return x.path().filename() == "lost+found"; };
  for (; entries != fs::directory_iterator(); entries.increment(failure))
    if (failure || !is_made_by_mkfs(*entries))
      return false;
  return !failure;
}

/// Whether a directory of this user that is open to others may be made private without confirmation.
bool may_be_made_private(const fs::path& directory, const struct stat& status) {
  return is_open_to_own_group_alone(status) || is_unused(directory);
}

tl::unexpected<error> open_to_others(const fs::path& directory, const struct stat& status) {
  return fail(errc::invalid_argument, directory.string() + " has mode " + octal(status.st_mode) +
                                          ", so other users can read keys and salts in it: chmod 700 " +
                                          directory.string());
}

/// The nearest existing parent directory, in which others are created.
fs::path nearest_existing(const fs::path& directory) {
  std::error_code ignored;
  auto at = fs::absolute(directory, ignored);
  while (at.has_relative_path() && !fs::exists(at, ignored))
    at = at.parent_path();
  return at;
}

result<unique_descriptor> open_directory(const fs::path& directory) {
  std::error_code failure;
  if (directory.has_parent_path())
    fs::create_directories(directory.parent_path(), failure);
  if (failure)
    return tl::unexpected(system_error(failure.value(), "create " + directory.parent_path().string()));
  if (::mkdir(directory.c_str(), private_directory) != 0 && errno != EEXIST)
    return tl::unexpected(system_error(errno, "create " + directory.string()));
  unique_descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened)
    return tl::unexpected(system_error(errno, "open " + directory.string()));
  return opened;
}

result<void> make_private(int opened, const fs::path& directory) {
  struct stat status {};
  if (::fstat(opened, &status) != 0)
    return tl::unexpected(system_error(errno, "look at " + directory.string()));
  if (auto mine = judge_owner(directory, status); !mine)
    return mine;
  if (has_private_mode(status))
    return {};
  if (!may_be_made_private(directory, status))
    return open_to_others(directory, status);
  const bool is_new = is_unused(directory);
  if (::fchmod(opened, private_directory) != 0)
    return tl::unexpected(system_error(errno, "chmod 700 " + directory.string()));
  if (is_new)
    log::get("node")->info("data_dir made private: {} (empty, mode {}) has mode 0700 now", directory.string(),
                           octal(status.st_mode));
  else
    log::get("node")->warn("data_dir made private: {} had mode {}, so group {} could read keys and salts in it; it has "
                           "0700 now",
                           directory.string(), octal(status.st_mode), status.st_gid);
  return {};
}

} // namespace

result<void> check_data_directory(const fs::path& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    if (errno != ENOENT)
      return tl::unexpected(system_error(errno, directory.string()));
    const auto above = nearest_existing(directory);
    if (::access(above.c_str(), W_OK | X_OK) != 0)
      return tl::unexpected(system_error(errno, directory.string() + " cannot be created in " + above.string()));
    return {};
  }
  if (!S_ISDIR(status.st_mode))
    return fail(errc::invalid_argument, directory.string() + " is not a directory");
  if (auto mine = judge_owner(directory, status); !mine)
    return mine;
  if (!has_private_mode(status) && !may_be_made_private(directory, status))
    return open_to_others(directory, status);
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    return tl::unexpected(system_error(errno, directory.string()));
  return {};
}

namespace {

constexpr const char* lock_name = "lock";
constexpr auto lock_pause = std::chrono::milliseconds(100);
constexpr int lock_tries = 10;

error in_use(const fs::path& directory) {
  return {errc::busy, directory.string() + " is in use by another node: stop it, or give this one another data_dir"};
}

result<unique_descriptor> lock_file_in(int opened, const fs::path& directory) {
  const auto path = directory / lock_name;
  unique_descriptor lock(::openat(opened, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, private_file));
  if (!lock)
    return tl::unexpected(system_error(errno, "open " + path.string()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return tl::unexpected(in_use(directory));
    return tl::unexpected(system_error(errno, "lock " + path.string()));
  }
  // An earlier version created the file readable for all users.
  if (::fchmod(lock.get(), private_file) != 0)
    return tl::unexpected(system_error(errno, "chmod 600 " + path.string()));
  return lock;
}

bool is_at(const fs::path& path, int opened) {
  struct stat named {};
  struct stat own {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(opened, &own) == 0 && is_same_file(named, own);
}

} // namespace

bool directory_lock::is_there() const {
  struct stat named {};
  struct stat own {};
  return is_at(path_, directory_.get()) && ::fstatat(directory_.get(), lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(file_.get(), &own) == 0 && is_same_file(named, own);
}

result<void> directory_lock::renew() {
  if (!is_at(path_, directory_.get()))
    return fail(errc::not_found, path_.string() + " was removed or replaced: what this node "
                                                  "stores is lost when it stops");
  auto made = lock_file_in(directory_.get(), path_);
  if (!made)
    return tl::unexpected(made.error());
  file_ = std::move(*made);
  return {};
}

result<directory_lock> lock_data_directory(const fs::path& directory) {
  auto opened = open_directory(directory);
  if (!opened)
    return tl::unexpected(opened.error());
  if (auto mine = make_private(opened->get(), directory); !mine)
    return tl::unexpected(mine.error());
  // Some network file systems cannot lock directories: there the lock on the file has to suffice. systemd-tmpfiles
  // locks the directories that it cleans for a moment.
  int tries = 0;
  while (::flock(opened->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (++tries > lock_tries)
      return tl::unexpected(in_use(directory));
    std::this_thread::sleep_for(lock_pause);
  }
  auto file = lock_file_in(opened->get(), directory);
  if (!file)
    return tl::unexpected(file.error());
  // The path stays valid if the working directory changes later.
  std::error_code ignored;
  return directory_lock(fs::absolute(directory, ignored), std::move(*opened), std::move(*file));
}

} // namespace troupe::io
