#include "base/local_socket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace base_local_socket_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat x {};
  REQUIRE(::lstat(path.c_str(), &x) == 0);
  return x.st_mode & 07777U;
}

} // namespace

TEST_CASE("local socket: a local socket is accessible to its user only, whatever the umask", "[io][socket]") {
  scratch_directory scratch;
  const auto before = ::umask(0);
  auto made = local_listener::open("actors.socket", scratch / "s");
  ::umask(before);
  REQUIRE(made.has_value());
  CHECK(mode_of(scratch / "s") == 0600);
}

TEST_CASE("local socket: the process that connects to a local socket is known", "[io][socket]") {
  scratch_directory scratch;
  auto made = local_listener::open("actors.socket", scratch / "s");
  REQUIRE(made.has_value());
  auto client = connect_local(scratch / "s");
  REQUIRE(client.has_value());
  const unique_descriptor accepted(::accept(made->descriptor(), nullptr, nullptr));
  REQUIRE(accepted);
  const auto who = peer_of(accepted.get());
  REQUIRE(who);
  CHECK(who->user == ::geteuid());
  CHECK(who->process == ::getpid());
  CHECK_FALSE(peer_of(-1));
}

TEST_CASE("local socket: a directory path names the socket of the node with that data directory", "[io][socket]") {
  scratch_directory scratch;
  CHECK(missing(connect_local(scratch.path()).error().text, {"no socket", "troupe.sock"}) == "");
  auto made = local_listener::open("actors.socket", scratch / actors_socket_name);
  REQUIRE(made.has_value());
  CHECK(connect_local(scratch.path()).has_value());
}

TEST_CASE("local socket: a path may be longer than the limit of the system", "[io][socket]") {
  scratch_directory scratch;
  auto deep = scratch.path();
  for (int i = 0; i < 10; ++i)
    deep /= "a-directory-with-a-long-name";
  fs::create_directories(deep);
  auto made = local_listener::open("actors.socket", deep / "s");
  REQUIRE(made.has_value());
  CHECK(connect_local(deep / "s").has_value());
  CHECK(local_listener::open("actors.socket", scratch / std::string(120, 'n')).error().code == errc::invalid_argument);
}

TEST_CASE("local socket: the socket of a dead node is replaced, that of a live node is not", "[io][socket]") {
  scratch_directory scratch;
  const auto path = scratch / "s";
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto made = local_listener::open("actors.socket", path);
    ::_exit(made ? 0 : 1); // as by a signal: nothing is removed
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(fs::exists(path));
  const auto dead = connect_local(path).error();
  CHECK(dead.code == errc::unreachable);
  CHECK(missing(dead.text, {"connection refused"}) == "");
  auto made = local_listener::open("actors.socket", path);
  REQUIRE(made.has_value());
  const auto refused = local_listener::open("actors.socket", path).error();
  CHECK(refused.code == errc::busy);
  CHECK(missing(refused.text, {"actors.socket"}) == "");
  CHECK(connect_local(path).has_value()); // the first is still there
}

TEST_CASE("local socket: a file that is not a socket is left in place", "[io][socket]") {
  scratch_directory scratch;
  std::ofstream(scratch / "file") << "precious";
  CHECK(local_listener::open("actors.socket", scratch / "file").error().code == errc::invalid_argument);
  CHECK(fs::file_size(scratch / "file") == 8);
  fs::create_symlink(scratch / "file", scratch / "link");
  CHECK_FALSE(local_listener::open("actors.socket", scratch / "link").has_value());
  CHECK(fs::file_size(scratch / "file") == 8);
  CHECK_FALSE(connect_local(scratch / "file").has_value());
}

TEST_CASE("local socket: a socket is removed at shutdown unless another process has replaced it", "[io][socket]") {
  scratch_directory scratch;
  const auto path = scratch / "s";
  {
    auto made = local_listener::open("actors.socket", path);
    REQUIRE(made.has_value());
    auto moved = std::move(*made);
    CHECK(fs::exists(path));
  }
  CHECK_FALSE(fs::exists(path));
  auto made = local_listener::open("actors.socket", path);
  REQUIRE(made.has_value());
  fs::remove(path);
  auto other = local_listener::open("actors.socket", path);
  REQUIRE(other.has_value());
  { const auto ended = std::move(*made); }
  CHECK(fs::exists(path));
  CHECK(connect_local(path).has_value());
}

TEST_CASE("local socket: an error for missing permission on the socket says so", "[io][socket]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become somebody else");
    return;
  }
  scratch_directory scratch;
  fs::permissions(scratch.path(), fs::perms::all);
  auto made = local_listener::open("actors.socket", scratch / "s");
  REQUIRE(made.has_value());
  const auto path = scratch / "s";
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      ::_exit(3);
    const auto got = connect_local(path);
    ::_exit(!got && got.error().text.find("only the user of the node and root") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("local socket: a listener detects whether its socket is still at its path", "[io][socket]") {
  scratch_directory scratch;
  const auto path = scratch / "s";
  auto made = local_listener::open("actors.socket", path);
  REQUIRE(made.has_value());
  const auto file = made->file();
  CHECK(file.path() == path);
  CHECK(file.is_there());
  CHECK_FALSE(socket_file().is_there());
  SECTION("removed") {
    fs::remove(path);
    CHECK_FALSE(file.is_there());
  }
  SECTION("replaced, then created again in its place") {
    fs::remove(path);
    auto again = local_listener::open("actors.socket", path);
    REQUIRE(again.has_value());
    CHECK_FALSE(file.is_there());
    CHECK(again->file().is_there());
    // The first listener does not remove a socket that is not its own.
    made = std::move(again);
    CHECK(made->file().is_there());
    CHECK(connect_local(path).has_value());
  }
  SECTION("another file") {
    fs::remove(path);
    std::ofstream(path.string()) << "x";
    CHECK_FALSE(file.is_there());
  }
}

} // namespace base_local_socket_test
