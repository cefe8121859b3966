#include "io/tcp/stream_schedule.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace io_stream_schedule_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::io::tcp;
using std::chrono::milliseconds;

namespace {

constexpr timestamp start{};

stream_options some_streams(std::uint32_t streams) {
  return {streams, 1000, 4000, milliseconds(100), milliseconds(200), milliseconds(1000)};
}

/// So many bytes as one move, from offset 0 on.
struct move_of {
  explicit move_of(std::size_t bytes) : memory(bytes) {}
  std::vector<remote_move> all() { return {{memory, 0}}; }

  std::vector<std::byte> memory;
};

std::uint64_t bytes_in(const std::vector<piece>& all) {
  std::uint64_t out = 0;
  for (const auto& x : all)
    out += x.here.size();
  return out;
}

} // namespace

TEST_CASE("stream schedule: a single stream gets whole moves, all at once", "[tcp]") {
  stream_schedule one(some_streams(1));
  move_of some(10000);
  one.add(remote_direction::put, some.all(), start);
  one.add(remote_direction::get, some.all(), start);
  const auto taken = one.take(0);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].kind == order_kind::put);
  CHECK(taken[0].here.size() == 10000);
  CHECK(taken[1].kind == order_kind::get);
  CHECK(one.take(0).empty());
  CHECK(one.on_answered(0, start) == batch_number{1});
  CHECK(one.on_answered(0, start) == batch_number{2});
  CHECK_FALSE(one.on_answered(0, start));
  CHECK_FALSE(one.is_busy());
}

TEST_CASE("stream schedule: a move is cut evenly, spread over the streams, and waits where their windows are full",
          "[tcp]") {
  stream_schedule four(some_streams(4));
  move_of some(18500);
  four.add(remote_direction::put, some.all(), start);
  CHECK(four.take_ready() == std::vector<stream_number>{0, 1, 2, 3});
  std::set<std::uint64_t> seen;
  std::uint64_t bytes = 0;
  std::array<std::size_t, 4> counts{};
  for (stream_number i = 0; i < 4; ++i)
    for (const auto& x : four.take(i)) {
      CHECK(x.here.size() <= 1000);
      CHECK(x.here.data() == some.memory.data() + x.offset);
      CHECK(seen.insert(x.offset).second);
      bytes += x.here.size();
      ++counts[i];
    }
  CHECK(std::ranges::max(counts) == 4);
  CHECK(std::ranges::min(counts) == 4);
  CHECK(bytes < 18500);
  CHECK(std::string(four.check()).empty());
  // The one that is ready first gets what is left.
  CHECK_FALSE(four.on_answered(2, start));
  CHECK(four.take_ready() == std::vector<stream_number>{2});
  CHECK(bytes_in(four.take(2)) > 0);
}

TEST_CASE("stream schedule: a piece has a byte where its size is none", "[tcp]") {
  auto how = some_streams(2);
  how.piece_bytes = 0;
  stream_schedule two(how);
  move_of some(3);
  two.add(remote_direction::put, some.all(), start);
  const auto first = two.take(0), second = two.take(1);
  CHECK(first.size() + second.size() == 3);
  CHECK(bytes_in(first) + bytes_in(second) == 3);
}

TEST_CASE("stream schedule: pieces of a failed stream move again only when the other end has ended it", "[tcp]") {
  stream_schedule two(some_streams(2));
  move_of some(2000);
  two.add(remote_direction::put, some.all(), start);
  REQUIRE(two.take(0).size() == 1);
  REQUIRE(two.take(1).size() == 1);
  two.on_failed(0, start);
  CHECK(two.working() == 1);
  auto next = two.take(1);
  REQUIRE(next.size() == 1);
  CHECK(next[0].kind == order_kind::end_stream);
  CHECK(next[0].offset == 0);
  CHECK_FALSE(two.on_answered(1, start)); // its own piece
  CHECK(two.take(1).empty());
  CHECK_FALSE(two.on_answered(1, start)); // the order to end the other one
  CHECK(two.take_ended() == std::vector<stream_number>{0});
  next = two.take(1);
  REQUIRE(next.size() == 1);
  CHECK(next[0].kind == order_kind::put);
  CHECK(next[0].offset == 0);
  CHECK(two.on_answered(1, start) == batch_number{1});
  CHECK(std::string(two.check()).empty());
}

TEST_CASE("stream schedule: the last stream that fails loses the peer", "[tcp]") {
  stream_schedule two(some_streams(2));
  move_of some(2000);
  two.add(remote_direction::get, some.all(), start);
  two.on_failed(1, start);
  CHECK_FALSE(two.is_lost());
  two.on_failed(1, start);
  CHECK_FALSE(two.is_lost());
  two.on_failed(0, start);
  CHECK(two.is_lost());
  CHECK(two.batches() == 1);
}

TEST_CASE("stream schedule: a silent stream is ended at the other end first, while another one works", "[tcp]") {
  stream_schedule two(some_streams(2));
  move_of some(2000);
  two.add(remote_direction::put, some.all(), start);
  two.take(0);
  two.take(1);
  SECTION("but not where all are silent") {
    two.tick(start + milliseconds(200));
    CHECK(two.working() == 2);
    return;
  }
  two.on_progress(1, start + milliseconds(60));
  two.tick(start + milliseconds(99));
  CHECK(two.working() == 2);
  two.tick(start + milliseconds(100));
  CHECK(two.working() == 1);
  const auto order = two.take(1);
  REQUIRE(order.size() == 1);
  CHECK(order[0].kind == order_kind::end_stream);
  SECTION("what it still answers counts") {
    CHECK_FALSE(two.on_answered(0, start + milliseconds(110)));
    CHECK(two.on_answered(1, start + milliseconds(110)) == batch_number{1});
  }
  SECTION("its pieces move again when it is closed here as well") {
    two.on_answered(1, start);
    two.on_answered(1, start);
    CHECK(two.take_ended() == std::vector<stream_number>{0});
    CHECK(two.take(1).empty());
    two.on_failed(0, start);
    CHECK(two.take(1).size() == 1);
    CHECK(two.on_answered(1, start) == batch_number{1});
  }
}

TEST_CASE("stream schedule: a failed stream is opened again after a pause, and carries pieces when it is open",
          "[tcp]") {
  stream_schedule two(some_streams(2));
  move_of some(2000);
  two.on_failed(0, start);
  two.tick(start + milliseconds(5000));
  CHECK(two.take_reopened().empty()); // the other end may go on with it
  REQUIRE(two.take(1).size() == 1);
  CHECK_FALSE(two.on_answered(1, start));
  two.tick(start + milliseconds(199));
  CHECK(two.take_reopened().empty());
  two.tick(start + milliseconds(200));
  const auto again = two.take_reopened();
  REQUIRE(again.size() == 1);
  CHECK(again[0].number == 0);
  CHECK(again[0].attempt == 1);
  CHECK(two.working() == 1);
  two.add(remote_direction::put, some.all(), start);
  CHECK(two.take(0).empty());
  SECTION("it is open") {
    CHECK(bytes_in(two.take(1)) == 2000);
    two.on_open(0, start);
    CHECK(two.working() == 2);
    two.add(remote_direction::put, some.all(), start);
    CHECK(bytes_in(two.take(0)) > 0);
    // When it is lost again, the other end is asked to end this attempt.
    two.on_failed(0, start);
    const auto next = two.take(1);
    CHECK(std::ranges::any_of(next, [](const piece& x) {
      return x.kind == order_kind::end_stream && x.offset == stream_name{0, 1}.offset();
    }));
  }
  SECTION("it fails, and the pause doubles") {
    two.on_failed(0, start + milliseconds(210));
    CHECK(two.working() == 1);
    CHECK(two.take(1).size() == 3);
    for (int i = 0; i < 3; ++i)
      two.on_answered(1, start + milliseconds(210));
    two.tick(start + milliseconds(609));
    CHECK(two.take_reopened().empty());
    two.tick(start + milliseconds(610));
    CHECK(two.take_reopened().size() == 1);
  }
  CHECK(std::string(two.check()).empty());
}

namespace {

/// The other end as it is: each stream has a queue of orders on their way, which it carries out one after the other,
/// and answers on their way back. A stream that fails leaves its orders in the queue, and they are carried out at any
/// time until the stream is ended.
class other_end {
public:
  explicit other_end(std::uint32_t streams) : lines_(streams) {}

  struct line {
    std::deque<piece> orders;
    std::deque<piece> answers;
    bool ended = false;
    /// This end has closed it.
    bool closed = false;
    bool stalls = false;
    std::uint32_t attempt = 0;
  };
  std::vector<line> lines_;
  std::map<std::uint64_t, std::uint64_t> memory;

  void carry_out(stream_number i) {
    auto& x = lines_[i];
    if (x.ended || x.orders.empty() || x.stalls)
      return;
    const auto done = x.orders.front();
    x.orders.pop_front();
    const auto which = stream_name::of_offset(done.offset);
    if (done.kind == order_kind::end_stream)
      lines_[which.number].ended |= lines_[which.number].attempt == which.attempt;
    else
      memory[done.offset] = done.batch;
    x.answers.push_back(done);
  }
};

/// Batches over random streams that fail and stall. Each batch writes its number to the same offsets as all others, one
/// after the other: bytes of an older one must never lie over those of a newer one.
class course {
public:
  course(std::uint64_t seed, bool repeats_at_once)
      : random_(seed), streams_(static_cast<std::uint32_t>(1 + below(5))), rules_(some_streams(streams_)),
        far_(streams_), failed_(streams_), opening_(streams_), repeats_at_once_(repeats_at_once) {}

  std::size_t reopened = 0;

  /// Empty if all is well.
  std::string run() {
    for (int i = 0; i < 12 && !rules_.is_lost(); ++i) {
      current_ = rules_.add(remote_direction::put, some_.all(), now_);
      for (int steps = 0; rules_.is_busy() && !rules_.is_lost(); ++steps) {
        step();
        if (const std::string why = rules_.check(); !why.empty())
          return why;
        if (steps > 20000)
          return "stuck";
        if (opened_too_early_)
          return "a stream was opened again while the other end goes on with it";
      }
      if (rules_.is_lost())
        return {};
      // Late bytes of streams that have failed.
      for (stream_number s = 0; s < streams_; ++s)
        if (below(2) == 0)
          while (!far_.lines_[s].orders.empty() && !far_.lines_[s].ended && !far_.lines_[s].stalls)
            far_.carry_out(s);
      for (const auto& [offset, batch] : far_.memory)
        if (batch != current_)
          return "bytes of batch " + std::to_string(batch) + " lie over those of " + std::to_string(current_);
    }
    return {};
  }

private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void step() {
    now_ += milliseconds(below(20));
    const auto s = static_cast<stream_number>(below(streams_));
    auto& x = far_.lines_[s];
    switch (below(12)) {
    case 0:
      rules_.tick(now_);
      break;
    case 1:
      if (below(25) == 0)
        fail(s);
      break;
    case 2:
      if (below(25) == 0)
        x.stalls = !x.stalls;
      break;
    case 3:
    case 4:
    case 5:
      far_.carry_out(s);
      break;
    default:
      if (x.closed) {
        break;
      }
      if (!x.answers.empty()) {
        x.answers.pop_front();
        rules_.on_answered(s, now_);
      }
      for (const auto& p : rules_.take(s))
        x.orders.push_back(p);
    }
    // A whole that stalls is for the one who watches the peer.
    if (std::ranges::all_of(far_.lines_, [](const auto& l) { return l.stalls || l.closed; }))
      for (auto& l : far_.lines_)
        l.stalls = false;
    for (const auto ended : rules_.take_ended())
      fail(ended);
    if (repeats_at_once_)
      far_end_forgets();
    for (const auto& again : rules_.take_reopened())
      open_again(again);
    if (failed_[s] || !opening_[s])
      return;
    opening_[s] = false;
    ++reopened;
    rules_.on_open(s, now_);
  }

  void open_again(const stream_name& x) {
    auto& line = far_.lines_[x.number];
    opened_too_early_ |= !line.ended && !line.orders.empty();
    line = {};
    line.attempt = x.attempt;
    failed_[x.number] = false;
    if (below(3) == 0)
      fail(x.number);
    else
      opening_[x.number] = true;
  }

  void fail(stream_number s) {
    if (failed_[s])
      return;
    failed_[s] = true;
    opening_[s] = false;
    far_.lines_[s].closed = true;
    far_.lines_[s].answers.clear();
    rules_.on_failed(s, now_);
  }

  /// A mistake: the other end says that it has ended a stream, and goes on with it.
  void far_end_forgets() {
    for (auto& x : far_.lines_)
      if (x.closed)
        x.ended = false;
  }

  std::mt19937_64 random_;
  std::uint32_t streams_;
  stream_schedule rules_;
  other_end far_;
  std::vector<bool> failed_;
  std::vector<bool> opening_;
  bool opened_too_early_ = false;
  bool repeats_at_once_;
  timestamp now_ = start;
  move_of some_{9000};
  batch_number current_ = 0;
};

} // namespace

TEST_CASE("stream schedule: over streams that fail and stall, every batch ends, with its own bytes", "[tcp]") {
  std::size_t reopened = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    course one(seed, false);
    REQUIRE(one.run().empty());
    reopened += one.reopened;
  }
  CHECK(reopened > 100);
}

TEST_CASE("stream schedule: the check finds bytes of an ended stream", "[tcp]") {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed)
    found += course(seed, true).run().empty() ? 0 : 1;
  CHECK(found > 0);
}

TEST_CASE("stream schedule: a peer with many connections gets no larger share of a thread", "[tcp]") {
  CHECK(bytes_of_turn(1, 2) == 2U << 20U);
  CHECK(bytes_of_turn(8, 8) == 2U << 20U);
  CHECK(bytes_of_turn(8, 2) == 512U << 10U);
  CHECK(bytes_of_turn(64, 1) == 128U << 10U);
}

} // namespace io_stream_schedule_test
