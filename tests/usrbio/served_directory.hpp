#pragma once

#include "io/usrbio/options.hpp"
#include "tests/usrbio/stand_in/layout.hpp"

#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <span>
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
    path_ = ::mkdtemp(name.data());
    start();
    control_ = stand_in::map_control(path());
    if (control_ == nullptr)
      std::abort();
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
      std::abort();
    process_ = ::fork();
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
        std::abort();
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

/// Memory in a file of /dev/shm, which is the daemon's as it is.
class named_memory {
public:
  explicit named_memory(std::size_t size)
      : name_("/troupe-test-" + std::to_string(::getpid()) + "-" + std::to_string(next_++)), size_(size) {
    const int made = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0 || ::ftruncate(made, static_cast<off_t>(size)) != 0)
      std::abort();
    data_ = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0));
    ::close(made);
  }
  named_memory(const named_memory&) = delete;
  named_memory& operator=(const named_memory&) = delete;
  ~named_memory() {
    ::munmap(data_, size_);
    ::shm_unlink(name_.c_str());
  }

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }
  std::string path() const { return "/dev/shm" + name_; }

private:
  static inline int next_ = 0;

  std::string name_;
  std::size_t size_;
  std::byte* data_ = nullptr;
};

} // namespace troupe::test
