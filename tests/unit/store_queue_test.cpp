#include "store/commit_queue.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store_support.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace store_queue_test {

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;

namespace {

/// A log that records its operations and executes them when a test allows it.
class scripted_log final : public group_writer {
public:
  result<void> write(std::span<const write_batch> group) override {
    std::unique_lock held(mutex_);
    ++entered_;
    changed_.notify_all();
    await(changed_, held, [&] { return open_; });
    for (const auto& batch : group)
      batch.for_each([&](const write_batch::change& change) { keys_.emplace_back(change.key); });
    events_ += 'w' + std::to_string(group.size()) + ' ';
    changed_.notify_all();
    return take(write_failure_);
  }

  result<void> sync() override {
    const std::lock_guard guard(mutex_);
    events_ += "s ";
    ++syncs_;
    changed_.notify_all();
    return take(sync_failure_);
  }

  result<void> recover() override {
    const std::lock_guard guard(mutex_);
    events_ += "r ";
    ++recoveries_;
    changed_.notify_all();
    return recovers_ ? result<void>{} : tl::unexpected(*recovery_failure_);
  }

  void note(const std::string& event) {
    const std::lock_guard guard(mutex_);
    events_ += event + ' ';
  }

  /// Writes wait until `release`.
  void hold() {
    const std::lock_guard guard(mutex_);
    open_ = false;
  }
  void release() {
    const std::lock_guard guard(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_until_writing(int times) {
    std::unique_lock held(mutex_);
    await(changed_, held, [&] { return entered_ >= times; });
  }
  void wait_for_syncs(int times) {
    std::unique_lock held(mutex_);
    await(changed_, held, [&] { return syncs_ >= times; });
  }

  void wait_for_recoveries(int times) {
    std::unique_lock held(mutex_);
    await(changed_, held, [&] { return recoveries_ >= times; });
  }

  /// The next write, or sync, finds no room, and there is none before `make_room`.
  void fill(bool at_sync = false) {
    set(at_sync ? sync_failure_ : write_failure_, "the disk is full", errc::no_space);
    fail_recovery(errc::no_space);
  }
  void fail_recovery(errc code) {
    const std::lock_guard guard(mutex_);
    recovers_ = false;
    recovery_failure_ = error{code, "it cannot be opened"};
  }
  void make_room() {
    const std::lock_guard guard(mutex_);
    recovers_ = true;
  }

  void fail_write() { set(write_failure_, "the disk went away"); }
  void fail_sync() { set(sync_failure_, "the medium is lost"); }

  std::string events() {
    const std::lock_guard guard(mutex_);
    return events_;
  }
  std::vector<std::string> keys() {
    const std::lock_guard guard(mutex_);
    return keys_;
  }

private:
  void set(std::optional<error>& what, const std::string& text, errc code = errc::io_error) {
    const std::lock_guard guard(mutex_);
    what = error{code, text};
  }

  // It fails once: a later attempt succeeds.
  static result<void> take(std::optional<error>& what) {
    if (!what)
      return {};
    auto failure = std::move(*what);
    what.reset();
    return tl::unexpected(std::move(failure));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int entered_ = 0;
  int syncs_ = 0;
  int recoveries_ = 0;
  bool recovers_ = true;
  std::optional<error> recovery_failure_;
  std::string events_;
  std::vector<std::string> keys_;
  std::optional<error> write_failure_;
  std::optional<error> sync_failure_;
};

/// Lets the log go on first, so that a test that fails ends.
struct ender {
  scripted_log* log = nullptr;

  void operator()(commit_queue* queue) const {
    log->release();
    delete queue;
  }
};

std::unique_ptr<commit_queue, ender> start(scripted_log& log, commit_queue_options options = {}) {
  auto started = commit_queue::start(options, log);
  REQUIRE(started.has_value());
  return {started->release(), ender{&log}};
}

commit_queue_options relaxed() {
  commit_queue_options options;
  options.level = durability::relaxed;
  options.sync_interval = std::chrono::hours(1);
  return options;
}

write_batch batch_with(std::uint64_t n) {
  write_batch batch;
  batch.put(page_number(n));
  return batch;
}

write_batch batch_without(std::uint64_t n) {
  write_batch batch;
  batch.erase_page(namespace_number(1), key_number(n), 0);
  return batch;
}

std::string page_key(std::uint64_t n) {
  std::string out;
  append_page_key(out, namespace_number(1), key_number(n), 0);
  return out;
}

} // namespace

TEST_CASE("store queue: waiting batches form one group with one sync and are answered after it", "[store][queue]") {
  scripted_log log;
  auto queue = start(log);
  log.hold();
  const auto commit = [&](std::uint64_t n) {
    REQUIRE(queue->commit(batch_with(n),
                          [&log, n](result<void> answer) { log.note((answer ? "a" : "e") + std::to_string(n)); }));
  };
  commit(0);
  log.wait_until_writing(1);
  for (std::uint64_t n = 1; n <= 5; ++n)
    commit(n);
  CHECK(queue->stats().queued_batches == 6);
  log.release();
  REQUIRE(queue->close());
  CHECK(log.events() == "w1 s a0 w5 s a1 a2 a3 a4 a5 ");
  const auto stats = queue->stats();
  CHECK(stats.batches == 6);
  CHECK(stats.groups == 2);
  CHECK(stats.syncs == 2);
  CHECK(stats.records == 6);
  CHECK(stats.queued_batches == 0);
  CHECK(stats.queued_bytes == 0);
  CHECK(stats.longest_sync >= stats.last_sync);
}

TEST_CASE("store queue: a group ends when it has enough bytes", "[store][queue]") {
  scripted_log log;
  commit_queue_options options;
  options.max_group_bytes = batch_with(1).bytes() + 1;
  answer_log answers;
  auto queue = start(log, options);
  log.hold();
  for (std::uint64_t n = 0; n < 6; ++n) {
    REQUIRE(queue->commit(batch_with(2 * n + 1), answers.expect(n)));
    if (n == 0)
      log.wait_until_writing(1);
  }
  log.release();
  REQUIRE(queue->close());
  CHECK(log.events() == "w1 s w2 s w2 s w1 s ");
}

TEST_CASE("store queue: relaxed answers before the sync, unless the batch erases a page or requests a sync",
          "[store][queue]") {
  scripted_log log;
  answer_log answers;
  auto queue = start(log, relaxed());
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  answers.wait_for(1);
  CHECK(log.events() == "w1 ");
  REQUIRE(queue->commit(batch_without(1), answers.expect(2)));
  answers.wait_for(2);
  CHECK(log.events() == "w1 w1 s ");
  auto asks = batch_with(2);
  asks.require_sync();
  REQUIRE(queue->commit(std::move(asks), answers.expect(3)));
  answers.wait_for(3);
  CHECK(log.events() == "w1 w1 s w1 s ");
  REQUIRE(queue->commit(batch_with(3), answers.expect(4)));
  answers.wait_for(4);
  CHECK(log.events() == "w1 w1 s w1 s w1 ");
  REQUIRE(queue->close());
  CHECK(log.events() == "w1 w1 s w1 s w1 s ");
}

TEST_CASE("store queue: relaxed syncs after the interval", "[store][queue]") {
  scripted_log log;
  auto options = relaxed();
  options.sync_interval = std::chrono::microseconds(100);
  answer_log answers;
  auto queue = start(log, options);
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  log.wait_for_syncs(1);
  REQUIRE(queue->close());
}

TEST_CASE("store queue: an empty batch is answered after all earlier ones", "[store][queue]") {
  scripted_log log;
  answer_log answers;
  auto queue = start(log, relaxed());
  log.hold();
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  REQUIRE(queue->commit({}, answers.expect(2)));
  CHECK(answers.all().empty());
  log.release();
  answers.wait_for(2);
  CHECK(log.events().find('s') == std::string::npos);
  write_batch barrier;
  barrier.require_sync();
  REQUIRE(queue->commit(std::move(barrier), answers.expect(3)));
  CHECK(answers.wait_for(3).back() == std::pair<std::uint64_t, errc>(3, errc::ok));
  CHECK(log.events().ends_with("s "));
  REQUIRE(queue->close());
}

TEST_CASE("store queue: after a failed write nothing is acknowledged", "[store][queue]") {
  scripted_log log;
  answer_log answers;
  auto queue = start(log);
  const bool in_sync = GENERATE(false, true);
  log.hold();
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  log.wait_until_writing(1);
  REQUIRE(queue->commit(batch_with(2), answers.expect(2)));
  if (in_sync)
    log.fail_sync();
  else
    log.fail_write();
  log.release();
  // The log would take the second batch, but the first one may be lost.
  CHECK(answers.wait_for(2) == std::vector<std::pair<std::uint64_t, errc>>{{1, errc::io_error}, {2, errc::io_error}});
  auto batch = batch_with(3);
  const auto refused = queue->commit(std::move(batch), answers.expect(3));
  REQUIRE_FALSE(refused);
  CHECK(missing(refused.error().text, {in_sync ? "medium is lost" : "disk went away", "opened anew"}).empty());
  CHECK(batch.records() == 1);
  CHECK(queue->stats().failure.has_value());
  CHECK(queue->stats().records == 0);
  CHECK_FALSE(queue->close());
  CHECK(answers.all().size() == 2);
  CHECK(log.keys().size() == 1);
}

TEST_CASE("store queue: a failed sync of batches that relaxed has acknowledged stops the queue", "[store][queue]") {
  scripted_log log;
  auto options = relaxed();
  options.sync_interval = std::chrono::microseconds(100);
  log.fail_sync();
  answer_log answers;
  auto queue = start(log, options);
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  log.wait_for_syncs(1);
  // Either it is refused, or it was before the failure was known and is answered with it.
  if (queue->commit(batch_with(2), answers.expect(2)))
    CHECK(answers.wait_for(2).back().second == errc::io_error);
  CHECK_FALSE(queue->close());
}

TEST_CASE("store queue: a batch beyond the limits is refused unchanged and accepted later", "[store][queue]") {
  scripted_log log;
  commit_queue_options options;
  const bool by_bytes = GENERATE(false, true);
  if (by_bytes)
    options.max_bytes = batch_with(1).bytes() + batch_with(2).bytes();
  else
    options.max_batches = 2;
  answer_log answers;
  auto queue = start(log, options);
  log.hold();
  // Batches that are being written count too.
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  log.wait_until_writing(1);
  REQUIRE(queue->commit(batch_with(2), answers.expect(2)));
  auto third = batch_with(3);
  const auto refused = queue->commit(std::move(third), answers.expect(3));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(third.records() == 1);
  CHECK(queue->stats().refused == 1);
  log.release();
  answers.wait_for(2);
  REQUIRE(queue->commit(std::move(third), answers.expect(3)));
  answers.wait_for(3);
  CHECK(log.keys() == std::vector<std::string>{page_key(1), page_key(2), page_key(3)});
}

TEST_CASE("store queue: a batch that is larger than the queue is accepted when it is alone", "[store][queue]") {
  scripted_log log;
  commit_queue_options options;
  options.max_bytes = 1;
  answer_log answers;
  auto queue = start(log, options);
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  CHECK(answers.wait_for(1).front().second == errc::ok);
  REQUIRE(queue->commit(batch_with(2), answers.expect(2)));
  CHECK(answers.wait_for(2).back().second == errc::ok);
}

TEST_CASE("store queue: a callback may commit the next batch, even where one batch is the limit", "[store][queue]") {
  scripted_log log;
  commit_queue_options options;
  options.max_batches = 1;
  answer_log answers;
  auto queue = start(log, options);
  std::atomic<bool> taken = false;
  REQUIRE(queue->commit(batch_with(1),
                        [&](result<void>) { taken = queue->commit(batch_with(2), answers.expect(2)).has_value(); }));
  answers.wait_for(1);
  CHECK(taken);
  REQUIRE(queue->close());
}

TEST_CASE("store queue: closing answers all waiting batches and accepts no more", "[store][queue]") {
  scripted_log log;
  answer_log answers;
  auto queue = start(log, GENERATE(true, false) ? relaxed() : commit_queue_options{});
  log.hold();
  for (std::uint64_t n = 0; n < 100; ++n)
    REQUIRE(queue->commit(batch_with(n), answers.expect(n)));
  bool closed_well = false;
  std::thread closer([&] { closed_well = queue->close().has_value(); });
  while (queue->commit(batch_with(1000), answers.expect(1000)))
    std::this_thread::yield(); // until the closer got there
  const auto accepted = queue->stats().batches;
  log.release();
  closer.join();
  CHECK(closed_well);
  const auto all = answers.all();
  CHECK(all.size() == accepted);
  for (std::uint64_t n = 0; n < 100; ++n)
    CHECK(all[n] == std::pair(n, errc::ok));
  const auto refused = queue->commit(batch_with(1), answers.expect(1));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::shutting_down);
  CHECK(log.events().ends_with("s "));
  CHECK(queue->close());
}

TEST_CASE("many threads: each batch is written and answered once, in the order of its thread", "[store][queue]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  constexpr std::uint64_t threads = 8;
  constexpr std::uint64_t batches = 300;
  scripted_log log;
  commit_queue_options options = seed % 2 == 0 ? relaxed() : commit_queue_options{};
  options.max_batches = 5; // so that some are refused and come again
  options.max_group_bytes = 3 * batch_with(0).bytes();
  answer_log answers;
  auto queue = start(log, options);
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (std::uint64_t i = 0; i < batches; ++i) {
        const auto n = t * batches + i;
        auto batch = random() % 10 == 0 ? batch_without(n) : batch_with(n);
        while (!queue->commit(std::move(batch), answers.expect(n)))
          std::this_thread::yield();
      }
    });
  for (auto& worker : workers)
    worker.join();
  REQUIRE(queue->close());
  const auto all = answers.all();
  const auto keys = log.keys();
  REQUIRE(all.size() == threads * batches);
  REQUIRE(keys.size() == all.size());
  std::map<std::uint64_t, std::uint64_t> next;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [n, code] = all[i];
    CHECK(code == errc::ok);
    CHECK(keys[i] == page_key(n));
    CHECK(n % batches == next[n / batches]++);
  }
  CHECK(queue->stats().records == threads * batches);
}

TEST_CASE("store queue: a log without space is retried until there is some, and loses nothing", "[store][queue]") {
  const bool at_sync = GENERATE(false, true);
  scripted_log log;
  auto options = commit_queue_options{};
  options.first_pause = std::chrono::milliseconds(1);
  options.longest_pause = std::chrono::milliseconds(4);
  answer_log answers;
  auto queue = start(log, options);
  log.fill(at_sync);
  REQUIRE(queue->commit(batch_with(1), answers.expect(1)));
  log.wait_for_recoveries(3);
  // Later batches wait too.
  REQUIRE(queue->commit(batch_with(2), answers.expect(2)));
  const auto stats = queue->stats();
  REQUIRE(stats.no_room.has_value());
  CHECK(stats.no_room->code == errc::no_space);
  CHECK_FALSE(stats.failure.has_value());
  CHECK(stats.queued_batches == 2);
  log.make_room();
  CHECK(answers.wait_for(2) == std::vector<std::pair<std::uint64_t, errc>>{{1, errc::ok}, {2, errc::ok}});
  REQUIRE(queue->close());
  CHECK_FALSE(queue->stats().no_room.has_value());
  CHECK(queue->stats().records == 2);
  // The batch that was accepted first was written again, before the other one.
  CHECK(log.keys() == std::vector{page_key(1), page_key(1), page_key(2)});
  CHECK(log.events().ends_with("r w1 s w1 s "));
}

TEST_CASE("store queue: a queue that ends without space reports it, and so does one that cannot continue",
          "[store][queue]") {
  scripted_log log;
  auto options = commit_queue_options{};
  options.first_pause = std::chrono::milliseconds(1);
  auto queue = start(log, options);
  log.fill();
  std::optional<result<void>> answer;
  REQUIRE(queue->commit(batch_with(1), [&](result<void> x) { answer = std::move(x); }));
  log.wait_for_recoveries(1);
  SECTION("shutdown") {}
  SECTION("the log is damaged") {
    log.fail_recovery(errc::corrupt);
  }
  const auto closed = queue->close();
  REQUIRE_FALSE(closed);
  CHECK(closed.error().text.find("opened anew") != std::string::npos);
  REQUIRE(answer.has_value());
  CHECK_FALSE(answer->has_value());
}

} // namespace store_queue_test
