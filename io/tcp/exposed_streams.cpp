#include "io/tcp/exposed_streams.hpp"

#include <algorithm>
#include <sys/socket.h>
#include <utility>

namespace troupe::io::tcp {

served_stream* exposed_streams::join(const hello& words, tcp_stream stream) {
  const std::lock_guard guard(mutex_);
  if (stopping_ || words.streams == 0 || words.streams > most_ || words.stream >= words.streams)
    return nullptr;
  if (places_.empty())
    places_.resize(words.streams);
  if (places_.size() != words.streams)
    return nullptr;
  auto& x = places_[words.stream];
  const bool is_next = words.attempt > x.attempt && x.over;
  const bool is_awaited = words.attempt == x.attempt && !x.stream && !x.over;
  if (!is_next && !is_awaited)
    return nullptr;
  x.attempt = words.attempt;
  x.over = false;
  x.stream = std::make_unique<served_stream>();
  x.stream->stream = std::move(stream);
  x.stream->number = words.stream;
  return x.stream.get();
}

bool exposed_streams::all_have_come() const {
  const std::lock_guard guard(mutex_);
  return !places_.empty() && std::ranges::all_of(places_, [](const place& x) { return x.stream || x.over; });
}

std::size_t exposed_streams::count() const {
  const std::lock_guard guard(mutex_);
  return places_.size();
}

void exposed_streams::leave(served_stream& x) {
  const std::lock_guard guard(mutex_);
  x.stream = {};
  places_[x.number].over = true;
  changed_.notify_all();
}

void exposed_streams::end_one(place& x) {
  if (!x.stream) {
    x.over = true;
  } else if (!x.over) {
    x.stream->ending = true;
    // Wakes its thread; `leave` closes the descriptor, under the lock.
    static_cast<void>(::shutdown(x.stream->stream.descriptor(), SHUT_RDWR));
  }
}

bool exposed_streams::end(const served_stream& by, const stream_name& which) {
  std::unique_lock lock(mutex_);
  if (which.number >= places_.size() || which.number == by.number)
    return false;
  auto& x = places_[which.number];
  // A later one comes only when this one has ended.
  if (which.attempt < x.attempt)
    return true;
  end_one(x);
  changed_.notify_all();
  changed_.wait(lock, [&] { return x.over || by.is_ending(); });
  if (x.over)
    x.attempt = std::max(x.attempt, which.attempt);
  return !by.is_ending();
}

void exposed_streams::stop() {
  const std::lock_guard guard(mutex_);
  stopping_ = true;
  for (auto& x : places_)
    end_one(x);
  changed_.notify_all();
}

} // namespace troupe::io::tcp
