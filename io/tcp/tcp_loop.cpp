#include "io/tcp/tcp_loop.hpp"

#include "base/event_signal.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <poll.h>
#include <utility>

namespace troupe::io::tcp {

namespace {

constexpr auto tick_pause = std::chrono::milliseconds(100);

} // namespace

tcp_loop::tcp_loop(unique_descriptor wake)
    : wake_(std::move(wake)), thread_(named(thread_name("troupe-mover"), [this] { run(); })) {}

tcp_loop::~tcp_loop() {
  if (!thread_.joinable())
    return;
  stop();
  join();
}

void tcp_loop::stop() {
  post([this] { stopping_ = true; });
}

void tcp_loop::join() {
  thread_.join();
}

void tcp_loop::post(std::function<void()> what) {
  {
    const std::lock_guard guard(mutex_);
    queue_.push_back(std::move(what));
  }
  signal_event(wake_.get());
}

void tcp_loop::run() {
  block_broken_pipes();
  while (!stopping_ || !connections_.empty()) {
    run_queue();
    // Connections that are still open end here, so that their callers do not wait.
    if (stopping_)
      for (const auto& x : connections_)
        x->close({errc::unreachable, "closed"});
    std::erase_if(connections_, [](const auto& x) { return x->descriptor() < 0; });
    std::vector<pollfd> what{{wake_.get(), POLLIN, 0}};
    for (const auto& x : connections_)
      what.push_back({x->descriptor(), x->events(), 0});
    if (stopping_ && connections_.empty())
      break;
    const bool has_more = std::ranges::any_of(connections_, [](const auto& x) { return x->has_more(); });
    const bool is_busy = std::ranges::any_of(connections_, [](const auto& x) { return x->is_busy(); });
    if (::poll(what.data(), what.size(), has_more ? 0 : is_busy ? static_cast<int>(tick_pause.count()) : -1) < 0)
      for (auto& x : what)
        x.revents = 0;
    if (what[0].revents != 0)
      clear_event(wake_.get());
    for (std::size_t i = 1; i < what.size(); ++i)
      if (what[i].revents != 0 || connections_[i - 1]->has_more())
        connections_[i - 1]->on_ready();
    if (is_busy)
      tick();
  }
  run_queue();
}

void tcp_loop::tick() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_tick_)
    return;
  next_tick_ = now + tick_pause;
  for (const auto& x : connections_)
    if (x->is_busy())
      x->on_tick();
}

void tcp_loop::run_queue() {
  std::vector<std::function<void()>> todo;
  {
    const std::lock_guard guard(mutex_);
    todo.swap(queue_);
  }
  for (const auto& x : todo)
    x();
}

} // namespace troupe::io::tcp
