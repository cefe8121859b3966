#pragma once

#include "io/engine/usrbio_options.hpp"
#include "tests/cannot.hpp"
#include "tests/usrbio/stand_in/layout.hpp"

#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace troupe::test {

/// A directory that is 3FS for the stand-in's library, with a daemon of its own.
class served_directory {
public:
  explicit served_directory(std::string daemon, std::string library)
      : daemon_(std::move(daemon)), library_(std::move(library)) {
    auto name = (std::filesystem::temp_directory_path() / "troupe-3fs-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      cannot("make a directory to be served");
    path_ = name;
    start();
    control_ = stand_in::map_control(path());
    if (control_ == nullptr)
      cannot("map the control file of the stand-in for 3FS");
  }
  served_directory(const served_directory&) = delete;
  served_directory& operator=(const served_directory&) = delete;
  ~served_directory() {
    if (process_ > 0) {
      ::kill(process_, SIGCONT);
      end(SIGTERM);
    }
    ::munmap(control_, sizeof(stand_in::control));
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  stand_in::control& control() { return *control_; }
  pid_t daemon() const { return process_; }

  io::usrbio_options options() const {
    io::usrbio_options out;
    out.library = library_;
    out.directory = path();
    return out;
  }

  /// As by `kill -9`.
  void kill() { end(SIGKILL); }

  void start() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0)
      cannot("make a pipe");
    process_ = ::fork();
    if (process_ < 0)
      cannot("make a process for the stand-in for 3FS");
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL); // however the test ends
      ::dup2(ends[1], STDOUT_FILENO);
      const auto where = path().string();
      ::execl(daemon_.c_str(), daemon_.c_str(), where.c_str(), nullptr);
      ::_exit(127);
    }
    char text[6] = {};
    ::close(ends[1]);
    for (std::size_t got = 0; got < sizeof text;) {
      const auto more = ::read(ends[0], text + got, sizeof text - got);
      if (more <= 0)
        cannot("start the stand-in for 3FS: its daemon ended before it was ready");
      got += static_cast<std::size_t>(more);
    }
    ::close(ends[0]);
  }

  void stop_running() const { ::kill(process_, SIGSTOP); }
  void run_on() const { ::kill(process_, SIGCONT); }

private:
  void end(int signal) {
    ::kill(process_, signal);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
  }

  std::filesystem::path path_;
  std::string daemon_;
  std::string library_;
  pid_t process_ = -1;
  stand_in::control* control_ = nullptr;
};

} // namespace troupe::test
