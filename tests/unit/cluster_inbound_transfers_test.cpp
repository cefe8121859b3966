#include "actors/cluster/pages/inbound_transfers.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace cluster_inbound_transfers_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using test::key;
using test::ms;
using test::t0;

transfer_result all_ok(std::size_t pages) {
  transfer_result out;
  out.results.items.assign(pages, static_cast<std::uint8_t>(errc::ok));
  return out;
}

/// Provides the sender and records the answers and the end.
struct harness {
  inbound_transfers::sender sender() {
    return [this](transfer_task work, inbound_transfers::receiver then) {
      asked.emplace_back(std::move(work), std::move(then));
    };
  }
  bool ask(std::uint64_t number, std::uint32_t pages, timestamp now = t0) {
    packed<key_digest> keys;
    packed<std::uint32_t> blocks;
    for (std::uint32_t i = 0; i < pages; ++i) {
      keys.items.push_back(key(i));
      blocks.items.push_back(i);
    }
    return all->ask(number, keys, blocks, now, [this](const result<transfer_result>& x) { answers.push_back(x); });
  }
  void end(std::uint64_t number) {
    all->end(number, [this](const sending_counts& x) {
      CHECK_FALSE(ended);
      ended = x;
    });
  }

  std::shared_ptr<inbound_transfers> all = std::make_shared<inbound_transfers>();
  std::vector<result<transfer_result>> answers;
  std::optional<sending_counts> ended;
  /// Unanswered requests are answered when they are destroyed.
  std::vector<std::pair<transfer_task, inbound_transfers::receiver>> asked;
};

} // namespace

TEST_CASE("inbound transfers: an expected transfer is requested with the remaining time", "[cluster]") {
  harness d;
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  CHECK_FALSE(d.ask(8, 1));
  REQUIRE(d.ask(7, 2, t0 + 100 * ms));
  REQUIRE(d.asked.size() == 1);
  CHECK(d.asked[0].first.deadline == 400 * ms);
  CHECK(d.asked[0].first.keys.items == std::vector<key_digest>{key(0), key(1)});
  CHECK(d.asked[0].first.blocks.items == std::vector<std::uint32_t>{0, 1});
  // The receiving side has no event to wait for.
  CHECK(d.asked[0].first.ready_event == 0);
  d.asked[0].second(all_ok(2));
  REQUIRE(d.answers.size() == 1);
  CHECK(d.answers[0]);
  // It is past its deadline, and the deadline does not become unlimited.
  REQUIRE(d.ask(7, 1, t0 + 600 * ms));
  CHECK(d.asked[1].first.deadline == 1 * ms);
}

TEST_CASE("inbound transfers: the end is reported after all answers, and later requests are refused", "[cluster]") {
  harness d;
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  REQUIRE(d.ask(7, 2));
  REQUIRE(d.ask(7, 3));
  d.end(7);
  CHECK_FALSE(d.ended);
  CHECK_FALSE(d.ask(7, 1));
  auto some = all_ok(2);
  some.results.items[1] = static_cast<std::uint8_t>(errc::corrupt);
  some.from_files = 1;
  d.asked[0].second(some);
  CHECK_FALSE(d.ended);
  d.asked[1].second(fail(errc::unreachable, "gone"));
  REQUIRE(d.ended);
  CHECK(d.ended->failed == 4);
  CHECK(d.ended->from_files == 1);
  CHECK(d.all->size() == 0);
  // A second answer is none.
  d.asked[0].second(all_ok(2));
  CHECK(d.answers.size() == 2);
}

TEST_CASE("inbound transfers: the end is reported at once when no request is in progress", "[cluster]") {
  harness d;
  d.end(1);
  REQUIRE(d.ended);
  d.ended.reset();
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  REQUIRE(d.ask(7, 1));
  d.asked[0].second(all_ok(1));
  d.end(7);
  REQUIRE(d.ended);
  CHECK(d.ended->failed == 0);
}

TEST_CASE("inbound transfers: a dropped request is answered with an error and its transfer ends", "[cluster]") {
  harness d;
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  REQUIRE(d.ask(7, 2));
  d.end(7);
  d.asked.clear();
  REQUIRE(d.answers.size() == 1);
  CHECK(d.answers[0].error().code == errc::unreachable);
  REQUIRE(d.ended);
  CHECK(d.ended->failed == 2);
  // The same holds for a sender that drops the request at once.
  d.ended.reset();
  d.all->expect(
      8, [](const transfer_task&, const inbound_transfers::receiver&) {}, t0);
  REQUIRE(d.ask(8, 1));
  CHECK(d.answers.size() == 2);
}

TEST_CASE("inbound transfers: requests in progress outlive their requester", "[cluster]") {
  harness d;
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  REQUIRE(d.ask(7, 2));
  d.end(7);
  const std::weak_ptr<inbound_transfers> is_there = std::exchange(d.all, nullptr);
  CHECK_FALSE(is_there.expired());
  d.asked.clear();
  CHECK(d.ended);
  CHECK(is_there.expired());
}

TEST_CASE("inbound transfers: the receiver is answered before the end is reported", "[cluster]") {
  harness d;
  d.all->expect(7, d.sender(), t0 + 500 * ms);
  std::vector<int> order;
  REQUIRE(d.all->ask(7, {}, {}, t0, [&](const result<transfer_result>&) { order.push_back(1); }));
  d.all->end(7, [&](const sending_counts&) { order.push_back(2); });
  d.asked[0].second(all_ok(0));
  CHECK(order == std::vector{1, 2});
}

TEST_CASE("inbound transfers: concurrent answers and ends are reported once each", "[cluster]") {
  const auto all = std::make_shared<inbound_transfers>();
  constexpr std::uint64_t rounds = 2000;
  std::atomic<std::uint64_t> answered = 0;
  std::atomic<std::uint64_t> ended = 0;
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    inbound_transfers::receiver then;
    all->expect(
        i, [&](const transfer_task&, inbound_transfers::receiver x) { then = std::move(x); }, t0);
    REQUIRE(all->ask(i, {{key(1)}}, {{1}}, t0, [&](const result<transfer_result>&) { ++answered; }));
    std::thread answers([&then] { std::exchange(then, nullptr)(all_ok(1)); });
    all->end(i, [&](const sending_counts& x) { ended += x.failed == 0 ? 1 : 0; });
    answers.join();
  }
  CHECK(answered == rounds);
  CHECK(ended == rounds);
  CHECK(all->size() == 0);
}

} // namespace cluster_inbound_transfers_test
