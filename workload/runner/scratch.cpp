#include "workload/runner/scratch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace troupe::replay {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_prefix = "troupe-replay.";
constexpr std::string_view name_form = "troupe-replay.XXXXXX";

/// Two programs that begin at once may interfere between the creation and the locking of a directory, but not
/// repeatedly.
constexpr int make_attempts = 16;

/// The most attempts at a removal that is disturbed by threads that still write, and the pause between them.
constexpr int remove_attempts = 50;
constexpr std::chrono::milliseconds remove_pause{10};

unique_descriptor lock_directory(const fs::path& path) {
  unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0)
    opened.reset();
  return opened;
}

/// Whether the path still leads to the opened file.
bool names(const fs::path& path, int descriptor) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(descriptor, &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

/// Whether a node uses the directory. A node locks a file of its own, so it is detected also where the directory itself
/// is not locked. Earlier versions had their nodes in the directory itself.
bool has_node(const fs::path& path) {
  return std::ranges::any_of(std::array{path / scratch_directory::node_name / "lock", path / "lock"},
                             [](const fs::path& x) {
                               const unique_descriptor lock(::open(x.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
                               return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
                             });
}

bool belongs_to_this_user(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

std::uint64_t bytes_on_disk(const fs::path& path) {
  std::uint64_t out = 0;
  std::error_code ended;
  for (fs::recursive_directory_iterator at(path, ended), end; !ended && at != end; at.increment(ended)) {
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) == 0)
      out += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return out;
}

} // namespace

result<scratch_directory> scratch_directory::make(const fs::path& parent) {
  const auto form = (parent / name_form).string();
  for (int attempt = 0; attempt < make_attempts; ++attempt) {
    auto name = form;
    if (::mkdtemp(name.data()) == nullptr)
      return tl::unexpected(
          system_error(errno, "cannot create a directory like " + form + "; choose a place with --set data_dir=…"));
    auto lock = lock_directory(name);
    // Otherwise another program removed it as a leftover before it was locked.
    if (lock && names(name, lock.get()))
      return scratch_directory(name, std::move(lock));
  }
  return fail(errc::busy, "directories like " + form + " disappear as soon as they are created");
}

scratch_directory::~scratch_directory() {
  remove_scratch(path_);
}

void remove_scratch(const fs::path& path) {
  if (path.empty())
    return;
  std::error_code failure;
  for (int attempt = 0; attempt < remove_attempts; ++attempt) {
    fs::remove_all(path, failure);
    if (!failure)
      return;
    std::this_thread::sleep_for(remove_pause);
  }
}

std::vector<leftover> remove_leftovers(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code ended;
  for (fs::directory_iterator at(parent, ended), end; !ended && at != end; at.increment(ended)) {
    const auto name = at->path().filename().string();
    if (name.size() == name_form.size() && name.starts_with(name_prefix) && belongs_to_this_user(at->path()))
      found.push_back(at->path());
  }
  std::vector<leftover> out;
  for (const auto& path : found) {
    const auto lock = lock_directory(path);
    if (!lock || !names(path, lock.get()) || has_node(path))
      continue;
    leftover x{path, bytes_on_disk(path), false};
    std::error_code failure;
    fs::remove_all(path, failure);
    x.removed = !failure;
    out.push_back(std::move(x));
  }
  return out;
}

} // namespace troupe::replay
