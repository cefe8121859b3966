#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace troupe::test {

/// Long enough for a loaded machine and a sanitizer; a test that is right never waits that long.
inline constexpr std::chrono::seconds patience{60};

/// Throws std::system_error with errno unless the call was fine.
void check_call(bool fine, const char* what);

/// A directory of its own that goes with the object.
class scratch_directory {
public:
  scratch_directory();
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

/// The program to start, and its restrictions.
struct launch {
  std::vector<std::string> arguments;
  /// Where; not set: where the test runs.
  std::filesystem::path directory;
  /// As in a container that forbids io_uring: its system calls end with EPERM.
  bool without_io_uring = false;
  /// As on a host that has no memory for pages: what the arena asks for is refused.
  bool without_page_memory = false;
  /// As on Linux before 6.5: a socket does not say which process is at its other end but by number.
  bool without_pidfd_of_peers = false;
  /// Another system call that does.
  std::optional<long> forbidden_call{};
  /// RLIMIT_FSIZE: no file can become longer.
  std::optional<std::uint64_t> file_size_limit;
  /// Its stderr is a small pipe that is not read until `process::read_stderr`.
  bool unread_stderr = false;
  /// Its stderr is a terminal of so many columns.
  std::optional<unsigned short> terminal_columns;
  /// The file that its stdout goes to instead of being read here.
  std::filesystem::path stdout_file;
  /// RLIMIT_NOFILE.
  std::optional<std::uint64_t> descriptor_limit;
};

/// A running program. What it prints is read all the time, so that it never waits for a reader. Ends with this object,
/// at the latest: by SIGKILL, also when the test program dies first.
class process {
public:
  enum class stream : std::uint8_t { out, err };

  /// Throws std::system_error where the program cannot be started.
  explicit process(const launch& what);
  process(process&&) = delete;
  ~process();

  pid_t id() const noexcept { return id_; }

  void send(int signal_number) const;

  /// Begins to read the unread output.
  void read_stderr();

  /// Waits for the end. The exit status, or minus the signal that ended it. Throws with what the program has printed
  /// when it has not ended by then.
  int wait(std::chrono::milliseconds limit = patience);

  /// Kills it with SIGKILL and waits.
  void kill();

  /// Whether it has ended.
  bool ended() const;

  /// All it has printed, the lines joined again. Only of a program that has ended: what one prints that runs may be on
  /// its way at any moment, so nothing is to be expected in it. Throws std::logic_error while it runs; `wait_for_line`
  /// is for that.
  std::string text(stream which) const;

  /// The output until now, for the report of a failed test.
  std::string so_far(stream which) const;

  /// A line and where it stands.
  struct found_line {
    std::size_t index = 0;
    std::string text;
  };

  /// The first line from line `from` on that `wanted` accepts, waiting for it. Throws with the program's output when it
  /// ends without such a line, or at the deadline.
  found_line wait_for_line(stream which, const std::function<bool(const std::string&)>& wanted, std::size_t from = 0,
                           std::chrono::milliseconds limit = patience) const;

  /// The same, for a line that contains `part`.
  found_line wait_for_line(stream which, std::string_view part, std::size_t from = 0,
                           std::chrono::milliseconds limit = patience) const;

private:
  struct output {
    int descriptor = -1;
    std::string unfinished;
    std::vector<std::string> lines;
    bool open = true;
  };

  void read_all();
  bool reads_err(bool running) const;
  void read_some(output& from);
  void take_status();
  output& of(stream which) { return which == stream::out ? out_ : err_; }
  const output& of(stream which) const { return which == stream::out ? out_ : err_; }
  std::string describe() const;
  std::string joined(stream which) const;

  pid_t id_ = -1;
  int end_descriptor_ = -1;
  int wake_descriptor_ = -1;
  std::string name_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  output out_;
  output err_;
  bool err_is_left_ = false;
  /// When it has ended and all its output has been read.
  std::optional<int> status_;
  std::thread reader_;
};

} // namespace troupe::test
