#include "io/tcp/tcp_peer.hpp"

#include "base/host_identity.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace troupe::io::tcp {

namespace {

timestamp current_time() {
  return std::chrono::steady_clock::now();
}

} // namespace

tcp_streams::tcp_streams(const stream_options& options, std::uint64_t memory_bytes, loss lost,
                         std::shared_ptr<connection_counts> counts)
    : memory_bytes_(memory_bytes), counts_(std::move(counts)), schedule_(options), lines_(options.streams),
      lost_(std::move(lost)) {}

void tcp_streams::open(const memory_place& place, const connection_token& token,
                       const std::vector<std::unique_ptr<tcp_loop>>& loops, std::size_t first_loop,
                       std::vector<host_address> own) {
  const auto count = static_cast<std::uint32_t>(lines_.size());
  const std::lock_guard guard(mutex_);
  place_ = place;
  token_ = token;
  own_ = std::move(own);
  turn_bytes_ = bytes_of_turn(count, static_cast<std::uint32_t>(loops.size()));
  for (std::uint32_t i = 0; i < count; ++i) {
    lines_[i].loop = loops[(first_loop + i) % loops.size()].get();
    connect({i, 0});
  }
}

void tcp_streams::connect(const stream_name& which) {
  auto& x = lines_[which.number];
  ++open_;
  x.connection = std::make_shared<tcp_connection>(target_of(which), which, static_cast<std::uint32_t>(lines_.size()),
                                                  turn_bytes_, shared_from_this());
  x.loop->post([loop = x.loop, connection = x.connection] {
    connection->connect();
    loop->serve(connection);
  });
}

connection_target tcp_streams::target_of(const stream_name& which) const {
  connection_target out{place_.of(which), place_.encrypted, token_};
  std::vector<host_address> near;
  std::ranges::copy_if(own_, std::back_inserter(near),
                       [&](const host_address& x) { return is_on_network_of(x, out.to.address); });
  if (!near.empty())
    out.from = near[(which.number + which.attempt) % near.size()];
  return out;
}

void tcp_streams::move(remote_direction direction, const std::vector<remote_move>& moves, remote_end end) {
  const auto kind = direction == remote_direction::put ? order_kind::put : order_kind::get;
  std::unique_lock lock(mutex_);
  if (failure_) {
    const auto why = *failure_;
    lock.unlock();
    return end(tl::unexpected<error>(why));
  }
  bool sound = true;
  for (const auto& x : moves)
    sound = sound && is_sound({kind, 0, x.there, x.here.size()}, memory_bytes_);
  if (!sound || moves.empty()) {
    lock.unlock();
    return end(sound ? result<void>() : fail(errc::out_of_range, "the range is outside the memory of the other end"));
  }
  const auto now = current_time();
  ends_.emplace(schedule_.add(direction, moves, now), std::move(end));
  // No connection ticks while nothing moves.
  schedule_.tick(now);
  pass_on(std::nullopt);
}

void tcp_streams::pass_on(std::optional<stream_number> self) {
  for (const auto i : schedule_.take_ready())
    if (i != self)
      lines_[i].loop->post([x = lines_[i].connection] { x->work(); });
  for (const auto i : schedule_.take_ended()) {
    auto& x = lines_[i];
    if (x.why.empty())
      x.why = "no bytes moved, while others to the same memory worked";
    const auto logger = log::get("remote");
    // Only now: where the whole peer is lost, its connections end one after another as well.
    if (x.open) {
      counts_->lost.fetch_add(1, std::memory_order_relaxed);
      logger->warn("connection for pages lost ({}); {} of {} to this memory are left and carry its pages until it is "
                   "opened again",
                   x.why, schedule_.working(), lines_.size());
    } else {
      logger->debug("connection for pages not opened again ({}); it is tried later", x.why);
    }
    x.loop->post([connection = x.connection, why = x.why] { connection->close({errc::unreachable, why}); });
  }
  for (const auto& which : schedule_.take_reopened()) {
    auto& x = lines_[which.number];
    x.why.clear();
    x.open = false;
    connect(which);
  }
}

std::vector<piece> tcp_streams::take(stream_number stream) {
  const std::lock_guard guard(mutex_);
  return failure_ ? std::vector<piece>{} : schedule_.take(stream);
}

void tcp_streams::on_open(stream_number stream) {
  const std::lock_guard guard(mutex_);
  auto& x = lines_[stream];
  if (failure_ || std::exchange(x.open, true))
    return;
  schedule_.on_open(stream, current_time());
  counts_->reopened.fetch_add(1, std::memory_order_relaxed);
  log::get("remote")->info("connection for pages opened again; {} of {} to this memory carry its pages",
                           schedule_.working(), lines_.size());
  pass_on(std::nullopt);
}

void tcp_streams::on_progress(stream_number stream, std::size_t bytes) {
  moved_.fetch_add(bytes, std::memory_order_relaxed);
  const std::lock_guard guard(mutex_);
  schedule_.on_progress(stream, current_time());
}

void tcp_streams::on_answered(stream_number stream) {
  remote_end end;
  {
    const std::lock_guard guard(mutex_);
    if (const auto batch = schedule_.on_answered(stream, current_time())) {
      auto ended = ends_.extract(*batch);
      end = std::move(ended.mapped());
    }
    if (!failure_)
      pass_on(stream);
  }
  if (end)
    end({});
}

void tcp_streams::on_tick() {
  const std::lock_guard guard(mutex_);
  if (failure_)
    return;
  schedule_.tick(current_time());
  pass_on(std::nullopt);
}

void tcp_streams::on_failed(stream_number stream, error why) {
  std::unique_lock lock(mutex_);
  --open_;
  schedule_.on_failed(stream, current_time());
  if (!failure_ && schedule_.is_lost()) {
    failure_ = why;
    close_all(why);
  } else if (!failure_) {
    lines_[stream].why = why.text;
    pass_on(std::nullopt);
  }
  finish_if_closed(lock);
}

void tcp_streams::close_all(const error& why) {
  for (const auto& x : lines_)
    x.loop->post([connection = x.connection, why] { connection->close(why); });
}

void tcp_streams::close(std::function<void()> closed) {
  std::unique_lock lock(mutex_);
  lost_ = nullptr;
  closed_ = std::move(closed);
  if (!failure_)
    failure_ = error{errc::unreachable, "closed"};
  if (open_ > 0)
    return close_all(*failure_);
  // By a thread of the transport, as in every other case.
  lines_.front().loop->post([self = shared_from_this()] {
    std::unique_lock again(self->mutex_);
    self->finish_if_closed(again);
  });
}

void tcp_streams::finish_if_closed(std::unique_lock<std::mutex>& lock) {
  if (open_ > 0 || !failure_)
    return;
  const auto ends = std::exchange(ends_, {});
  const auto lost = std::exchange(lost_, nullptr);
  const auto closed = std::exchange(closed_, nullptr);
  const auto why = *failure_;
  lock.unlock();
  for (const auto& [batch, end] : ends)
    end(tl::unexpected<error>(why));
  if (lost)
    lost(why);
  if (closed)
    closed();
}

} // namespace troupe::io::tcp
