#include "connector/scheduler/load_pace.hpp"
#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace connector_load_pace_test {

using namespace troupe;
using namespace troupe::test;
using connector::disk_hits;
using connector::fading_pace;
using connector::hit_sources;
using connector::load_pace;
using connector::load_pace_options;

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t tokens_of_page = 16;

duration in_seconds(double x) {
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(x));
}

load_pace_options when_faster() {
  load_pace_options out;
  out.rule = disk_hits::when_faster;
  return out;
}

/// Marks of pages: "m" in memory, "d" on disk.
std::vector<std::uint8_t> marks(const std::string& text) {
  std::vector<std::uint8_t> out;
  for (const auto c : text)
    out.push_back(c == 'd' ? 1 : 0);
  return out;
}

std::uint32_t worth(load_pace& pace, const std::vector<std::uint8_t>& on_disk, std::uint32_t first = 0) {
  return pace.worth_loading(first, static_cast<std::uint32_t>(on_disk.size()), on_disk, tokens_of_page);
}

/// A rule that has measured the time for one thousand tokens of each kind, in milliseconds.
load_pace that_knows(int memory, int disk, int computed, load_pace_options options = when_faster()) {
  load_pace out(options);
  auto now = start_time;
  for (int i = 0; i < 8; ++i) {
    out.step(now, 1000, i > 0);
    now += milliseconds(computed);
  }
  out.loaded({.memory = 1000}, milliseconds(memory), true, 0, now);
  out.loaded({.disk = 1000}, milliseconds(disk), true, 0, now);
  return out;
}

/// The expected time of a hit that is loaded up to before `end` and computed from there on.
double expected(const load_pace& pace, const std::vector<std::uint8_t>& on_disk, std::uint32_t first,
                std::uint32_t end) {
  double out = 0;
  for (auto i = first; i < on_disk.size(); ++i) {
    const auto computed = pace.computed_token().value();
    const auto memory = std::min(pace.memory_token().value_or(0), computed);
    out += i >= end ? computed : on_disk[i] != 0 ? pace.disk_token().value() : memory;
  }
  return out * tokens_of_page;
}

/// The minimum over all ends in one pass: a loaded page takes `loaded`, and all others take `computed`.
template <class Loaded>
double least_of(const std::vector<std::uint8_t>& on_disk, std::uint32_t first, double computed, Loaded loaded) {
  auto now = computed * static_cast<double>(on_disk.size() - first);
  auto least = now;
  for (auto i = first; i < on_disk.size(); ++i) {
    now += loaded(i) - computed;
    least = std::min(least, now);
  }
  return least * tokens_of_page;
}

} // namespace

TEST_CASE("connector load pace: a rate is an average over all tokens that weights older ones less", "[load_pace]") {
  fading_pace pace(std::chrono::seconds(10));
  CHECK_FALSE(pace.seconds_per_token());
  auto now = start_time;
  pace.add(100, 1, now);
  pace.add(300, 1, now);
  CHECK(*pace.seconds_per_token() == Approx(2.0 / 400));
  now += std::chrono::seconds(10);
  pace.add(200, 2, now);
  CHECK(*pace.seconds_per_token() == Approx((1.0 + 2) / (200 + 200)));
  // After a long time only the new sample counts, but the old rate is known until there is one.
  now += std::chrono::hours(5);
  CHECK(pace.seconds_per_token());
  pace.add(10, 1, now);
  CHECK(*pace.seconds_per_token() == Approx(0.1));
  pace.add(10, 0, now + std::chrono::hours(9));
  CHECK(*pace.seconds_per_token() > 0);
}

TEST_CASE("connector load pace: the time of steps is measured whether they are scheduled ahead or not", "[load_pace]") {
  // Prompts in two chunks, each behind steps that decode, and between pauses of any length.
  const bool ahead = GENERATE(false, true);
  load_pace pace(when_faster());
  std::mt19937 random(7);
  auto now = start_time;
  duration running{};
  const auto took = [](std::uint32_t tokens) { return milliseconds(10) + std::chrono::microseconds(100) * tokens; };
  const auto step = [&](std::uint32_t tokens, bool goes_on) {
    pace.step(now, tokens, goes_on);
    // The next step waits for this step or for the one before.
    const auto waits = ahead ? std::exchange(running, took(tokens)) : took(tokens);
    now += waits;
  };
  for (int i = 0; i < 20; ++i) {
    step(4096, false);
    step(4096, true);
    for (auto n = 3 + random() % 5; n > 0; --n)
      step(3, true);
    now += running + milliseconds(random() % 100'000);
    running = {};
  }
  REQUIRE(pace.computed_token());
  CHECK(*pace.computed_token() == Approx((0.010 + 0.4096) / 4096).epsilon(0.02));
}

TEST_CASE("connector load pace: steps with few tokens or before a pause are not measured", "[load_pace]") {
  load_pace pace(when_faster());
  auto now = start_time;
  for (int i = 0; i < 20; ++i) {
    pace.step(now, 200, true);
    now += milliseconds(5);
  }
  CHECK_FALSE(pace.computed_token());
  for (int i = 0; i < 20; ++i) {
    pace.step(now, 5000, false);
    now += std::chrono::seconds(50);
  }
  CHECK_FALSE(pace.computed_token());
  // Every other one waits for loads.
  for (int i = 0; i < 20; ++i) {
    pace.step(now, 5000, true, i % 2 == 0);
    now += std::chrono::seconds(2);
  }
  CHECK_FALSE(pace.computed_token());
}

TEST_CASE("connector load pace: loads are counted by their source", "[load_pace]") {
  load_pace pace(when_faster());
  pace.loaded({.memory = 1000}, milliseconds(100), true, 0, start_time);
  CHECK(*pace.memory_token() == Approx(1e-4));
  CHECK_FALSE(pace.disk_token());
  // Half of it from memory, which takes 50 ms.
  pace.loaded({.memory = 500, .disk = 500}, milliseconds(550), true, 0, start_time);
  CHECK(*pace.disk_token() == Approx(1e-3));
  // Loads of unknown source and quick failures are not measured, but a late failure counts as slow.
  auto other = that_knows(10, 20, 30);
  const auto before = *other.disk_token();
  other.loaded({.unknown = 1000}, milliseconds(900), true, 0, start_time);
  other.loaded({.disk = 1000}, milliseconds(1), false, 0, start_time);
  other.loaded({.memory = 1000}, milliseconds(900), false, 0, start_time);
  other.loaded({}, milliseconds(900), true, 0, start_time);
  CHECK(*other.disk_token() == before);
  CHECK(*other.memory_token() == Approx(1e-5));
  other.loaded({.disk = 1000}, std::chrono::seconds(30), false, 0, start_time + std::chrono::hours(1));
  CHECK(*other.disk_token() == Approx(0.03).epsilon(0.01));
}

TEST_CASE("connector load pace: a load that delays a step is charged the time beyond the compute time", "[load_pace]") {
  auto pace = that_knows(10, 100, 100);
  pace.loaded({.disk = 1000}, milliseconds(350), true, 2000, start_time + std::chrono::hours(5));
  CHECK(*pace.disk_token() == Approx(1.5e-4).epsilon(0.01));
}

TEST_CASE("connector load pace: all pages are loaded where the number on disk is unknown", "[load_pace]") {
  auto knows = that_knows(1, 1000, 10);
  CHECK(worth(knows, marks("mmdd")) == 2);
  CHECK(knows.worth_loading(0, 4, {}, tokens_of_page) == 4);
  load_pace pace(when_faster());
  CHECK(pace.worth_loading(0, 4, {}, tokens_of_page) == 4);
}

TEST_CASE("connector load pace: a hit is cut where the disk is slower than computing", "[load_pace]") {
  auto pace = that_knows(1, 30, 10);
  CHECK(worth(pace, marks("mmmmdddd")) == 4);
  CHECK(worth(pace, marks("dddd")) == 0);
  CHECK(worth(pace, marks("mmmm")) == 4);
  // One page on disk is worth the many behind it that are in memory, and these are worth none of the others.
  CHECK(worth(pace, marks("dmmmmmmm")) == 8);
  CHECK(worth(pace, marks("mmdmmmmmdddm")) == 8);
  CHECK(worth(pace, marks("dddmm")) == 0);
  // Tokens that the engine has do not count.
  CHECK(worth(pace, marks("ddddmmdd"), 4) == 6);
  CHECK(worth(pace, marks("dddd"), 4) == 4);
  auto fast = that_knows(1, 9, 10);
  CHECK(worth(fast, marks("mmmmdddd")) == 8);
  // Memory that is slower than computing is no reason to compute, and no reason to load from the disk.
  auto slow_memory = that_knows(40, 60, 10);
  CHECK(worth(slow_memory, marks("mmmm")) == 4);
  CHECK(worth(slow_memory, marks("mmdm")) == 2);
}

TEST_CASE("connector load pace: the rules always and never do not use measurements", "[load_pace]") {
  load_pace_options options;
  auto always = that_knows(1, 1000, 10, options);
  CHECK(worth(always, marks("mmdd")) == 4);
  options.rule = disk_hits::never;
  auto never = that_knows(10, 1, 1000, options);
  CHECK(worth(never, marks("mmdm")) == 2);
  CHECK(worth(never, marks("dmmm")) == 0);
  CHECK(worth(never, marks("dmmm"), 1) == 4);
}

TEST_CASE("connector load pace: one hit in sixteen is loaded further to measure the disk", "[load_pace]") {
  auto options = when_faster();
  options.explore_tokens = 3 * tokens_of_page;
  auto pace = that_knows(1, 30, 10, options);
  const auto hit = marks("mmddmdddd");
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 15; ++i)
      CHECK(worth(pace, hit) == 2);
    // Three pages from the disk, with the one in memory between them.
    CHECK(worth(pace, hit) == 6);
  }
  // Hits that are not cut are none of the sixteen.
  for (int i = 0; i < 100; ++i)
    CHECK(worth(pace, marks("mmmm")) == 4);
  for (int i = 0; i < 15; ++i)
    CHECK(worth(pace, hit) == 2);
  CHECK(worth(pace, hit) == 6);
  // The load may at most double the waiting time of the request, but has at least one page, however large it is.
  options.explore_every = 1;
  auto slow = that_knows(1, 45, 10, options);
  CHECK(worth(slow, marks("dddddddd")) == 2);
  options.explore_tokens = 1;
  auto small = that_knows(1, 1000, 10, options);
  CHECK(worth(small, marks("ddd")) == 1);
}

TEST_CASE("connector load pace: before any measurement, a part of one hit in sixteen is loaded", "[load_pace]") {
  auto options = when_faster();
  options.first_look_tokens = 2 * tokens_of_page;
  load_pace pace(options);
  const auto hit = marks("mddmdddd");
  // Also where neither load nor step is ever seen.
  for (int round = 0; round < 3; ++round) {
    CHECK(worth(pace, hit) == 4);
    for (int i = 0; i < 15; ++i)
      CHECK(worth(pace, hit) == 1);
  }
  // Pages in memory are loaded, and that is no exploration.
  load_pace other(options);
  CHECK(worth(other, marks("mmmm")) == 4);
  CHECK(worth(other, hit) == 4);
  CHECK(worth(other, hit) == 1);
  // Neither the time of the disk alone nor that of computing alone is enough.
  other.loaded({.disk = 1000}, milliseconds(1), true, 0, start_time);
  CHECK(worth(other, hit) == 1);
  auto now = start_time;
  for (int i = 0; i < 8; ++i) {
    other.step(now, 1000, i > 0);
    now += milliseconds(10);
  }
  CHECK(worth(other, hit) == 8);
}

TEST_CASE("connector load pace: the load decision never picks the slower way except to explore, and adapts to changes",
          "[load_pace]") {
  const auto seed = GENERATE(range(1U, 61U));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto number = [&](double from, double to) {
    // Orders of magnitude are evenly distributed.
    return from * std::pow(to / from, std::uniform_real_distribution<>()(random));
  };
  const auto options = when_faster();
  load_pace pace(options);
  auto now = start_time;
  double disk = number(3e-6, 1e-3);
  double memory = disk * number(0.03, 0.7);
  double computed = number(1e-5, 1e-4);
  std::uint32_t cut = 0;
  std::uint32_t explored = 0;
  double taken = 0;
  double best = 0;
  for (int n = 0; n < 1200; ++n) {
    if (n == 600) {
      // Another disk, and another load of the engine; from here on it must find out by exploring.
      disk = number(3e-6, 1e-3);
      memory = disk * number(0.03, 0.7);
      computed = number(1e-5, 1e-4);
      now += std::chrono::minutes(20);
    }
    for (int i = 0; i < 4; ++i) {
      pace.step(now, 2048, i > 0);
      now += in_seconds(computed * 2048);
    }
    std::vector<std::uint8_t> hit(1 + random() % 400);
    for (auto& mark : hit)
      mark = random() % 4 == 0 ? 0 : 1;
    if (random() % 2 == 0)
      std::sort(hit.begin(), hit.end());
    const auto first = static_cast<std::uint32_t>(random() % (hit.size() + 1));
    const auto pages = static_cast<std::uint32_t>(hit.size());
    const bool knows = pace.disk_token() && pace.computed_token();
    const auto end = worth(pace, hit, first);
    REQUIRE(end >= first);
    REQUIRE(end <= pages);
    if (knows && first < pages) {
      const auto from_memory = std::min(pace.memory_token().value_or(0), *pace.computed_token());
      const auto least = least_of(hit, first, *pace.computed_token(),
                                  [&](std::uint32_t i) { return hit[i] != 0 ? *pace.disk_token() : from_memory; });
      const auto chosen = expected(pace, hit, first, end);
      const bool further = chosen > least * (1 + 1e-9);
      explored += further ? 1 : 0;
      cut += further || end < pages ? 1 : 0;
      if (further) {
        const auto page = *pace.disk_token() * tokens_of_page;
        CHECK(chosen - least <= *pace.disk_token() * options.explore_tokens + page);
        CHECK(chosen - least <= *pace.computed_token() * (pages - first) * tokens_of_page + page);
      }
    }
    // The real time, and the time with perfect knowledge.
    const auto truth = [&](std::uint32_t to) {
      double out = 0;
      for (auto i = first; i < pages; ++i)
        out += i >= to ? computed : hit[i] != 0 ? disk : std::min(memory, computed);
      return out * tokens_of_page;
    };
    const auto least = least_of(hit, first, computed,
                                [&](std::uint32_t i) { return hit[i] != 0 ? disk : std::min(memory, computed); });
    // It may be wrong while it adapts to a change.
    if (n % 600 > 300) {
      taken += truth(end);
      best += least;
    }
    const auto loaded_disk =
        static_cast<std::uint32_t>(std::count(hit.begin() + first, hit.begin() + end, 1)) * tokens_of_page;
    const auto loaded_memory = (end - first) * tokens_of_page - loaded_disk;
    const auto took = loaded_disk * disk + loaded_memory * memory;
    now += in_seconds(took * std::uniform_real_distribution<>(0.8, 1.25)(random));
    if (end > first)
      pace.loaded({.memory = loaded_memory, .disk = loaded_disk}, in_seconds(took), true, 0, now);
    now += milliseconds(random() % 2000);
  }
  CHECK(explored <= cut / options.explore_every + 1);
  CHECK(taken <= best * 1.15);
}

// -- in the scheduler half ------------------------------------------------------------------------------------------

namespace {

scheduler_options options_with(disk_hits rule) {
  auto out = hf3fs_options();
  out.pace.rule = rule;
  return out;
}

} // namespace

TEST_CASE("connector load pace: a hit is cut at the first page on disk, and computed pages are not saved again",
          "[load_pace]") {
  scheduler_harness harness(options_with(disk_hits::never));
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  CHECK(harness.lookups.front().work.report_on_disk);
  harness.answer(5, {0, 0, 1, 0, 1});
  CHECK(harness.ask("r", tokens) == matched_tokens{32, true});
  CHECK(harness.ask("r", tokens) == matched_tokens{32, true});
  CHECK(harness.state.passed_over_tokens() == 0);
  const auto blocks = blocks_from(10, 7);
  harness.allocate("r", blocks, 32);
  CHECK(harness.state.passed_over_tokens() == 48);
  const auto loads = harness.build().loads;
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].blocks == blocks_from(10, 2));
  CHECK(harness.state.get_external_cache_hit_sources("r", 32) == hit_sources{.memory = 32});
  harness.report({.received = {"r"}});
  CHECK(harness.released.size() == 1);
  // It is requested again when the load has ended.
  harness.allocate("r", blocks, 0);
  CHECK(harness.state.passed_over_tokens() == 48);
  const auto stores = harness.run_new("r", blocks, 32, 68).stores;
  REQUIRE(stores.size() == 1);
  CHECK(stores[0].first_page == 5);
  CHECK(stores[0].keys.size() == 1);
}

TEST_CASE("connector load pace: a hit with no page worth loading is released and not saved again", "[load_pace]") {
  scheduler_harness harness(options_with(disk_hits::never));
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  harness.answer(5, {1, 0, 0, 0, 0});
  CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
  harness.allocate("r", blocks_from(10, 7), 0);
  CHECK(harness.state.leases_held() == 0);
  CHECK(harness.state.passed_over_tokens() == 80);
  const auto stores = harness.run_new("r", blocks_from(10, 7), 0, 100).stores;
  REQUIRE(stores.size() == 1);
  CHECK(stores[0].first_page == 5);
  // After a preemption the request is looked up and counted again, beyond the tokens that the engine has by then.
  harness.preempt("r");
  harness.ask("r", tokens, 32);
  harness.answer(6, {0, 0, 0, 1, 1, 1});
  CHECK(harness.ask("r", tokens, 32) == matched_tokens{16, true});
  harness.allocate("r", blocks_from(10, 7), 16);
  CHECK(harness.state.passed_over_tokens() == 80 + 48);
}

TEST_CASE("connector load pace: pages that are computed because the disk is slow are read ahead for the next request",
          "[load_pace]") {
  auto options = options_with(disk_hits::when_faster);
  options.pace.first_look_tokens = 16;
  options.pace.computing_guess = milliseconds(100);
  options.reads_ahead_max = 2;
  scheduler_harness harness(options);
  const auto hit = [&](std::string_view id, token_id from, std::vector<std::uint8_t> on_disk) {
    const auto tokens = tokens_from(from, 100);
    harness.ask(id, tokens);
    harness.answer(5, std::move(on_disk));
    const auto found = harness.ask(id, tokens);
    harness.allocate(id, blocks_from(10, 7), *found.tokens);
    return *found.tokens;
  };
  // A part is loaded. The lease stays for that, and then for the rest.
  CHECK(hit("a", 0, {1, 1, 1, 1, 1}) == 16);
  CHECK(harness.build().loads.size() == 1);
  CHECK(harness.released.empty());
  harness.report({.received = {"a"}});
  CHECK(harness.released.empty());
  harness.build();
  harness.now += milliseconds(99);
  harness.build();
  CHECK(harness.released.empty());
  CHECK(harness.state.leases_held() == 1);
  harness.now += milliseconds(1);
  harness.build();
  CHECK(harness.released.size() == 1);
  CHECK(harness.state.leases_held() == 0);
  // Nothing is loaded.
  CHECK(hit("b", 1000, {1, 1, 1, 1, 1}) == 0);
  CHECK(hit("c", 2000, {0, 0, 0, 0, 0}) == 80);
  CHECK(harness.released.size() == 1);
  // The number of parallel reads is bounded.
  CHECK(hit("d", 3000, {1, 1, 1, 1, 1}) == 0);
  CHECK(hit("e", 4000, {1, 1, 1, 1, 1}) == 0);
  CHECK(harness.released.size() == 2);
  // After the last request has ended nothing is computed.
  harness.build();
  harness.report({.received = {"c"}});
  for (const auto* id : {"a", "b", "c", "d", "e"})
    harness.finish(id);
  CHECK(harness.state.leases_held() == 0);
  CHECK(harness.released.size() == 5);
}

TEST_CASE("connector load pace: a hit is evaluated again when the engine has fewer of its tokens than before",
          "[load_pace]") {
  scheduler_harness harness(options_with(disk_hits::never));
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens, 16);
  harness.answer(5, {1, 0, 0, 1, 0});
  CHECK(harness.ask("r", tokens, 16) == matched_tokens{32, true});
  CHECK(harness.ask("r", tokens, 0) == matched_tokens{0, false});
  CHECK(harness.ask("r", tokens, 64) == matched_tokens{16, true});
}

TEST_CASE("connector load pace: the rest of a hit may be too short to be loaded", "[load_pace]") {
  auto options = options_with(disk_hits::never);
  options.min_load_tokens = 48;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  harness.answer(5, {0, 0, 1, 0, 0});
  CHECK(harness.ask("r", tokens) == matched_tokens{0, false});
}

TEST_CASE("connector load pace: a hit that is looked up in parts is one hit", "[load_pace]") {
  auto options = options_with(disk_hits::never);
  options.lookup_keys_max = 2;
  scheduler_harness harness(options);
  const auto tokens = tokens_from(1, 100);
  harness.ask("r", tokens);
  harness.answer(2, {0, 0});
  harness.answer(2, {0, 1});
  harness.answer(1, {1});
  CHECK(harness.ask("r", tokens) == matched_tokens{48, true});
  harness.allocate("r", blocks_from(0, 7), 48);
  CHECK(harness.state.get_external_cache_hit_sources("r", 48) == hit_sources{.memory = 48});
  // Where one part does not report its tier, the tier is unknown and everything is loaded.
  const auto others = tokens_from(1000, 100);
  harness.ask("s", others);
  harness.answer(2, {0, 1});
  harness.answer(2, {});
  harness.answer(1, {1});
  CHECK(harness.ask("s", others) == matched_tokens{80, true});
  harness.allocate("s", blocks_from(20, 7), 80);
  CHECK(harness.state.get_external_cache_hit_sources("s", 80) == hit_sources{.unknown = 80});
}

TEST_CASE("connector load pace: the scheduler half measures steps and loads", "[load_pace]") {
  auto options = options_with(disk_hits::when_faster);
  options.pace.step_tokens_min = 64;
  options.synchronous_loads = GENERATE(false, true);
  scheduler_harness harness(options);
  const auto load = [&](std::string_view id, const std::vector<token_id>& tokens, std::uint8_t on_disk,
                        duration takes) {
    harness.ask(id, tokens);
    harness.answer(4, std::vector<std::uint8_t>(4, on_disk));
    const auto found = harness.ask(id, tokens);
    harness.allocate(id, blocks_from(10, 7), *found.tokens);
    const auto loads = harness.build().loads;
    REQUIRE(loads.size() == (*found.tokens > 0 ? 1U : 0U));
    harness.now += takes;
    if (!loads.empty() && options.synchronous_loads)
      harness.report({.stores = {{loads[0].id, {1, 1, 1, 1}}}});
    else if (!loads.empty())
      harness.report({.received = {std::string(id)}});
    harness.finish(id);
    return *found.tokens;
  };
  const std::string_view names[]{"a", "b", "c", "d", "e"};
  // Until the time of computing is known, the first load measures the disk.
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(load(names[i], tokens_from(1000 * i, 100), 1, milliseconds(300)) == (i == 0 ? 64U : 0U));
  harness.admit("p", tokens_from(50'000, 1000), blocks_from(0, 63));
  harness.run_new("p", blocks_from(0, 63), 0, 500);
  harness.now += milliseconds(100);
  harness.run_on("p", {}, 500, 499);
  harness.now += milliseconds(100);
  harness.run_on("p", {}, 999, 1);
  CHECK(*harness.state.pace().computed_token() == Approx(0.1 / 500));
  CHECK(*harness.state.pace().disk_token() == Approx(0.3 / 64));
  CHECK(load("d", tokens_from(7000, 100), 1, milliseconds(300)) == 0);
  CHECK(load("e", tokens_from(9000, 100), 0, milliseconds(1)) == 64);
  CHECK(*harness.state.pace().memory_token() == Approx(0.001 / 64));
}

} // namespace connector_load_pace_test
