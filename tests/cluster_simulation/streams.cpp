#include "tests/cluster_simulation/world.hpp"

#include <algorithm>
#include <cstring>

/// Pages on several connections of one attachment, which fail and stall, by the rules of `stream_schedule`. Every page
/// travels in two halves.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t half = sizeof(contents) / 2;
constexpr auto silent_for = milliseconds(150);
constexpr auto tick_pause = milliseconds(50);
constexpr auto reopen_after = milliseconds(20);

} // namespace

world::stream_load::stream_load(std::size_t node, std::size_t sender, const cluster::fetch_move& x,
                                std::shared_ptr<memory> room, std::vector<std::optional<contents>> what,
                                std::uint32_t streams)
    : to(node), from(sender), task(x), into(std::move(room)), pages(std::move(what)), source(pages.size()),
      rules({streams, half, 4 * half, silent_for, reopen_after, 8 * reopen_after}), lines(streams) {}

void world::load_by_streams(std::size_t i, std::size_t from, const cluster::fetch_move& x,
                            const std::shared_ptr<memory>& into, const std::vector<std::optional<contents>>& what) {
  const auto open = std::make_shared<stream_load>(i, from, x, into, what, streams_);
  std::vector<io::remote_move> moves;
  for (std::size_t k = 0; k < what.size(); ++k)
    if (what[k]) {
      open->source[k] = *what[k];
      moves.push_back({std::as_writable_bytes(std::span(&open->source[k], 1)), k * sizeof(contents)});
    }
  if (moves.empty())
    return carry(from, i, nodes_[i].life, [this, i, x, into, what] { land(i, x, into, what); });
  open->rules.add(io::remote_direction::put, moves, now_);
  // One of them fails, or in some cases all.
  if (!is_calm_ && random_.one_in(4)) {
    const auto failing = random_.one_in(4) ? streams_ : 1;
    for (std::uint32_t k = 0, first = random_.number(0, streams_ - 1); k < failing; ++k)
      after(random_.time(milliseconds(0), milliseconds(80)),
            [this, open, which = (first + k) % streams_] { fail_stream(open, which); });
  }
  if (!is_calm_ && random_.one_in(6)) {
    count("stream stalled");
    open->lines[random_.below(streams_)].last = later(now_, random_.time(milliseconds(100), seconds(3)));
  }
  settle_streams(open);
  tick_streams(open);
}

bool world::is_open(const open_streams& open) {
  // With the session, the memory that its connections reach is no longer used.
  if (!open->landed && !nodes_[open->to].calls.contains(open->task.call))
    open->closed = true;
  return !open->closed;
}

void world::settle_streams(const open_streams& open) {
  for (const auto ended : open->rules.take_ended()) {
    count("stream ended");
    fail_stream(open, ended);
  }
  for (const auto& which : open->rules.take_reopened())
    open_again(open, which);
  for (const auto s : open->rules.take_ready()) {
    auto& line = open->lines[s];
    for (const auto& p : open->rules.take(s)) {
      line.last = std::max(line.last, later(now_, random_.skewed_time(microseconds(50), milliseconds(20))));
      at(line.last, [this, open, by = io::tcp::stream_name{s, line.attempt}, p, life = nodes_[open->to].life] {
        run_on(open->to, life, [this, open, by, p] { on_piece(open, by, p); });
      });
    }
  }
}

void world::open_again(const open_streams& open, const io::tcp::stream_name& which) {
  open->lines[which.number] = {.attempt = which.attempt};
  count("stream opened again");
  after(random_.time(milliseconds(0), milliseconds(20)), [this, open, which] {
    auto& line = open->lines[which.number];
    if (!is_open(open) || line.failed || line.attempt != which.attempt)
      return;
    if (!is_calm_ && random_.one_in(3))
      return fail_stream(open, which.number);
    open->rules.on_open(which.number, now_);
    settle_streams(open);
  });
}

void world::on_piece(const open_streams& open, const io::tcp::stream_name& by, const io::tcp::piece& p) {
  auto& line = open->lines[by.number];
  // Bytes of a connection that the receiver goes on with land at any time.
  if (!is_open(open) || line.ended || (line.attempt != by.attempt && !has(defect::keep_ended_streams)))
    return;
  if (line.failed)
    count("landed from a failed stream");
  if (p.kind == io::tcp::order_kind::end_stream) {
    const auto which = io::tcp::stream_name::of_offset(p.offset);
    if (auto& other = open->lines[which.number]; other.attempt == which.attempt)
      other.ended = !has(defect::keep_ended_streams);
  } else if (!open->into->gone) {
    const auto rank = has(defect::one_memory_for_all_ranks) ? 0 : open->task.rank;
    auto& block = open->into->ranks[rank][open->task.work.blocks[p.offset / sizeof(contents)]];
    std::memcpy(reinterpret_cast<std::byte*>(&block) + p.offset % sizeof(contents), p.here.data(), p.here.size());
  }
  after(random_.skewed_time(microseconds(50), milliseconds(20)), [this, open, by, life = nodes_[open->from].life] {
    run_on(open->from, life, [this, open, by] { on_piece_answered(open, by); });
  });
}

void world::on_piece_answered(const open_streams& open, const io::tcp::stream_name& by) {
  const auto& line = open->lines[by.number];
  if (!is_open(open) || line.failed || line.attempt != by.attempt || open->rules.is_lost())
    return;
  if (const std::string why = open->rules.check(); !why.empty())
    broken("streams", why);
  const bool all = open->rules.on_answered(by.number, now_).has_value();
  settle_streams(open);
  if (!all)
    return;
  open->landed = true;
  count("landed by streams");
  const auto rank = has(defect::one_memory_for_all_ranks) ? 0 : open->task.rank;
  auto arrived = open->pages;
  for (std::size_t k = 0; k < arrived.size(); ++k)
    if (arrived[k])
      arrived[k] = open->into->ranks[rank][open->task.work.blocks[k]];
  carry(open->from, open->to, nodes_[open->to].life,
        [this, open, arrived] { land(open->to, open->task, open->into, arrived); });
}

void world::fail_stream(const open_streams& open, std::uint32_t s) {
  if (!is_open(open) || std::exchange(open->lines[s].failed, true))
    return;
  count("stream failed");
  open->rules.on_failed(s, now_);
  if (!open->rules.is_lost())
    return settle_streams(open);
  count("streams lost");
  open->closed = true;
  if (!open->landed && take(open->to, open->task.call))
    answer_load(open->to, open->task, fail(errc::unreachable, "no connection is left"));
}

void world::tick_streams(const open_streams& open) {
  if (!is_open(open) || open->rules.is_lost() || !open->rules.is_busy())
    return;
  open->rules.tick(now_);
  settle_streams(open);
  after(tick_pause, [this, open] { tick_streams(open); });
}

} // namespace troupe::cluster_simulation
