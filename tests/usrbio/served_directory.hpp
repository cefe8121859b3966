#pragma once

#include "io/engine.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/usrbio/stand_in/layout.hpp"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace troupe::test {

/// Writes zeroes where `make_file` leaves holes, which USRBIO does not read.
inline unique_descriptor make_written_file(const std::filesystem::path& path, std::uint64_t size) {
  auto made = make_file(path, size);
  const std::vector<std::byte> zeroes(size);
  if (::pwrite(made.get(), zeroes.data(), size, 0) != static_cast<ssize_t>(size))
    std::abort();
  return made;
}

/// A directory that is 3FS for the stand-in's library, with a daemon of its own.
class served_directory {
public:
  explicit served_directory(std::string daemon, std::string library)
      : daemon_(std::move(daemon)), library_(std::move(library)) {
    start();
    control_ = usrbio::map_control(path());
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
    ::munmap(control_, sizeof(usrbio::control));
  }

  const std::filesystem::path& path() const { return scratch_.path(); }
  usrbio::control& control() { return *control_; }
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
    auto ends = make_pipe();
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends.write_end.get(), STDOUT_FILENO);
      const auto where = path().string();
      ::execl(daemon_.c_str(), daemon_.c_str(), where.c_str(), nullptr);
      ::_exit(127);
    }
    char text[6] = {};
    ends.write_end.reset();
    for (std::size_t got = 0; got < sizeof text;) {
      const auto more = ::read(ends.read_end.get(), text + got, sizeof text - got);
      if (more <= 0)
        std::abort();
      got += static_cast<std::size_t>(more);
    }
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

  scratch_directory scratch_;
  std::string daemon_;
  std::string library_;
  pid_t process_ = -1;
  usrbio::control* control_ = nullptr;
};

/// Memory in a file of /dev/shm, which is the daemon's as it is.
class named_memory {
public:
  explicit named_memory(std::size_t size)
      : name_("/troupe-test-" + std::to_string(::getpid()) + "-" + std::to_string(next_++)), size_(size) {
    const unique_descriptor made(::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!made || ::ftruncate(made.get(), static_cast<off_t>(size)) != 0)
      std::abort();
    data_ = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.get(), 0));
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
