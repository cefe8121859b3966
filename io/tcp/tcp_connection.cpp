#include "io/tcp/tcp_connection.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::io::tcp {

namespace {

/// The most pieces of one system call.
constexpr std::size_t pieces_most = 32;

/// A list of pieces of memory without the bytes that were moved already.
class pieces {
public:
  /// Adds `from` without its first `moved` bytes, and subtracts those from `moved`.
  void add(std::span<std::byte> from, std::size_t& moved) {
    const auto skip = std::min(moved, from.size());
    moved -= skip;
    if (from.size() > skip && count_ < pieces_most)
      all_[count_++] = {from.data() + skip, from.size() - skip};
  }
  bool full() const noexcept { return count_ == pieces_most; }
  std::span<const iovec> all() const noexcept { return {all_.data(), count_}; }

private:
  std::array<iovec, pieces_most> all_{};
  std::size_t count_ = 0;
};

} // namespace

std::size_t tcp_connection::task::to_send() const noexcept {
  return sizeof words + (words.kind == order_kind::put ? here.size() : 0);
}

std::size_t tcp_connection::task::to_hear() const noexcept {
  return sizeof reply + (words.kind == order_kind::get ? here.size() : 0);
}

tcp_connection::tcp_connection(const connection_target& target, const stream_name& which, std::uint32_t streams,
                               std::size_t turn_bytes, std::shared_ptr<piece_source> source)
    : target_(target), number_(which.number), turn_bytes_(turn_bytes), source_(std::move(source)) {
  hello_.stream = which.number;
  hello_.streams = streams;
  hello_.attempt = which.attempt;
  hello_.token = target.token;
}

void tcp_connection::connect() {
  if (!source_)
    return;
  auto made = tcp_stream::connect(target_.to, target_.from);
  if (!made)
    return fail_with(made.error());
  stream_ = std::move(*made);
  if (target_.encrypted)
    if (auto encrypted = stream_.encrypt(tcp_stream::role::asks, target_.token); !encrypted)
      fail_with(encrypted.error());
}

void tcp_connection::work() {
  if (!stream_)
    return;
  take_pieces();
  const auto sent = send_some();
  if (sent > 0 && source_)
    source_->on_progress(number_, sent);
}

void tcp_connection::on_ready() {
  std::size_t moved = 0;
  while (moved < turn_bytes_ && stream_) {
    const auto sent = send_some();
    const auto heard = stream_ ? hear_some() : 0;
    if (sent + heard == 0)
      break;
    moved += sent + heard;
  }
  if (moved > 0 && source_)
    source_->on_progress(number_, moved);
}

void tcp_connection::on_tick() {
  // The source may close this connection and with it the last reference of the connection to the source.
  if (const auto source = source_)
    source->on_tick();
}

std::size_t tcp_connection::send_some() {
  pieces out;
  auto skip = hello_sent_;
  out.add(bytes_of(hello_), skip);
  for (auto i = sent_; i < tasks_.size() && !out.full(); ++i) {
    auto& x = tasks_[i];
    skip = x.sent;
    out.add(bytes_of(x.words), skip);
    if (x.words.kind == order_kind::put)
      out.add(x.here, skip);
  }
  if (out.all().empty())
    return 0;
  const auto put = stream_.write(out.all());
  if (put.ended) {
    fail_with({errc::unreachable, "the connection to the memory of the other end was lost"});
    return 0;
  }
  auto left = put.bytes;
  const auto of_hello = std::min(left, sizeof hello_ - hello_sent_);
  hello_sent_ += of_hello;
  left -= of_hello;
  const bool is_open = of_hello > 0 && hello_sent_ == sizeof hello_;
  while (left > 0) {
    auto& x = tasks_[sent_];
    const auto n = std::min(left, x.to_send() - x.sent);
    x.sent += n;
    left -= n;
    if (x.sent == x.to_send())
      ++sent_;
  }
  if (is_open)
    source_->on_open(number_);
  return put.bytes;
}

std::size_t tcp_connection::hear_some() {
  pieces in;
  for (std::size_t i = 0; i < sent_ && !in.full(); ++i) {
    auto& x = tasks_[i];
    auto skip = x.heard;
    in.add(bytes_of(x.reply), skip);
    if (x.words.kind == order_kind::get)
      in.add(x.here, skip);
  }
  // No answer is expected: one byte is read to detect the end of the connection.
  std::byte unasked{};
  std::size_t none = 0;
  const bool idle = in.all().empty();
  if (idle)
    in.add({&unasked, 1}, none);
  const auto got = stream_.read(in.all());
  if (got.ended || (idle && got.bytes > 0)) {
    fail_with({errc::unreachable, got.ended ? "the connection to the memory of the other end was lost"
                                            : "the other end sent an unexpected message"});
    return 0;
  }
  for (auto left = got.bytes; left > 0;) {
    auto& x = tasks_.front();
    const auto n = std::min(left, x.to_hear() - x.heard);
    x.heard += n;
    left -= n;
    if (x.heard < x.to_hear())
      break;
    if (x.reply != answer{x.words.kind, x.words.number, x.words.length}) {
      fail_with({errc::unreachable, "the other end sent an answer to another order"});
      return 0;
    }
    end_first();
  }
  return got.bytes;
}

void tcp_connection::end_first() {
  tasks_.pop_front();
  --sent_;
  source_->on_answered(number_);
  // The next pieces, which the answer has made room for.
  if (source_)
    take_pieces();
}

void tcp_connection::take_pieces() {
  for (const auto& x : source_->take(number_))
    tasks_.push_back({{x.kind, ++last_number_, x.offset, x.here.size()}, x.here, 0, {}, 0});
}

void tcp_connection::fail_with(error why) {
  const auto source = std::exchange(source_, nullptr);
  if (!source)
    return;
  // From here on nothing is read into memory of this process; the kernel holds copies of what it still sends.
  if (stream_)
    stream_.abort();
  sent_ = 0;
  tasks_.clear();
  source->on_failed(number_, std::move(why));
}

} // namespace troupe::io::tcp
