#include "http/server/worker.hpp"

#include "http/server/transports.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

namespace troupe::http {

namespace asio = boost::asio;

namespace {

/// Often enough that no deadline is missed by more than an eighth of the time it bounds, or 250 ms.
duration check_interval(const config::http_limits& x) {
  const duration shortest = std::min({x.idle_time, x.receive_time, x.answer_time, x.write_time});
  return std::clamp<duration>(shortest / 8, std::chrono::milliseconds{1}, std::chrono::milliseconds{250});
}

} // namespace

// Only its own thread touches the sockets of a context, so they need no locks; posting stays safe from anywhere.
worker::worker(shared_state& shared)
    : shared_(shared), context_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO), work_(context_.get_executor()),
      timer_(context_.get_executor()), check_interval_(check_interval(shared.config.limits)),
      mailbox_(std::make_shared<mailbox>(*this)) {}

worker::~worker() {
  mailbox_->close();
}

void worker::run() noexcept {
  mailbox_->adopt_thread();
  for (;;) {
    try {
      context_.run();
      break;
    } catch (const std::exception& e) {
      // Only for want of memory: handlers' exceptions end in `call`. The connection ends when its time is up.
      shared_.log->error("serving goes on after an error: {}", e.what());
    }
  }
  mailbox_->close();
}

void worker::leave(const arrival& came) noexcept {
  load_.fetch_sub(1, std::memory_order_relaxed);
  if (came.is_reserve())
    return;
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  shared_.addresses.leave(came.from);
}

void worker::adopt(const arrival& came) {
  const auto id = ++last_id_;
  if (came.is_reserve() && reserve_.size() >= max_reserve) {
    // It may close, and so be forgotten, while it is looked at.
    const auto oldest = connections_.find(*reserve_.begin());
    const auto keep = oldest->second;
    keep->close();
  }
  std::shared_ptr<connection> x;
  try {
    const auto& tls = refreshed_credentials().tls;
    x = make_connection(*this, id, came, tls);
    connections_.emplace(id, x);
    if (came.is_reserve())
      reserve_.insert(id);
  } catch (const std::exception& e) {
    shared_.log->error("a connection could not be taken over: {}", e.what());
    connections_.erase(id);
    return leave(came);
  }
  if (shared_.watcher != nullptr) {
    if (came.is_reserve())
      shared_.watcher->connection_refused();
    else
      shared_.watcher->connection_opened();
  }
  schedule_check();
  x->start();
  if (is_draining_)
    x->drain();
}

void worker::forget(connection& x) noexcept {
  const auto came = x.came();
  const auto found = connections_.find(x.id());
  if (found == connections_.end())
    return;
  // The connection is in the middle of what made it close; whoever called it there holds on to it.
  const auto keep = std::move(found->second);
  connections_.erase(found);
  reserve_.erase(x.id());
  leave(came);
  if (!came.is_reserve() && shared_.watcher != nullptr)
    shared_.watcher->connection_closed();
  end_if_drained();
}

void worker::drain(timestamp deadline) {
  is_draining_ = true;
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
  if (!is_draining_ || !connections_.empty())
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

bool worker::take_at_once(late_answer& x) noexcept {
  if (handling_ != x.id || at_once_)
    return false;
  at_once_.emplace(std::move(x));
  return true;
}

void worker::wake() {
  asio::post(context_, [this] { deliver_answers(); });
}

void worker::deliver_answers() {
  arrived_.clear();
  mailbox_->fetch(arrived_);
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

std::optional<late_answer> worker::call(const route& r, const request& x, exchange_id id, std::string& thrown) {
  at_once_.reset();
  handling_ = id;
  try {
    r.handle(x, responder{mailbox_, id});
  } catch (const std::exception& e) {
    thrown = std::string{"exception: "} + e.what();
  } catch (...) {
    thrown = "exception of an unknown kind";
  }
  handling_.reset();
  return std::exchange(at_once_, std::nullopt);
}

const credential_set& worker::refreshed_credentials() {
  shared_.keys.refresh(credentials_);
  return credentials_;
}

std::string_view worker::date_header() {
  const auto now = std::time(nullptr);
  if (now != date_ || date_header_.empty()) {
    date_ = now;
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    constexpr std::array<const char*, 7> days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array<const char*, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    // The names are English whatever the locale says.
    date_header_ =
        fmt::format("Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", days[static_cast<std::size_t>(parts.tm_wday)],
                    parts.tm_mday, months[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                    parts.tm_min, parts.tm_sec);
  }
  return date_header_;
}

} // namespace troupe::http
