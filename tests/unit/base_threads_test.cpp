#include "base/threads.hpp"
#include "tests/catch.hpp"

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace base_threads_test {

using namespace troupe;

namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Returns the result of `f` in a child process, whose limits do not outlive it.
template <class F>
int in_child(F f) {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0)
    ::_exit(f());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("threads: available threads and open files are probed and released", "[base][threads]") {
  for (int i = 0; i < 3; ++i)
    CHECK(check_threads(8, "a test"));
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_files();
  CHECK(check_descriptors(8, "a test"));
  CHECK(open_files() == before);
}

TEST_CASE("threads: a probe beyond the limit of open files fails with the way out", "[base][threads]") {
  const auto code = in_child([] {
    // Whatever other tests have left open.
    ::close_range(3, ~0U, 0);
    constexpr rlim_t few = 20;
    const rlimit limit{few, few};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
      return 1;
    const auto some = check_descriptors(few, "a test");
    if (some || some.error().code != errc::io_error)
      return 2;
    if (!has(some.error().text, "a test needs 20 more open files") || !has(some.error().text, "ulimit -n"))
      return 3;
    return check_descriptors(2, "a test") ? 0 : 4;
  });
  CHECK(code == 0);
}

TEST_CASE("threads: a started thread runs and can be joined", "[base][threads]") {
  bool ran = false;
  auto made = start_thread(thread_name("a test"), "a test", [&] { ran = true; });
  REQUIRE(made);
  made->join();
  CHECK(ran);
  const auto refused = no_thread("the thread of a test", EAGAIN);
  CHECK(refused.code == errc::io_error);
  CHECK(has(refused.text, "cannot start the thread of a test: "));
  CHECK(has(refused.text, "ulimit -u"));
}

TEST_CASE("threads: an exception becomes an error that names the exhausted resource", "[base][threads]") {
  const auto threads = error_of(std::system_error(EAGAIN, std::generic_category()), "cannot start");
  CHECK(threads.code == errc::io_error);
  CHECK(has(threads.text, "cannot start: "));
  CHECK(has(threads.text, "pids.max"));
  CHECK(has(error_of(std::bad_alloc(), "cannot start").text, "out of memory"));
  // Asio throws it like this.
  const auto files = error_of(std::runtime_error("epoll: Too many open files"), "cannot start");
  CHECK(files.code == errc::io_error);
  CHECK(has(files.text, "ulimit -n"));
  const auto other = error_of(std::logic_error("a defect"), "cannot start");
  CHECK(other.code == errc::internal);
  CHECK(other.text == "cannot start: a defect");
  CHECK(has(way_out_of("While opening a file: No space left on device"), "inodes"));
}

} // namespace base_threads_test
