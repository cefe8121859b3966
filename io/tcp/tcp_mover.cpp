#include "base/event_signal.hpp"
#include "base/threads.hpp"
#include "io/tcp/tcp_connection.hpp"
#include "io/tcp/tcp_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <thread>
#include <utility>

namespace troupe::io {

namespace {

using tcp::tcp_connection;

/// A thread that serves connections, and sleeps while it has no work.
class tcp_loop {
public:
  explicit tcp_loop(unique_descriptor wake)
      : wake_(std::move(wake)), thread_(named(thread_name("troupe-mover"), [this] { run(); })) {}
  tcp_loop(const tcp_loop&) = delete;
  tcp_loop& operator=(const tcp_loop&) = delete;
  ~tcp_loop() {
    post([this] { stopping_ = true; });
    thread_.join();
  }

  /// Runs `what` on the thread, in the order of the calls.
  void post(std::function<void()> what) {
    {
      const std::lock_guard guard(mutex_);
      queue_.push_back(std::move(what));
    }
    signal_event(wake_.get());
  }

  /// Serves `x` until it has no connection any more. Called on the thread.
  void serve(std::shared_ptr<tcp_connection> x) { connections_.push_back(std::move(x)); }

private:
  void run() {
    tcp::block_broken_pipes();
    while (!stopping_ || !connections_.empty()) {
      run_queue();
      // Connections that are still open end here, so that their callers do not wait.
      if (stopping_)
        for (const auto& x : connections_)
          x->close([] {});
      std::erase_if(connections_, [](const auto& x) { return x->descriptor() < 0; });
      std::vector<pollfd> what{{wake_.get(), POLLIN, 0}};
      for (const auto& x : connections_)
        what.push_back({x->descriptor(), x->events(), 0});
      if (stopping_ && connections_.empty())
        break;
      const bool more =
          std::any_of(connections_.begin(), connections_.end(), [](const auto& x) { return x->has_more(); });
      static_cast<void>(::poll(what.data(), what.size(), more ? 0 : -1));
      if (what[0].revents != 0)
        clear_event(wake_.get());
      for (std::size_t i = 1; i < what.size(); ++i)
        if (what[i].revents != 0 || connections_[i - 1]->has_more())
          connections_[i - 1]->on_ready();
    }
    run_queue();
  }

  void run_queue() {
    std::vector<std::function<void()>> todo;
    {
      const std::lock_guard guard(mutex_);
      todo.swap(queue_);
    }
    for (const auto& x : todo)
      x();
  }

  unique_descriptor wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> queue_;
  // The members below belong to the thread.
  bool stopping_ = false;
  std::vector<std::shared_ptr<tcp_connection>> connections_;
  std::thread thread_;
};

class tcp_peer final : public remote_peer {
public:
  tcp_peer(tcp_loop& loop, const remote_memory_name& name, std::function<void(const error&)> lost)
      : loop_(loop), connection_(std::make_shared<tcp_connection>(name, std::move(lost))) {
    loop_.post([&loop, x = connection_] {
      x->connect();
      loop.serve(x);
    });
  }
  ~tcp_peer() override {
    loop_.post([x = std::move(connection_)] { x->close([] {}); });
  }

  void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) override {
    loop_.post([x = connection_, direction, moves = std::move(moves), end = std::move(end)] {
      x->move(direction, moves, end);
    });
  }

  std::uint64_t progress() const noexcept override { return connection_->moved(); }

  void close(std::function<void()> closed) override {
    loop_.post([x = connection_, closed = std::move(closed)] { x->close(closed); });
  }

private:
  tcp_loop& loop_;
  std::shared_ptr<tcp_connection> connection_;
};

class tcp_mover final : public remote_mover {
public:
  explicit tcp_mover(bool encrypted) : encrypted_(encrypted) {}

  result<void> open(unsigned threads) {
    for (unsigned i = 0; i < std::max(threads, 1U); ++i) {
      unique_descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!wake)
        return tl::unexpected<error>(system_error(errno, "cannot create an event descriptor"));
      try {
        loops_.push_back(std::make_unique<tcp_loop>(std::move(wake)));
      } catch (const std::system_error& e) {
        return tl::unexpected<error>(no_thread("the thread that moves pages between hosts", e.code().value()));
      }
    }
    return {};
  }

  result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                               std::function<void(const error&)> lost) override {
    if (!tcp::names_tcp_memory(name))
      return fail(errc::invalid_argument, "this is not a name of memory over TCP: node and client are configured for "
                                          "different transports (remote.transport)");
    if (encrypted_ && !tcp::is_encrypted(name))
      return fail(errc::unsupported, "this node requires encryption, and the client has none: set remote.encrypt "
                                     "for the client");
    auto& loop = *loops_[next_++ % loops_.size()];
    return std::make_shared<tcp_peer>(loop, name, std::move(lost));
  }

private:
  bool encrypted_;
  std::vector<std::unique_ptr<tcp_loop>> loops_;
  std::atomic<unsigned> next_ = 0;
};

} // namespace

result<std::shared_ptr<remote_mover>> make_tcp_mover(unsigned threads, bool encrypted) {
  const auto out = std::make_shared<tcp_mover>(encrypted);
  if (auto opened = out->open(threads); !opened)
    return tl::unexpected<error>(std::move(opened.error()));
  return out;
}

} // namespace troupe::io
