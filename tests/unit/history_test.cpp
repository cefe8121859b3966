#include "metrics/history.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <memory>

namespace history_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr namespace_id one{1, 1};
constexpr namespace_id two{2, 2};

activity_totals totals(std::uint64_t asked, std::uint64_t found, std::uint64_t loaded) {
  activity_totals out;
  out.namespaces = {{one, asked / 10, asked, found, found / 2, found / 5, found / 10, asked / 100}};
  out.ranks = {{one, 0, loaded, loaded / 2}, {one, 1, loaded, 0}};
  return out;
}

timestamp at(duration x) {
  return timestamp{} + 1h + x;
}

} // namespace

TEST_CASE("history: a quantile lies in its bucket", "[history]") {
  const auto x = std::make_unique<request_histogram>();
  request_histogram::counts counts{};
  std::uint64_t ignored = 0;
  CHECK(request_histogram::quantile(counts, 0.5) == 0ns);
  for (int i = 0; i < 99; ++i)
    x->add(3us);
  x->add(1s);
  x->add_to(counts, ignored);
  const auto p50 = request_histogram::quantile(counts, 0.5);
  CHECK(p50 > 2us);
  CHECK(p50 <= 4us);
  CHECK(request_histogram::quantile(counts, 0.99) <= 4us);
  const auto longest = request_histogram::quantile(counts, 1);
  CHECK(longest > 500ms);
  CHECK(longest <= 1100ms);
  CHECK(request_histogram::quantile(counts, 7) == longest);
}

TEST_CASE("history: activity between two samples is the difference of their totals", "[history]") {
  const auto x = activity_between(totals(100, 50, 1000), totals(300, 150, 5000), 2s);
  CHECK(x.lookups == 20);
  CHECK(x.asked_keys == 200);
  CHECK(x.found_keys == 100);
  CHECK(x.memory_keys == 50);
  CHECK(x.disk_keys == 20);
  CHECK(x.peer_keys == 10);
  CHECK(x.evicted_keys == 2);
  CHECK(x.loaded_bytes == 8000);
  CHECK(x.saved_bytes == 2000);
  CHECK(x.hit_ratio() == 0.5);
  CHECK(x.load_gbps() == Approx(4e-6));
  CHECK(activity_between(totals(1, 1, 1), totals(1, 1, 1), 2s).hit_ratio() == std::nullopt);
  CHECK(activity{}.load_gbps() == 0);
}

TEST_CASE("history: added and removed namespaces and ranks do not count backwards", "[history]") {
  auto before = totals(100, 50, 1000);
  before.namespaces.push_back({two, 1000, 1000, 1000, 1000});
  before.ranks.push_back({two, 0, 1'000'000, 1'000'000});
  before.sort();
  SECTION("one is removed") {
    const auto x = activity_between(before, totals(110, 50, 1000), 1s);
    CHECK(x.asked_keys == 10);
    CHECK(x.loaded_bytes == 0);
  }
  SECTION("one is added") {
    CHECK(activity_between(totals(100, 50, 1000), before, 1s).asked_keys == 1000);
    CHECK(activity_between(totals(100, 50, 1000), before, 1s, two).asked_keys == 1000);
    CHECK(activity_between(totals(100, 50, 1000), before, 1s, one).asked_keys == 0);
  }
  SECTION("one has restarted from zero") {
    CHECK(activity_between(before, totals(5, 5, 5), 1s).asked_keys == 0);
  }
}

TEST_CASE("history: a rank has its own share of the activity", "[history]") {
  const auto before = totals(100, 50, 1000);
  const auto after = totals(300, 150, 5000);
  CHECK(activity_between(before, after, 1s, one, 0).saved_bytes == 2000);
  CHECK(activity_between(before, after, 1s, one, 1).saved_bytes == 0);
  CHECK(activity_between(before, after, 1s, one, 1).loaded_bytes == 4000);
  CHECK(activity_between(before, after, 1s, one, 2).loaded_bytes == 0);
}

TEST_CASE("history: a history keeps one hour and what it needs for the last minute", "[history]") {
  history x;
  CHECK(x.minute_ago() == nullptr);
  x.observe(at(0s), 0, totals(0, 0, 0));
  CHECK(x.samples().empty());
  CHECK(x.minute_ago()->at == at(0s));
  for (std::int64_t i = 1; i <= 1000; ++i)
    x.observe(at(i * history::interval), 10 * i, totals(static_cast<std::uint64_t>(100 * i), 0, 0));
  CHECK(x.samples().size() == history::samples_most);
  CHECK(x.samples().back().at == 10'000);
  CHECK(x.samples().front().at == 10'000 - 3590);
  CHECK(x.samples().back().what.asked_keys == 100);
  CHECK(x.samples().back().what.over == history::interval);
  CHECK(x.minute_ago()->at == at(10'000s - 60s));
}

TEST_CASE("history: a history keeps six hours in samples of a minute", "[history]") {
  history x;
  for (std::int64_t i = 0; i <= 12; ++i) {
    x.observe(at(i * history::interval), 10 * i, totals(static_cast<std::uint64_t>(100 * i), 0, 0));
    CHECK(x.long_samples().size() == static_cast<std::size_t>(i) / 6);
  }
  REQUIRE(x.long_samples().size() == 2);
  CHECK(x.long_samples().front().at == 60);
  CHECK(x.long_samples().back().at == 120);
  for (const auto& sample : x.long_samples()) {
    CHECK(sample.what.over == history::long_interval);
    CHECK(sample.what.asked_keys == 600);
  }
  for (std::int64_t i = 13; i <= 10'000; ++i)
    x.observe(at(i * history::interval), 10 * i, totals(static_cast<std::uint64_t>(100 * i), 0, 0));
  CHECK(x.long_samples().size() == history::samples_most);
  CHECK(x.long_samples().back().at - x.long_samples().front().at == 359 * 60);
}

TEST_CASE("history: loaded pages are counted by tier, and latencies by what was waited for", "[history]") {
  auto before = totals(0, 0, 0);
  auto after = totals(0, 0, 0);
  after.ranks[0].loaded_pages = 10;
  after.ranks[0].memory_pages = 7;
  after.ranks[1].loaded_pages = 1;
  before.peer_pages = 5;
  after.peer_pages = 9;
  before.in_flight = 100;
  after.in_flight = 3;
  after.memory_load_times[1] = 1;
  after.disk_load_times[10] = 1;
  after.save_times[5] = 1;
  const auto x = activity_between(before, after, 1s);
  CHECK(x.memory_pages == 7);
  CHECK(x.disk_pages() == 4);
  CHECK(x.peer_pages == 4);
  CHECK(x.in_flight == 3);
  CHECK(x.lookup_p99 == 0ns);
  CHECK(x.memory_load_p99 <= 2us);
  CHECK(x.memory_load_p99 > 0ns);
  CHECK(x.save_p50 > x.memory_load_p99);
  CHECK(x.disk_load_p50 > x.save_p99);
  CHECK(activity_between(before, after, 1s, one, 0).memory_pages == 7);
  CHECK(activity_between(before, after, 1s, one, 1).disk_pages() == 1);
}

TEST_CASE("history: a client has its own share of the activity", "[history]") {
  auto before = totals(0, 0, 0);
  auto after = before;
  before.clients = {{7, 100, 10}, {3, 1, 1}};
  after.clients = {{9, 5, 6}, {7, 300, 10}};
  before.sort();
  after.sort();
  const auto x = activity_of_client(before, after, 2s, 7);
  CHECK(x.loaded_bytes == 200);
  CHECK(x.saved_bytes == 0);
  CHECK(x.over == 2s);
  CHECK(activity_of_client(before, after, 2s, 9).saved_bytes == 6);
  CHECK(activity_of_client(before, after, 2s, 3).loaded_bytes == 0);
}

TEST_CASE("history: a late sample covers the whole time since the previous one", "[history]") {
  history x;
  x.observe(at(0s), 0, totals(0, 0, 0));
  x.observe(at(45s), 45, totals(450, 0, 0));
  REQUIRE(x.samples().size() == 1);
  CHECK(x.samples().front().what.over == 45s);
}

} // namespace history_test
