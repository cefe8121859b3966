#include "http/server/worker.hpp"

#include "http/server/transports.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

namespace troupe::http {

namespace asio = boost::asio;

namespace {

/// No deadline is missed by more than an eighth of the time it bounds, or 250 ms.
duration check_interval(const config::http_limits& x) {
  const duration shortest = std::min({x.idle_time, x.receive_time, x.answer_time, x.write_time});
  return std::clamp<duration>(shortest / 8, std::chrono::milliseconds{1}, std::chrono::milliseconds{250});
}

} // namespace

// Only its own thread uses the sockets of a context, so they need no locks; posting is safe from any thread.
worker::worker(shared_state& shared)
    : connection_context(shared), context_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO), work_(context_.get_executor()),
      timer_(context_.get_executor()), check_interval_(check_interval(shared.config.limits)) {}

worker::~worker() {
  answers().close();
}

void worker::run() noexcept {
  answers().adopt_thread();
  make_round();
  while (serve_round())
    end_round();
  leave_round();
  answers().close();
}

/// Waits for something to do, and does what there is. False after `drain`, when nothing is left.
bool worker::serve_round() {
  try {
    if (context_.run_one() == 0)
      return false;
    // Connections that are always ready do not delay those whose answers wait for the end of the round.
    while (context_.poll_one() > 0 && !round_is_late()) {
    }
  } catch (const std::exception& e) {
    // Only if memory is lacking: handlers' exceptions end in `call`. The connection ends at its deadline.
    shared().log->error("error while serving: {}; continuing", e.what());
  }
  return true;
}

void worker::leave(const arrival& came) noexcept {
  load_.fetch_sub(1, std::memory_order_relaxed);
  if (came.is_reserve())
    return;
  shared().connections.fetch_sub(1, std::memory_order_relaxed);
  shared().addresses.leave(came.from);
}

void worker::adopt(const arrival& came) {
  const auto id = ++last_id_;
  if (came.is_reserve() && reserve_.size() >= max_reserve) {
    // It may close, and so be erased, while it is checked.
    const auto oldest = connections_.find(*reserve_.begin());
    const auto keep = oldest->second;
    keep->close();
  }
  std::shared_ptr<connection> x;
  try {
    const auto& tls = refreshed_credentials().tls;
    x = make_connection(*this, context_, id, came, tls);
    connections_.emplace(id, x);
    if (came.is_reserve())
      reserve_.insert(id);
  } catch (const std::exception& e) {
    shared().log->error("cannot take over a connection: {}", e.what());
    connections_.erase(id);
    return leave(came);
  }
  if (shared().watcher != nullptr) {
    if (came.is_reserve())
      shared().watcher->connection_refused();
    else
      shared().watcher->connection_opened();
  }
  schedule_check();
  x->start();
  if (is_draining())
    x->drain();
}

void worker::forget(std::uint64_t id) noexcept {
  const auto found = connections_.find(id);
  if (found == connections_.end())
    return;
  const auto came = found->second->came();
  // The connection is still running the code that made it close; its caller there keeps it alive.
  const auto keep = std::move(found->second);
  connections_.erase(found);
  reserve_.erase(id);
  leave(came);
  if (!came.is_reserve() && shared().watcher != nullptr)
    shared().watcher->connection_closed();
  end_if_drained();
}

void worker::drain(timestamp deadline) {
  start_draining();
  drain_deadline_ = deadline;
  checked_.clear();
  for (const auto& [id, x] : connections_)
    checked_.push_back(x);
  for (const auto& x : checked_)
    x->drain();
  checked_.clear();
  is_check_scheduled_ = false;
  schedule_check();
  end_if_drained();
}

void worker::end_if_drained() {
  if (!is_draining() || !connections_.empty())
    return;
  work_.reset();
  timer_.cancel();
}

void worker::schedule_check() {
  if (is_check_scheduled_ || connections_.empty())
    return;
  is_check_scheduled_ = true;
  const auto now = std::chrono::steady_clock::now();
  timer_.expires_at(std::min(later(now, check_interval_), std::max(drain_deadline_, now)));
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (!ec)
      check_connections();
  });
}

void worker::check_connections() {
  is_check_scheduled_ = false;
  const auto now = std::chrono::steady_clock::now();
  checked_.clear();
  for (const auto& [id, x] : connections_)
    checked_.push_back(x);
  for (const auto& x : checked_) {
    if (now >= drain_deadline_)
      x->close();
    else
      x->check(now);
  }
  checked_.clear();
  schedule_check();
}

void worker::wake() {
  asio::post(context_, [this] { deliver_answers(); });
}

void worker::deliver_answers() {
  arrived_.clear();
  answers().fetch(arrived_);
  for (auto& x : arrived_) {
    const auto found = connections_.find(x.id.connection);
    if (found == connections_.end())
      continue;
    const auto keep = found->second;
    if (x.answer)
      keep->answer(x.id.number, std::move(*x.answer));
    else
      keep->drop(x.id.number);
  }
  arrived_.clear();
}

} // namespace troupe::http
