#include "io/tcp/stream_schedule.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::io::tcp {

stream_schedule::stream_schedule(const stream_options& options)
    : options_(options), streams_(std::max(options.streams, 1U)), working_(std::max(options.streams, 1U)),
      ready_(streams_.size()) {
  // A single stream has nothing to share: whole moves, and all of them at once.
  if (streams_.size() == 1)
    options_.piece_bytes = options_.window_bytes = ~std::uint64_t{0};
  options_.piece_bytes = std::max<std::uint64_t>(options_.piece_bytes, 1);
  for (auto& x : streams_)
    x.pause = options_.reopen;
}

batch_number stream_schedule::add(remote_direction direction, const std::vector<remote_move>& moves, timestamp now) {
  const auto number = ++last_batch_;
  const auto kind = direction == remote_direction::put ? order_kind::put : order_kind::get;
  std::size_t pieces = 0;
  for (const auto& x : moves) {
    const std::uint64_t parts = x.here.size() / options_.piece_bytes + (x.here.size() % options_.piece_bytes != 0);
    const auto share = parts == 0 ? 0 : (x.here.size() + parts - 1) / parts;
    for (std::uint64_t at = 0; at < x.here.size(); at += share, ++pieces)
      waiting_.push_back(
          {kind, x.there + at, x.here.subspan(at, std::min<std::uint64_t>(share, x.here.size() - at)), number});
  }
  batches_.emplace(number, pieces);
  distribute(now);
  return number;
}

std::vector<piece> stream_schedule::take(stream_number which) {
  auto& x = streams_[which];
  const auto first = x.pieces.begin() + static_cast<std::ptrdiff_t>(x.taken);
  std::vector<piece> out(first, x.pieces.end());
  x.taken = x.pieces.size();
  ready_[which] = false;
  return out;
}

std::vector<stream_number> stream_schedule::take_ready() {
  std::vector<stream_number> out;
  for (stream_number i = 0; i < ready_.size(); ++i)
    if (ready_[i]) {
      out.push_back(i);
      ready_[i] = false;
    }
  return out;
}

std::optional<batch_number> stream_schedule::on_piece_done(const piece& done, timestamp now) {
  if (done.kind == order_kind::end_stream) {
    const auto which = stream_name::of_offset(done.offset);
    auto& other = streams_[which.number];
    other.confirmed = true;
    if (other.failed)
      on_over(other, now);
    ended_.push_back(which.number);
    distribute(now);
    return std::nullopt;
  }
  const auto batch = batches_.find(done.batch);
  if (batch == batches_.end() || --batch->second > 0)
    return std::nullopt;
  batches_.erase(batch);
  return done.batch;
}

std::optional<batch_number> stream_schedule::on_answered(stream_number which, timestamp now) {
  auto& x = streams_[which];
  if (x.pieces.empty() || x.taken == 0)
    return std::nullopt;
  const auto done = x.pieces.front();
  x.pieces.pop_front();
  --x.taken;
  x.bytes -= bytes_of(done);
  x.last_progress = now;
  x.pause = options_.reopen;
  const auto out = on_piece_done(done, now);
  distribute(now);
  return out;
}

void stream_schedule::on_progress(stream_number which, timestamp now) {
  streams_[which].last_progress = now;
}

void stream_schedule::on_failed(stream_number which, timestamp now) {
  auto& x = streams_[which];
  if (x.failed)
    return;
  working_ -= x.works() ? 1 : 0;
  x.failed = true;
  x.opening = false;
  std::vector<piece> orders;
  for (const auto& p : std::exchange(x.pieces, {}))
    (p.kind == order_kind::end_stream ? orders : x.held_back).push_back(p);
  x.taken = 0;
  x.bytes = 0;
  ready_[which] = false;
  if (is_lost())
    return;
  // An order to end a stream may be repeated at any time.
  for (const auto& p : orders)
    if (auto* const by = carrier(now))
      give(*by, p, now);
  if (x.confirmed)
    on_over(x, now);
  else if (!x.ending)
    end(which, now);
  distribute(now);
}

void stream_schedule::on_over(stream& x, timestamp now) {
  waiting_.insert(waiting_.begin(), x.held_back.begin(), x.held_back.end());
  x.held_back.clear();
  if (options_.reopen == duration::zero())
    return;
  x.reopen_at = later(now, x.pause);
  x.pause = std::min(2 * x.pause, options_.reopen_most);
}

void stream_schedule::reopen(stream_number which) {
  auto& x = streams_[which];
  x.reopen_at = timestamp::max();
  x.failed = x.ending = x.confirmed = false;
  x.opening = true;
  reopened_.push_back({which, ++x.attempt});
}

void stream_schedule::on_open(stream_number which, timestamp now) {
  auto& x = streams_[which];
  if (!std::exchange(x.opening, false))
    return;
  ++working_;
  x.last_progress = now;
  distribute(now);
}

void stream_schedule::end(stream_number which, timestamp now) {
  auto& x = streams_[which];
  working_ -= x.works() ? 1 : 0;
  x.ending = true;
  if (auto* const by = carrier(now))
    give(*by, {order_kind::end_stream, stream_name{which, x.attempt}.offset(), {}, 0}, now);
}

bool stream_schedule::is_silent(const stream& x, timestamp now) const {
  return !x.pieces.empty() && now - x.last_progress >= options_.silence;
}

template <class Key>
stream_schedule::stream* stream_schedule::working_with_least(const Key& key) {
  stream* best = nullptr;
  for (auto& x : streams_)
    if (x.works() && (best == nullptr || key(x) < key(*best)))
      best = &x;
  return best;
}

stream_schedule::stream* stream_schedule::carrier(timestamp now) {
  return working_with_least([&](const stream& x) { return std::pair(is_silent(x, now), x.bytes); });
}

void stream_schedule::tick(timestamp now) {
  for (stream_number i = 0; i < streams_.size(); ++i) {
    const auto& x = streams_[i];
    if (x.reopen_at <= now && !is_lost())
      reopen(i);
    if (!x.works() || !is_silent(x, now))
      continue;
    // Where all are silent, the other end is: which the watch of the peer finds.
    if (const auto* const by = carrier(now); by != nullptr && !is_silent(*by, now))
      end(i, now);
  }
}

void stream_schedule::give(stream& to, piece x, timestamp now) {
  if (to.pieces.empty())
    to.last_progress = now;
  to.bytes += bytes_of(x);
  to.pieces.push_back(x);
  mark_ready(to);
}

void stream_schedule::mark_ready(const stream& x) {
  ready_[static_cast<std::size_t>(&x - streams_.data())] = true;
}

void stream_schedule::distribute(timestamp now) {
  while (!waiting_.empty()) {
    stream* const best = working_with_least([](const stream& x) { return x.bytes; });
    const auto size = bytes_of(waiting_.front());
    const bool fits =
        best != nullptr &&
        (best->bytes == 0 || (best->bytes < options_.window_bytes && size <= options_.window_bytes - best->bytes));
    if (!fits)
      return;
    give(*best, waiting_.front(), now);
    waiting_.pop_front();
  }
}

const char* stream_schedule::check() const {
  std::unordered_map<batch_number, std::size_t> open;
  std::uint32_t working = 0;
  for (const auto& p : waiting_)
    ++open[p.batch];
  for (const auto& x : streams_) {
    working += x.works() ? 1 : 0;
    std::uint64_t bytes = 0;
    for (const auto& p : x.pieces) {
      bytes += bytes_of(p);
      if (p.kind != order_kind::end_stream)
        ++open[p.batch];
    }
    for (const auto& p : x.held_back)
      ++open[p.batch];
    if (x.opening && !x.pieces.empty())
      return "a stream that is being opened has pieces";
    if (bytes != x.bytes || x.taken > x.pieces.size())
      return "the bytes of a stream are wrong";
    if (x.failed && !x.pieces.empty())
      return "a failed stream has pieces in transfer";
    if (x.confirmed && !x.held_back.empty())
      return "pieces are held back although the other end has ended their stream";
  }
  if (working != working_)
    return "the number of working streams is wrong";
  if (open != batches_)
    return "a batch does not have the pieces that are open";
  return "";
}

std::size_t bytes_of_turn(std::uint32_t streams, std::uint32_t threads) noexcept {
  constexpr std::size_t of_peer = std::size_t{2} << 20U;
  constexpr std::size_t least = std::size_t{128} << 10U;
  const std::size_t of_thread = (streams + std::max(threads, 1U) - 1) / std::max(threads, 1U);
  return std::max(of_peer / std::max<std::size_t>(of_thread, 1), least);
}

} // namespace troupe::io::tcp
