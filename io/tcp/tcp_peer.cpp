#include "io/tcp/tcp_peer.hpp"

#include "base/log.hpp"

#include <chrono>
#include <utility>

namespace troupe::io::tcp {

namespace {

timestamp current_time() {
  return std::chrono::steady_clock::now();
}

} // namespace

tcp_streams::tcp_streams(const stream_options& options, std::uint64_t memory_bytes, loss lost)
    : memory_bytes_(memory_bytes), schedule_(options), lines_(options.streams), lost_(std::move(lost)) {}

void tcp_streams::open(const remote_memory_name& name, const std::vector<std::unique_ptr<tcp_loop>>& loops,
                       std::size_t first_loop) {
  const auto count = static_cast<std::uint32_t>(lines_.size());
  const auto turn = bytes_of_turn(count, static_cast<std::uint32_t>(loops.size()));
  const std::lock_guard guard(mutex_);
  open_ = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto& x = lines_[i];
    x.loop = loops[(first_loop + i) % loops.size()].get();
    x.connection = std::make_shared<tcp_connection>(name, i, count, turn, shared_from_this());
    x.loop->post([loop = x.loop, connection = x.connection] {
      connection->connect();
      loop->serve(connection);
    });
  }
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
  ends_.emplace(schedule_.add(direction, moves, current_time()), std::move(end));
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
    // Only now: where the whole peer is lost, its connections end one after another as well.
    log::get("remote")->warn("a connection for pages has ended ({}); {} of {} to this memory are left, and carry its "
                             "pages",
                             x.why, schedule_.working(), lines_.size());
    x.loop->post([connection = x.connection, why = x.why] { connection->close({errc::unreachable, why}); });
  }
}

std::vector<piece> tcp_streams::take(stream_number stream) {
  const std::lock_guard guard(mutex_);
  return failure_ ? std::vector<piece>{} : schedule_.take(stream);
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
