#include "base/line_writer.hpp"
#include "tests/catch.hpp"

#include <array>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace base_line_writer_test {

using namespace troupe;

namespace {

constexpr std::chrono::seconds patience{60};
/// A time in which a writer that can continue does so, for checks that it cannot.
constexpr std::chrono::milliseconds moment{20};

std::string notice(std::uint64_t dropped) {
  return "dropped " + std::to_string(dropped) + "\n";
}

/// A pipe as small as they come.
class small_pipe {
public:
  small_pipe() {
    REQUIRE(::pipe2(ends_.data(), O_CLOEXEC) == 0);
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  small_pipe(const small_pipe&) = delete;
  small_pipe& operator=(const small_pipe&) = delete;
  ~small_pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int in() const noexcept { return ends_[1]; }

  /// Closes the reading end.
  void break_it() { ::close(std::exchange(ends_[0], -1)); }

  /// Until the pipe can take no byte.
  void fill() const {
    const int flags = ::fcntl(ends_[1], F_GETFL);
    ::fcntl(ends_[1], F_SETFL, flags | O_NONBLOCK);
    const std::string dots(512, '.');
    while (::write(ends_[1], dots.data(), dots.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, flags);
  }

  /// Reads whole lines until one is `last`. Dots of `fill` are left out.
  std::vector<std::string> read_until(const std::string& last) const {
    std::vector<std::string> out;
    std::string line;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1;) {
      if (c == '.')
        continue;
      if (c != '\n') {
        line.push_back(c);
        continue;
      }
      out.push_back(std::exchange(line, {}));
      if (out.back() == last)
        break;
    }
    return out;
  }

private:
  std::array<int, 2> ends_{};
};

} // namespace

TEST_CASE("line writer: lines are written in order", "[base][log]") {
  small_pipe pipe;
  line_writer writer(pipe.in(), {}, notice);
  for (int i = 0; i < 3; ++i)
    writer.write(std::to_string(i) + "\n");
  CHECK(pipe.read_until("2") == std::vector<std::string>{"0", "1", "2"});
  CHECK(writer.flush(patience));
  CHECK(writer.dropped() == 0);
}

TEST_CASE("line writer: a line longer than the pipe buffer is written whole", "[base][log]") {
  small_pipe pipe;
  line_writer writer(pipe.in(), {}, notice);
  const std::string line(100'000, 'x');
  writer.write(line + "\n");
  writer.write("end\n");
  CHECK(pipe.read_until("end") == std::vector<std::string>{line, "end"});
}

TEST_CASE("line writer: writing does not block without a reader: the oldest lines are dropped and counted in a notice",
          "[base][log]") {
  small_pipe pipe;
  pipe.fill();
  line_writer writer(pipe.in(), {.lines = 10, .bytes = 1U << 20U}, notice);
  constexpr int written = 1000;
  for (int i = 0; i < written; ++i)
    writer.write(std::to_string(i) + "\n");
  CHECK_FALSE(writer.flush(moment));
  // One line may be with the thread, which waits to write it; ten wait behind it.
  const auto dropped = writer.dropped();
  CHECK(dropped >= written - 11);
  CHECK(dropped <= written - 10);

  std::uint64_t notified = 0;
  std::vector<int> lines;
  for (const auto& x : pipe.read_until("999")) {
    if (x.starts_with("dropped "))
      notified += std::stoull(x.substr(8));
    else
      lines.push_back(std::stoi(x));
  }
  CHECK(writer.flush(patience));
  CHECK(writer.dropped() == dropped);
  CHECK(notified == dropped);
  REQUIRE(lines.size() == written - dropped);
  for (std::size_t i = 0; i < 10; ++i)
    CHECK(lines[lines.size() - 10 + i] == written - 10 + static_cast<int>(i));
}

TEST_CASE("line writer: the queue is limited in bytes too", "[base][log]") {
  small_pipe pipe;
  pipe.fill();
  line_writer writer(pipe.in(), {.lines = 1000, .bytes = 1000}, notice);
  for (int i = 0; i < 20; ++i)
    writer.write(std::string(99, 'y').append(1, '\n'));
  CHECK(writer.dropped() >= 9);
  CHECK(writer.dropped() <= 10);
}

TEST_CASE("line writer: a writer whose reader hangs still ends and counts the lines it did not write", "[base][log]") {
  small_pipe pipe;
  pipe.fill();
  {
    line_writer writer(pipe.in(), {}, notice);
    writer.write("never read\n");
    CHECK_FALSE(writer.flush(moment));
  }
  SUCCEED("the destructor came back");
}

TEST_CASE("line writer: the writer survives a closed reader: lines are dropped and counted", "[base][log]") {
  small_pipe pipe;
  pipe.break_it();
  line_writer writer(pipe.in(), {}, notice);
  for (int i = 0; i < 5; ++i)
    writer.write("lost\n");
  CHECK(writer.flush(patience));
  CHECK(writer.dropped() == 5);
}

TEST_CASE("line writer: lines of concurrent threads stay whole", "[base][log]") {
  small_pipe pipe;
  constexpr int threads = 4;
  constexpr int each = 500;
  std::vector<std::string> lines;
  {
    line_writer writer(pipe.in(), {}, notice);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&writer, t] {
        for (int i = 0; i < each; ++i)
          writer.write("thread " + std::to_string(t) + " line " + std::to_string(i) + "\n");
      });
    std::thread last([&] {
      for (auto& x : running)
        x.join();
      writer.write("end\n");
    });
    lines = pipe.read_until("end");
    last.join();
    CHECK(writer.dropped() == 0);
  }
  CHECK(lines.size() == threads * each + 1);
  std::vector<int> next(threads, 0);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    int thread = -1;
    int line = -1;
    REQUIRE(std::sscanf(lines[i].c_str(), "thread %d line %d", &thread, &line) == 2);
    REQUIRE(thread >= 0);
    REQUIRE(thread < threads);
    CHECK(line == next[static_cast<std::size_t>(thread)]++);
  }
}

TEST_CASE("line writer: a forked child neither waits for the missing writer thread nor writes the lines of the parent",
          "[base][log]") {
  small_pipe pipe;
  pipe.fill();
  line_writer writer(pipe.in(), {}, notice);
  writer.write("of the parent\n");
  const auto child = ::fork();
  if (child == 0) {
    writer.write("of the child\n");
    ::_exit(writer.flush(patience) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(pipe.read_until("of the parent") == std::vector<std::string>{"of the parent"});
}

} // namespace base_line_writer_test
