#include "base/line_writer.hpp"

#include "base/threads.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <limits.h>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

/// The interval of checks for a stop while the descriptor is not writable.
constexpr int poll_milliseconds = 50;

/// After a successful poll a pipe accepts this much; a larger write could block.
constexpr std::size_t piece_bytes = PIPE_BUF;

} // namespace

/// State shared with the thread, which may outlive the writer when it hangs in the kernel.
struct line_writer::state {
  state(int to, line_writer_limits most, notice make)
      : descriptor(to), limits(most), make_notice(std::move(make)), process(::getpid()) {}

  void run() {
    std::unique_lock guard(mutex);
    for (;;) {
      changed.wait(guard, [this] { return stopping || !waiting.empty(); });
      if (waiting.empty())
        break;
      const auto missing = std::exchange(suppressed, 0);
      const auto line = std::move(waiting.front());
      waiting.pop_front();
      bytes -= line.size();
      guard.unlock();
      auto notified = true;
      if (missing > 0)
        notified = put(make_notice(missing));
      const auto written = notified && put(line);
      guard.lock();
      if (!notified)
        suppressed += missing;
      if (!written)
        drop_one();
      ++done;
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }

  /// Returns false when the text cannot be written, or not before the writer's end.
  bool put(std::string_view text) {
    while (!text.empty()) {
      if (abandoned.load(std::memory_order_relaxed))
        return false;
      pollfd watched{descriptor, POLLOUT, 0};
      if (::poll(&watched, 1, poll_milliseconds) <= 0)
        continue;
      const auto n = ::write(descriptor, text.data(), std::min(text.size(), piece_bytes));
      if (n < 0 && errno != EINTR && errno != EAGAIN)
        return false;
      if (n > 0)
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  /// Without a thread: writes as much as the descriptor accepts without blocking, under the lock.
  void write_now(std::string_view line) {
    auto text = suppressed > 0 ? make_notice(suppressed) : std::string();
    text.append(line);
    ++done;
    for (std::string_view left = text; !left.empty();) {
      pollfd watched{descriptor, POLLOUT, 0};
      const bool takes = ::poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) != 0;
      const auto n = takes ? ::write(descriptor, left.data(), std::min(left.size(), piece_bytes)) : -1;
      if (n < 0)
        return drop_one();
      left.remove_prefix(static_cast<std::size_t>(n));
    }
    suppressed = 0;
  }

  void drop_one() {
    ++dropped;
    ++suppressed;
  }

  const int descriptor;
  const line_writer_limits limits;
  const notice make_notice;
  /// The process that owns the thread.
  const pid_t process;
  /// The destructor no longer waits for lines.
  std::atomic<bool> abandoned{false};

  std::mutex mutex; // guards the rest
  std::condition_variable changed;
  std::deque<std::string> waiting;
  std::size_t bytes = 0;
  /// Lines accepted, and lines finished: written or dropped.
  std::uint64_t taken = 0;
  std::uint64_t done = 0;
  std::uint64_t dropped = 0;
  /// Lines that were dropped and are not reported yet.
  std::uint64_t suppressed = 0;
  bool stopping = false;
  bool ended = false;
  /// No thread could be started yet.
  bool no_thread = false;
};

namespace {

/// Returns false where no thread can be started. The thread blocks all signals, and SIGPIPE is discarded.
template <class F>
bool start_detached(F f) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread(std::move(f)).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

} // namespace

line_writer::line_writer(int descriptor, line_writer_limits limits, notice make_notice)
    : state_(std::make_shared<state>(descriptor, limits, std::move(make_notice))) {
  state_->no_thread = !start_detached(named(thread_name("troupe-log"), [x = state_] { x->run(); }));
}

line_writer::~line_writer() {
  if (state_->process != ::getpid())
    return;
  flush(stop_patience);
  std::unique_lock guard(state_->mutex);
  state_->ended = state_->ended || state_->no_thread;
  state_->stopping = true;
  state_->abandoned = true;
  state_->changed.notify_all();
  // A thread that waits in poll notices it soon. One that hangs in write, since another writer filled the pipe between
  // poll and write, keeps the state.
  state_->changed.wait_for(guard, stop_patience, [this] { return state_->ended; });
}

void line_writer::write(std::string_view line) {
  auto& x = *state_;
  if (x.process != ::getpid())
    return; // the mutex may have been held when the process was forked
  const std::lock_guard guard(x.mutex);
  ++x.taken;
  if (x.stopping || x.ended) {
    ++x.done;
    x.drop_one();
    return;
  }
  if (x.no_thread) {
    x.no_thread = !start_detached([shared = state_] { shared->run(); });
    if (x.no_thread)
      return x.write_now(line);
  }
  x.waiting.emplace_back(line);
  x.bytes += line.size();
  while (x.waiting.size() > x.limits.lines || x.bytes > x.limits.bytes) {
    x.bytes -= x.waiting.front().size();
    x.waiting.pop_front();
    ++x.done;
    x.drop_one();
  }
  x.changed.notify_all();
}

bool line_writer::flush(std::chrono::milliseconds limit) {
  auto& x = *state_;
  if (x.process != ::getpid())
    return true;
  std::unique_lock guard(x.mutex);
  const auto until = x.taken;
  return x.changed.wait_for(guard, limit, [&] { return x.ended || x.done >= until; });
}

std::uint64_t line_writer::dropped() const {
  if (state_->process != ::getpid())
    return 0;
  const std::lock_guard guard(state_->mutex);
  return state_->dropped;
}

} // namespace troupe
