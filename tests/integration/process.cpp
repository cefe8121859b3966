#include "tests/integration/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe::test {

namespace {

struct pipe_ends {
  int read_end = -1;
  int write_end = -1;
};

pipe_ends make_pipe() {
  std::array<int, 2> ends{};
  check_call(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  return {ends[0], ends[1]};
}

/// A pair of descriptors where bytes written to one end are read at the other, as a terminal shows them.
pipe_ends make_terminal(unsigned short columns) {
  pipe_ends ends;
  ends.read_end = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  check_call(ends.read_end >= 0 && ::grantpt(ends.read_end) == 0 && ::unlockpt(ends.read_end) == 0, "posix_openpt");
  std::array<char, 64> name{};
  check_call(::ptsname_r(ends.read_end, name.data(), name.size()) == 0, "ptsname_r");
  ends.write_end = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const winsize size{24, columns, 0, 0};
  check_call(ends.write_end >= 0 && ::ioctl(ends.write_end, TIOCSWINSZ, &size) == 0, "open of a terminal");
  return ends;
}

/// The system call ends with EPERM in this process from now on, as with the profile of a container.
bool forbid(long call) {
  // The numbers of this program are those of the one that it starts: nothing else is run on the way.
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

#ifdef MADV_POPULATE_WRITE
constexpr std::uint32_t populate_advice = MADV_POPULATE_WRITE;
#else
constexpr std::uint32_t populate_advice = 23;
#endif

/// The system call ends with that error in this process from now on, where its third argument is that.
bool forbid(std::uint32_t call, std::uint32_t third_argument, std::uint32_t code) {
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      // The lower half of it.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third_argument, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Memory is not got ahead of its use, which is what an arena does.
bool forbid_page_memory() {
  return forbid(SYS_madvise, populate_advice, ENOMEM);
}

/// SO_PEERPIDFD is what kernels before 6.5 do not know.
bool forbid_pidfd_of_peers() {
  return forbid(SYS_getsockopt, 77, ENOPROTOOPT);
}

/// Between fork and exec: nothing but calls that are safe there, since another thread may hold any lock.
[[noreturn]] void run_child(const launch& what, char* const* arguments, int out, int err, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  if (!what.stdout_file.empty())
    out = ::open(what.stdout_file.c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (!what.directory.empty() && ::chdir(what.directory.c_str()) != 0)
    ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (what.file_size_limit) {
    const rlimit limit{*what.file_size_limit, *what.file_size_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (what.descriptor_limit) {
    const rlimit limit{*what.descriptor_limit, *what.descriptor_limit};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (what.without_io_uring && !forbid(SYS_io_uring_setup))
    ::_exit(127);
  if (what.forbidden_call && !forbid(*what.forbidden_call))
    ::_exit(127);
  if (what.without_page_memory && !forbid_page_memory())
    ::_exit(127);
  if (what.without_pidfd_of_peers && !forbid_pidfd_of_peers())
    ::_exit(127);
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

} // namespace

void check_call(bool fine, const char* what) {
  if (!fine)
    throw std::system_error(errno, std::generic_category(), what);
}

scratch_directory::scratch_directory() {
  auto name = (std::filesystem::temp_directory_path() / "troupe-integration-XXXXXX").string();
  check_call(::mkdtemp(name.data()) != nullptr, "mkdtemp");
  path_ = name;
}

scratch_directory::~scratch_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

process::process(const launch& what) {
  for (const auto& x : what.arguments)
    name_.append(name_.empty() ? "" : " ").append(x);
  std::vector<char*> words;
  for (const auto& x : what.arguments)
    words.push_back(const_cast<char*>(x.c_str()));
  words.push_back(nullptr);
  const auto out = make_pipe();
  const auto err = what.terminal_columns ? make_terminal(*what.terminal_columns) : make_pipe();
  err_is_left_ = what.unread_stderr;
  if (err_is_left_)
    ::fcntl(err.write_end, F_SETPIPE_SZ, 4096);
  wake_descriptor_ = ::eventfd(0, EFD_CLOEXEC);
  const auto parent = ::getpid();
  id_ = ::fork();
  if (id_ == 0)
    run_child(what, words.data(), out.write_end, err.write_end, parent);
  ::close(out.write_end);
  ::close(err.write_end);
  out_.descriptor = out.read_end;
  err_.descriptor = err.read_end;
  check_call(id_ >= 0, "fork");
  end_descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, id_, 0));
  check_call(end_descriptor_ >= 0, "pidfd_open");
  reader_ = std::thread([this] { read_all(); });
}

process::~process() {
  if (!ended())
    send(SIGKILL);
  reader_.join();
  for (const auto x : {out_.descriptor, err_.descriptor, end_descriptor_, wake_descriptor_})
    ::close(x);
}

void process::send(int signal_number) const {
  // Through the descriptor and not the number, which may be another's by now.
  ::syscall(SYS_pidfd_send_signal, end_descriptor_, signal_number, nullptr, 0);
}

void process::read_stderr() {
  {
    std::lock_guard guard(mutex_);
    err_is_left_ = false;
  }
  ::eventfd_write(wake_descriptor_, 1);
}

void process::kill() {
  send(SIGKILL);
  wait();
}

bool process::ended() const {
  std::lock_guard guard(mutex_);
  return status_.has_value();
}

void process::read_all() {
  bool running = true;
  while (running || out_.open || err_.open) {
    // A descriptor below zero is left out by poll.
    std::array<pollfd, 4> watched{{{out_.open ? out_.descriptor : -1, POLLIN, 0},
                                   {reads_err(running) ? err_.descriptor : -1, POLLIN, 0},
                                   {running ? end_descriptor_ : -1, POLLIN, 0},
                                   {reads_err(running) ? -1 : wake_descriptor_, POLLIN, 0}}};
    if (::poll(watched.data(), watched.size(), -1) < 0)
      continue;
    // In this order: after finding a line of stdout, a test finds earlier lines of stderr.
    if (watched[1].revents != 0)
      read_some(err_);
    if (watched[0].revents != 0)
      read_some(out_);
    if (watched[2].revents != 0)
      running = false;
  }
  take_status();
}

bool process::reads_err(bool running) const {
  std::lock_guard guard(mutex_);
  return err_.open && !(err_is_left_ && running);
}

void process::read_some(output& from) {
  std::array<char, 1U << 16U> buffer;
  const auto got = ::read(from.descriptor, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR)
    return;
  std::lock_guard guard(mutex_);
  if (got <= 0) {
    from.open = false;
    if (!from.unfinished.empty())
      from.lines.push_back(std::exchange(from.unfinished, {}));
  } else {
    for (const auto c : std::string_view(buffer.data(), static_cast<std::size_t>(got))) {
      if (c == '\n')
        from.lines.push_back(std::exchange(from.unfinished, {}));
      else
        from.unfinished.push_back(c);
    }
  }
  changed_.notify_all();
}

void process::take_status() {
  int status = 0;
  while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
  }
  std::lock_guard guard(mutex_);
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  changed_.notify_all();
}

int process::wait(std::chrono::milliseconds limit) {
  std::unique_lock guard(mutex_);
  if (!changed_.wait_for(guard, limit, [this] { return status_.has_value(); }))
    throw std::runtime_error("does not end: " + describe());
  return *status_;
}

std::string process::text(stream which) const {
  std::lock_guard guard(mutex_);
  if (!status_)
    throw std::logic_error("what it prints is asked for as a whole, and it may print more: " + describe());
  return joined(which);
}

std::string process::so_far(stream which) const {
  std::lock_guard guard(mutex_);
  return joined(which);
}

std::string process::joined(stream which) const {
  // The lock is held by the caller.
  std::string all;
  for (const auto& x : of(which).lines)
    all.append(x).append("\n");
  return all;
}

process::found_line process::wait_for_line(stream which, const std::function<bool(const std::string&)>& wanted,
                                           std::size_t from, std::chrono::milliseconds limit) const {
  std::unique_lock guard(mutex_);
  const auto& lines = of(which).lines;
  auto next = from;
  std::optional<std::size_t> found;
  const auto look = [&] {
    for (; !found && next < lines.size(); ++next)
      if (wanted(lines[next]))
        found = next;
    return found || status_;
  };
  changed_.wait_for(guard, limit, look);
  if (!found)
    throw std::runtime_error("the line did not come: " + describe());
  return {*found, lines[*found]};
}

process::found_line process::wait_for_line(stream which, std::string_view part, std::size_t from,
                                           std::chrono::milliseconds limit) const {
  try {
    return wait_for_line(
        which, [part](const std::string& line) { return line.find(part) != std::string::npos; }, from, limit);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error("'" + std::string(part) + "': " + e.what());
  }
}

std::string process::describe() const {
  // The lock is held by the caller.
  constexpr std::size_t most = 60;
  std::string text = "'" + name_ + "'";
  text += status_ ? " ended with " + std::to_string(*status_) : " is running";
  for (const auto which : {stream::out, stream::err}) {
    const auto& lines = of(which).lines;
    text += which == stream::out ? "\nstdout:\n" : "\nstderr:\n";
    for (std::size_t i = lines.size() > most ? lines.size() - most : 0; i < lines.size(); ++i)
      text.append("  ").append(lines[i]).append("\n");
  }
  return text;
}

} // namespace troupe::test
