#include "base/log.hpp"
#include "io/data_directory.hpp"
#include "tests/catch.hpp"
#include "tests/no_umask.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace io_data_directory_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

unsigned mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

bool has(const error& e, std::string_view part) {
  return e.text.find(part) != std::string::npos;
}

/// Returns the result of `f` in a process of an unprivileged user.
template <class F>
int as_other_user(F f) {
  const auto child = ::fork();
  if (child == 0)
    ::_exit(::setresuid(65534, 65534, 65534) == 0 ? f() : 99);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("data directory: a data directory and its lock are created for their user only, whatever the umask",
          "[io][data_directory]") {
  const no_umask open_handed;
  const scratch_directory scratch;
  const auto data = scratch / "above/data";
  const auto lock = lock_data_directory(data);
  REQUIRE(lock);
  CHECK(mode_of(data) == 0700);
  CHECK(mode_of(data / "lock") == 0600);
  CHECK(check_data_directory(data));
}

TEST_CASE("data directory: a data directory has one user at a time", "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  {
    const auto lock = lock_data_directory(data);
    REQUIRE(lock);
    const auto second = lock_data_directory(data);
    REQUIRE_FALSE(second);
    CHECK(second.error().code == errc::busy);
    CHECK(has(second.error(), "in use by another node"));
  }
  CHECK(lock_data_directory(data));
}

TEST_CASE("data directory: a directory that others may read is refused with the way out unless it is empty",
          "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  for (const unsigned mode : {0755U, 0701U, 0775U, 0777U}) {
    fs::remove_all(data);
    REQUIRE(::mkdir(data.c_str(), 0700) == 0);
    REQUIRE(::chmod(data.c_str(), mode) == 0);
    INFO("mode " << std::oct << mode);
    std::ofstream(data / "something") << "in it";
    for (const auto& refused : {check_data_directory(data), lock_data_directory(data).map([](auto&&) {})}) {
      REQUIRE_FALSE(refused);
      CHECK(has(refused.error(), "chmod 700 " + data.string()));
    }
    CHECK(mode_of(data) == mode); // no rights were removed
    CHECK_FALSE(fs::exists(data / "lock"));

    fs::remove(data / "something");
    CHECK(check_data_directory(data));
    CHECK(mode_of(data) == mode);
    CHECK(lock_data_directory(data));
    CHECK(mode_of(data) == 0700);
  }
}

TEST_CASE("data directory: a directory that is open to a group of this process only is made private again",
          "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  REQUIRE(::mkdir(data.c_str(), 0700) == 0);
  std::ofstream(data / "something") << "in it";
  // Among others these are the modes that the kubelet sets on a volume with fsGroup at each mount.
  for (const unsigned mode : {02770U, 0770U, 0710U, 0740U}) {
    INFO("mode " << std::oct << mode);
    REQUIRE(::chmod(data.c_str(), mode) == 0);
    CHECK(check_data_directory(data));
    CHECK(mode_of(data) == mode); // to look changes nothing
    CHECK(lock_data_directory(data));
    CHECK(mode_of(data) == 0700);
    CHECK(log::tail().back().find("data_dir made private: " + data.string()) != std::string::npos);
  }
  CHECK(fs::exists(data / "something"));
}

TEST_CASE("data directory: a directory that is open to another group is refused", "[io][data_directory]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a directory to a group that it is not in");
    return;
  }
  const scratch_directory scratch;
  const auto data = scratch / "data";
  REQUIRE(::mkdir(data.c_str(), 0700) == 0);
  std::ofstream(data / "something") << "in it";
  REQUIRE(::chown(data.c_str(), 0, 54321) == 0);
  REQUIRE(::chmod(data.c_str(), 02770) == 0);
  for (const auto& refused : {check_data_directory(data), lock_data_directory(data).map([](auto&&) {})}) {
    REQUIRE_FALSE(refused);
    CHECK(has(refused.error(), "chmod 700 " + data.string()));
  }
  CHECK(mode_of(data) == 02770);
}

TEST_CASE("data directory: the root of a new file system counts as empty", "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  REQUIRE(::mkdir(data.c_str(), 0700) == 0);
  REQUIRE(::mkdir((data / "lost+found").c_str(), 0700) == 0);
  REQUIRE(::chmod(data.c_str(), 0755) == 0);
  CHECK(check_data_directory(data));
  CHECK(lock_data_directory(data));
  CHECK(mode_of(data) == 0700);
}

TEST_CASE("data directory: the lock file of an earlier version loses access for others", "[io][data_directory]") {
  const scratch_directory scratch;
  std::ofstream(scratch / "lock") << "";
  REQUIRE(::chmod((scratch / "lock").c_str(), 0644) == 0);
  CHECK(lock_data_directory(scratch.path()));
  CHECK(mode_of(scratch / "lock") == 0600);
}

TEST_CASE("data directory: a lock file that is a link is not followed", "[io][data_directory]") {
  const scratch_directory scratch;
  std::ofstream(scratch / "elsewhere") << "";
  fs::create_symlink(scratch / "elsewhere", scratch / "lock");
  const auto refused = lock_data_directory(scratch.path());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::io_error);
}

TEST_CASE("data directory: a data directory that is a file or cannot be created is an error that names it",
          "[io][data_directory]") {
  const scratch_directory scratch;
  std::ofstream(scratch / "file") << "";
  for (const auto& path : {scratch / "file", scratch / "file/data"}) {
    const auto checked = check_data_directory(path);
    REQUIRE_FALSE(checked);
    CHECK(has(checked.error(), path.string()));
    const auto locked = lock_data_directory(path);
    REQUIRE_FALSE(locked);
    CHECK(has(locked.error(), (scratch / "file").string()));
  }
  CHECK(check_data_directory(scratch / "not/there/yet"));
}

TEST_CASE("data directory: another user can neither lock a data directory nor use it", "[io][data_directory]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become another user");
    return;
  }
  log::get("node"); // its thread belongs to this process
  const scratch_directory scratch;
  REQUIRE(::chmod(scratch.path().c_str(), 0755) == 0);
  const auto data = scratch / "data";
  const auto lock = lock_data_directory(data);
  REQUIRE(lock);
  const auto path = data / "lock";
  CHECK(as_other_user([&] { return ::open(path.c_str(), O_RDONLY) < 0 ? errno : 0; }) == EACCES);
  const auto refused = as_other_user([&] {
    const auto x = check_data_directory(data);
    return !x && x.error().code == errc::not_owner && has(x.error(), "belongs to user 0") ? 0 : 1;
  });
  CHECK(refused == 0);
}

TEST_CASE("data directory: a data directory stays locked when its lock file is removed, which is created again",
          "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  auto lock = lock_data_directory(data);
  REQUIRE(lock);
  CHECK(lock->is_there());
  fs::remove(data / "lock");
  CHECK_FALSE(lock->is_there());
  CHECK(lock_data_directory(data).error().code == errc::busy);
  fs::remove(data / "lock"); // the attempt has created one
  REQUIRE(lock->renew());
  CHECK(lock->is_there());
  CHECK(mode_of(data / "lock") == 0600);
  CHECK(lock_data_directory(data).error().code == errc::busy);
}

TEST_CASE("data directory: a replaced data directory is not locked again", "[io][data_directory]") {
  const scratch_directory scratch;
  const auto data = scratch / "data";
  auto lock = lock_data_directory(data);
  REQUIRE(lock);
  fs::rename(data, scratch / "elsewhere");
  CHECK_FALSE(lock->is_there());
  CHECK(lock->renew().error().code == errc::not_found);
  const auto second = lock_data_directory(data);
  REQUIRE(second);
  CHECK_FALSE(lock->is_there());
  CHECK(lock->renew().error().code == errc::not_found);
  CHECK(second->is_there());
}

} // namespace io_data_directory_test
