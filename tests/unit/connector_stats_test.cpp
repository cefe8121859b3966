#include "connector/stats.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace connector_stats_test {

using namespace troupe::connector;

namespace {

using kind = metric_description::kind;
using samples = std::vector<double>;

/// Calls `visit` with name and value of each member. A member that is added breaks the build here, until it is named.
template <class Stats, class Visit>
void for_each_member(Stats& stats, Visit visit) {
  auto& [save_duration, load_duration, num_failed_save, num_failed_load, num_transfer_task, saved_bytes, loaded_bytes,
         skipped_pages, refused_pages, hit_tokens, disk_tokens, queue_wait, metadata_duration, queue_depth] = stats;
  visit("save_duration", save_duration);
  visit("load_duration", load_duration);
  visit("num_failed_save", num_failed_save);
  visit("num_failed_load", num_failed_load);
  visit("num_transfer_task", num_transfer_task);
  visit("saved_bytes", saved_bytes);
  visit("loaded_bytes", loaded_bytes);
  visit("skipped_pages", skipped_pages);
  visit("refused_pages", refused_pages);
  visit("hit_tokens", hit_tokens);
  visit("disk_tokens", disk_tokens);
  visit("queue_wait", queue_wait);
  visit("metadata_duration", metadata_duration);
  visit("queue_depth", queue_depth);
}

/// Another value in each member.
connector_stats numbered(std::uint64_t from) {
  connector_stats stats;
  for_each_member(stats, [&from](std::string_view, auto& x) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(x)>, samples>)
      x.push_back(static_cast<double>(from++));
    else
      x = from++;
  });
  return stats;
}

std::map<std::string, double> reduced(const connector_stats& stats) {
  std::map<std::string, double> out;
  for (const auto& [name, value] : stats.reduce())
    CHECK(out.emplace(name, value).second);
  return out;
}

const metric_description& described(std::string_view name) {
  const auto& all = metric_descriptions();
  const auto found = std::ranges::find(all, name, &metric_description::name);
  REQUIRE(found != all.end());
  return *found;
}

bool near(double a, double b) {
  return std::abs(a - b) < 1e-9;
}

} // namespace

TEST_CASE("connector stats: statistics begin empty", "[connector]") {
  const connector_stats stats;
  CHECK(stats.is_empty());
  for (const auto& [name, value] : stats.reduce()) {
    INFO(name);
    CHECK(value == 0);
  }
}

TEST_CASE("connector stats: statistics are empty until a task has ended", "[connector]") {
  connector_stats saved;
  saved.save_duration.push_back(0.1);
  saved.num_transfer_task = 1;
  CHECK_FALSE(saved.is_empty());
  CHECK(reduced(saved)["Num save task success"] == 1);
  CHECK(reduced(saved)["Num load task success"] == 0);

  connector_stats failed;
  failed.num_failed_load = 1;
  failed.num_transfer_task = 1;
  CHECK_FALSE(failed.is_empty());
  CHECK(reduced(failed)["Num load task failed"] == 1);
  CHECK(reduced(failed)["Num save task failed"] == 0);
}

TEST_CASE("connector stats: statistics of two workers are merged", "[connector]") {
  connector_stats first;
  first.save_duration = {0.1};
  first.load_duration = {0.2};
  first.num_transfer_task = 2;
  connector_stats second;
  second.save_duration = {0.3};
  second.num_failed_load = 1;
  second.num_transfer_task = 2;
  first.aggregate(second);
  CHECK(first.save_duration == samples{0.1, 0.3});
  CHECK(first.load_duration == samples{0.2});
  CHECK(first.num_failed_save == 0);
  CHECK(first.num_failed_load == 1);
  CHECK(first.num_transfer_task == 4);
}

TEST_CASE("connector stats: merging statistics leaves out no member", "[connector]") {
  auto joined = numbered(100);
  joined.aggregate(numbered(1000));
  std::uint64_t at = 0;
  for_each_member(joined, [&at](std::string_view name, const auto& x) {
    INFO(name);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(x)>, samples>)
      CHECK(x == samples{static_cast<double>(100 + at), static_cast<double>(1000 + at)});
    else
      CHECK(x == 1100 + 2 * at);
    ++at;
  });
}

TEST_CASE("connector stats: statistics are reduced to what vLLM prints", "[connector]") {
  connector_stats stats;
  stats.save_duration = {1.0, 3.0};
  stats.num_transfer_task = 2;
  const auto values = reduced(stats);
  CHECK(values.at("Num transfers task") == 2);
  CHECK(values.at("Num save task success") == 2);
  CHECK(values.at("Num save task failed") == 0);
  CHECK(values.at("Avg save duration (ms)") == 2000);
  CHECK(values.at("P90 save duration (ms)") == 2800);
  CHECK(values.at("Avg load duration (ms)") == 0);
  CHECK(values.at("P90 load duration (ms)") == 0);
}

TEST_CASE("connector stats: names of reduced statistics, in their order", "[connector]") {
  std::vector<std::string> names;
  for (const auto& [name, _] : connector_stats{}.reduce())
    names.push_back(name);
  CHECK(names == std::vector<std::string>{
                     "Num transfers task",
                     "Num save task success",
                     "Num save task failed",
                     "Num load task success",
                     "Num load task failed",
                     "Avg save duration (ms)",
                     "P90 save duration (ms)",
                     "Avg load duration (ms)",
                     "P90 load duration (ms)",
                     "Saved bytes",
                     "Loaded bytes",
                     "Skipped pages",
                     "Refused pages",
                     "Hit tokens",
                     "Disk tokens",
                     "Avg queue wait (ms)",
                     "P90 queue wait (ms)",
                     "Avg metadata duration (ms)",
                     "P90 metadata duration (ms)",
                     "Queue depth",
                 });
}

TEST_CASE("connector stats: every member is printed", "[connector]") {
  const auto values = reduced(numbered(1));
  const std::map<std::string, double> expected{
      {"Num transfers task", 5},
      {"Num save task success", 1},
      {"Num save task failed", 3},
      {"Num load task success", 1},
      {"Num load task failed", 4},
      {"Avg save duration (ms)", 1000},
      {"P90 save duration (ms)", 1000},
      {"Avg load duration (ms)", 2000},
      {"P90 load duration (ms)", 2000},
      {"Saved bytes", 6},
      {"Loaded bytes", 7},
      {"Skipped pages", 8},
      {"Refused pages", 9},
      {"Hit tokens", 10},
      {"Disk tokens", 11},
      {"Avg queue wait (ms)", 12000},
      {"P90 queue wait (ms)", 12000},
      {"Avg metadata duration (ms)", 13000},
      {"P90 metadata duration (ms)", 13000},
      {"Queue depth", 14},
  };
  CHECK(values == expected);
}

TEST_CASE("connector stats: durations are printed with 3 decimals", "[connector]") {
  connector_stats stats;
  stats.load_duration = {0.0012344, 0.0012349};
  CHECK(reduced(stats)["Avg load duration (ms)"] == 1.235);
  stats.load_duration = {1.0 / 3};
  CHECK(reduced(stats)["Avg load duration (ms)"] == 333.333);
  CHECK(reduced(stats)["P90 load duration (ms)"] == 333.333);
  stats.load_duration = {4e-7};
  CHECK(reduced(stats)["Avg load duration (ms)"] == 0);
}

TEST_CASE("connector stats: statistics restart from empty after they were taken", "[connector]") {
  auto stats = numbered(1);
  stats.num_transfer_task = 2;
  const auto before = stats;
  const auto taken = stats.clone_and_reset();
  CHECK(taken == before);
  CHECK(taken.num_transfer_task == 2);
  CHECK(stats == connector_stats{});
  CHECK(stats.is_empty());
  CHECK(stats.clone_and_reset() == connector_stats{});
}

TEST_CASE("connector stats: percentiles are interpolated linearly between ranks", "[connector]") {
  const samples four{3, 1, 10, 2};
  CHECK(percentile(four, 0) == 1);
  CHECK(near(percentile(four, 10), 1.3));
  CHECK(percentile(four, 50) == 2.5);
  CHECK(near(percentile(four, 90), 7.9));
  CHECK(near(percentile(four, 99), 9.79));
  CHECK(percentile(four, 100) == 10);
  CHECK(percentile({}, 90) == 0);
  CHECK(percentile({7}, 0) == 7);
  CHECK(percentile({7}, 90) == 7);
  CHECK(percentile({5, 5, 5}, 37) == 5);
  CHECK(percentile(four, -1) == 1);
  CHECK(percentile(four, 101) == 10);
  CHECK(percentile(four, std::numeric_limits<double>::quiet_NaN()) == 1);
}

TEST_CASE("connector stats: percentiles are those of the sorted samples", "[connector]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 1000; ++round) {
    samples x(1 + random() % 30);
    std::ranges::generate(x, [&random] { return static_cast<double>(random() % 10); });
    const auto percent = static_cast<double>(random() % 1001) / 10;
    auto sorted = x;
    std::ranges::sort(sorted);
    const auto position = percent / 100 * static_cast<double>(x.size() - 1);
    const auto below = sorted[static_cast<std::size_t>(std::floor(position))];
    const auto above = sorted[static_cast<std::size_t>(std::ceil(position))];
    CHECK(near(percentile(x, percent), below + (above - below) * (position - std::floor(position))));
  }
}

TEST_CASE("connector stats: every member is a metric, once", "[connector]") {
  connector_stats stats;
  std::size_t members = 0;
  for_each_member(stats, [&members](std::string_view name, const auto& x) {
    INFO(name);
    ++members;
    const auto& all = metric_descriptions();
    REQUIRE(std::ranges::count(all, name, &metric_description::member) == 1);
    const auto& metric = *std::ranges::find(all, name, &metric_description::member);
    // A list is observed value by value; a counter is added once and must be an integer.
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(x)>, samples>) {
      CHECK(metric.what == kind::histogram);
    } else {
      static_assert(std::is_same_v<std::remove_cvref_t<decltype(x)>, std::uint64_t>);
      CHECK(metric.what == (name == "queue_depth" ? kind::gauge : kind::counter));
    }
  });
  CHECK(metric_descriptions().size() == members);
}

TEST_CASE("connector stats: metrics have the names of vLLM or begin with the prefix of Troupe", "[connector]") {
  const samples buckets{0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0};
  CHECK(described("vllm:hf3fs_save_duration_seconds").what == kind::histogram);
  CHECK(described("vllm:hf3fs_save_duration_seconds").member == "save_duration");
  CHECK(described("vllm:hf3fs_save_duration_seconds").buckets == buckets);
  CHECK(described("vllm:hf3fs_load_duration_seconds").what == kind::histogram);
  CHECK(described("vllm:hf3fs_load_duration_seconds").member == "load_duration");
  CHECK(described("vllm:hf3fs_load_duration_seconds").buckets == buckets);
  CHECK(described("vllm:hf3fs_num_failed_save").what == kind::counter);
  CHECK(described("vllm:hf3fs_num_failed_save").member == "num_failed_save");
  CHECK(described("vllm:hf3fs_num_failed_load").what == kind::counter);
  CHECK(described("vllm:hf3fs_num_failed_load").member == "num_failed_load");

  std::set<std::string_view> names;
  for (const auto& metric : metric_descriptions()) {
    INFO(metric.name);
    CHECK(names.insert(metric.name).second);
    CHECK((metric.name.starts_with("vllm:hf3fs_") || metric.name.starts_with("vllm:troupe_")));
    CHECK_FALSE(metric.name.ends_with("_total"));
    CHECK_FALSE(metric.help.empty());
    CHECK(metric.buckets.empty() == (metric.what != kind::histogram));
    CHECK(std::ranges::is_sorted(metric.buckets));
    CHECK(std::ranges::adjacent_find(metric.buckets) == metric.buckets.end());
    CHECK(metric.name.ends_with("_seconds") == (metric.what == kind::histogram));
  }
  CHECK(std::ranges::count_if(names, [](std::string_view x) { return x.starts_with("vllm:hf3fs_"); }) == 4);
}

} // namespace connector_stats_test
