#include "base/local_socket.hpp"
#include "base/process_watch.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace base_process_watch_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// A child of this process, which ends by itself when `release` is called.
class child_process {
public:
  child_process() {
    number_ = ::fork();
    REQUIRE(number_ >= 0);
    if (number_ != 0)
      return;
    ends_.write_end.reset(); // and so it ends with its parent
    char byte = 0;
    ::_exit(::read(ends_.read_end.get(), &byte, 1) == 1 ? 0 : 1);
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    kill();
    reap();
  }

  pid_t number() const { return number_; }
  void release() { REQUIRE(::write(ends_.write_end.get(), "x", 1) == 1); }
  void kill() {
    if (number_ > 0)
      ::kill(number_, SIGKILL);
  }
  /// Waits until it has ended, and leaves it there to be reaped.
  void see_end() {
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(number_), &info, WEXITED | WNOWAIT) == 0);
  }
  void reap() {
    if (number_ > 0)
      ::waitpid(number_, nullptr, 0);
    number_ = 0;
  }

private:
  pipe_ends ends_ = make_pipe();
  pid_t number_ = 0;
};

} // namespace

TEST_CASE("process watch: a watched process that is killed is reported dead, before and after it is reaped",
          "[process_watch]") {
  child_process child;
  auto watch = process_watch::open(child.number());
  REQUIRE(watch);
  CHECK_FALSE(watch->gone());
  CHECK_FALSE(watch->gone());
  child.kill();
  child.see_end();
  CHECK(watch->gone());
  child.reap();
  CHECK(watch->gone());
}

TEST_CASE("process watch: a process that exits is reported dead and another one is not", "[process_watch]") {
  child_process child;
  child_process other;
  auto first = watch_process(child.number());
  auto second = watch_process(other.number());
  REQUIRE(first);
  REQUIRE(*first);
  REQUIRE(second);
  CHECK_FALSE((*first)->gone());
  child.release();
  child.see_end();
  CHECK((*first)->gone());
  CHECK_FALSE((*second)->gone());
}

TEST_CASE("process watch: watching a process that does not exist fails with the cause", "[process_watch]") {
  child_process child;
  const auto number = child.number();
  child.kill();
  child.reap();
  for (const auto none : {number, 0x7fffffff, 0, -1}) {
    const auto e = process_watch::open(none).error();
    CHECK(e.code == errc::unreachable);
    CHECK(missing(e.text, {"no process " + std::to_string(none), "node's host", "process namespace"}) == "");
    CHECK(watch_process(none).error().code == errc::unreachable);
  }
}

TEST_CASE("process watch: a process does not watch itself", "[process_watch]") {
  const auto watch = watch_process(::getpid());
  REQUIRE(watch);
  CHECK(*watch == nullptr);
}

TEST_CASE("process watch: the process that connects is watched, whatever id it claims", "[process_watch]") {
  const scratch_directory scratch;
  auto listener = local_listener::open("actors.socket", scratch / "s");
  REQUIRE(listener);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto connection = connect_local(scratch / "s");
    char ignored = 0;
    // Until the other end closes.
    ::_exit(connection && ::fcntl(connection->get(), F_SETFL, 0) == 0 && ::read(connection->get(), &ignored, 1) == 0
                ? 0
                : 1);
  }
  pollfd waiting{listener->descriptor(), POLLIN, 0};
  REQUIRE(::poll(&waiting, 1, 60'000) == 1);
  unique_descriptor accepted(::accept(listener->descriptor(), nullptr, nullptr));
  REQUIRE(accepted);
  CHECK(peer_of(accepted.get()).value().process == child);
  auto watch = process_watch::of_peer(accepted.get());
  REQUIRE(watch);
  CHECK_FALSE(watch->gone());
  accepted.reset();
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(watch->gone());
}

TEST_CASE("process watch: a descriptor that is not a connection names no process", "[process_watch]") {
  CHECK_FALSE(process_watch::of_peer(-1));
}

} // namespace base_process_watch_test
