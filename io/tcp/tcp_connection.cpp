#include "io/tcp/tcp_connection.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::io::tcp {

namespace {

/// The most pieces of one system call, and of one connection before the next one's turn.
constexpr std::size_t pieces_most = 32;
constexpr std::size_t bytes_in_a_row = std::size_t{2} << 20U;

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

endpoint where(const remote_memory_name& name) {
  const auto& x = name.address;
  return {static_cast<std::uint32_t>(x[0]) << 24U | static_cast<std::uint32_t>(x[1]) << 16U |
              static_cast<std::uint32_t>(x[2]) << 8U | x[3],
          static_cast<std::uint16_t>(x[4] << 8U | x[5])};
}

} // namespace

std::vector<std::uint8_t> tcp_address(const endpoint& where, bool encrypted) {
  return {static_cast<std::uint8_t>(where.address >> 24U), static_cast<std::uint8_t>(where.address >> 16U),
          static_cast<std::uint8_t>(where.address >> 8U),  static_cast<std::uint8_t>(where.address),
          static_cast<std::uint8_t>(where.port >> 8U),     static_cast<std::uint8_t>(where.port),
          encrypted ? std::uint8_t{1} : std::uint8_t{0}};
}

bool names_tcp_memory(const remote_memory_name& name) {
  constexpr std::size_t address_bytes = 7;
  return name.address.size() == address_bytes && name.address.back() <= 1 && name.key.size() == token_bytes &&
         name.bytes > 0;
}

bool is_encrypted(const remote_memory_name& name) {
  return name.address.back() == 1;
}

std::size_t tcp_connection::task::to_send() const noexcept {
  return sizeof words + (words.kind == order_kind::put ? here.size() : 0);
}

std::size_t tcp_connection::task::to_hear() const noexcept {
  return sizeof reply + (words.kind == order_kind::get ? here.size() : 0);
}

tcp_connection::tcp_connection(remote_memory_name name, std::function<void(const error&)> lost)
    : name_(std::move(name)), lost_(std::move(lost)) {}

void tcp_connection::connect() {
  std::transform(name_.key.begin(), name_.key.end(), hello_.token.begin(), [](auto x) { return std::byte{x}; });
  auto made = tcp_stream::connect(where(name_));
  if (!made)
    return fail_with(made.error());
  stream_ = std::move(*made);
  if (is_encrypted(name_))
    if (auto encrypted = stream_.encrypt(tcp_stream::role::asks, hello_.token); !encrypted)
      fail_with(encrypted.error());
}

void tcp_connection::move(remote_direction direction, const std::vector<remote_move>& moves, remote_end end) {
  if (failure_)
    return end(tl::unexpected<error>(*failure_));
  const auto kind = direction == remote_direction::put ? order_kind::put : order_kind::get;
  for (const auto& x : moves)
    if (!is_sound({kind, 0, x.there, x.here.size()}, name_.bytes))
      return end(fail(errc::out_of_range, "the range is outside the memory of the other end"));
  if (moves.empty())
    return end({});
  const auto all = std::make_shared<batch>(batch{std::move(end), moves.size()});
  for (const auto& x : moves)
    tasks_.push_back({{kind, ++last_number_, x.there, x.here.size()}, x.here, all, 0, {}, 0});
  send_some();
}

void tcp_connection::close(const std::function<void()>& closed) {
  lost_ = nullptr;
  fail_with({errc::unreachable, "closed"});
  closed();
}

void tcp_connection::on_ready() {
  for (std::size_t moved = 0; moved < bytes_in_a_row && stream_;) {
    const auto sent = send_some();
    const auto heard = stream_ ? hear_some() : 0;
    if (sent + heard == 0)
      return;
    moved += sent + heard;
  }
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
  moved_.fetch_add(put.bytes, std::memory_order_relaxed);
  auto left = put.bytes;
  const auto of_hello = std::min(left, sizeof hello_ - hello_sent_);
  hello_sent_ += of_hello;
  left -= of_hello;
  while (left > 0) {
    auto& x = tasks_[sent_];
    const auto n = std::min(left, x.to_send() - x.sent);
    x.sent += n;
    left -= n;
    if (x.sent == x.to_send())
      ++sent_;
  }
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
  moved_.fetch_add(got.bytes, std::memory_order_relaxed);
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
  const auto of = std::move(tasks_.front().of);
  tasks_.pop_front();
  --sent_;
  if (--of->open == 0)
    std::exchange(of->end, nullptr)({});
}

void tcp_connection::fail_with(error why) {
  if (failure_)
    return;
  failure_ = std::move(why);
  // From here on nothing is read into memory of this process; the kernel holds copies of what it still sends.
  if (stream_)
    stream_.abort();
  sent_ = 0;
  for (const auto& x : std::exchange(tasks_, {}))
    if (auto end = std::exchange(x.of->end, nullptr))
      end(tl::unexpected<error>(*failure_));
  if (const auto tell = std::exchange(lost_, nullptr))
    tell(*failure_);
}

} // namespace troupe::io::tcp
