#include "events/page_log.hpp"
#include "tests/catch.hpp"

#include <random>
#include <set>

namespace events_page_log_test {

using namespace troupe;
using namespace troupe::events;

namespace {

constexpr std::size_t many = 1000;
constexpr std::size_t enough = 1U << 20U;

logged_change change_of(const char* model, std::uint64_t hash, std::size_t tokens = 4) {
  logged_change out;
  out.model = std::make_shared<const std::string>(model);
  out.hash = hash;
  out.tokens.assign(tokens, 7);
  return out;
}

std::vector<std::uint64_t> hashes_of(const page_log::part& x) {
  std::vector<std::uint64_t> out;
  for (const auto& c : x.changes)
    out.push_back(c.hash);
  return out;
}

using hashes = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("events page log: a page log gives each reader what came after its cursor, of its model alone", "[events]") {
  page_log log({});
  CHECK(log.read("a", 0, many, enough).changes.empty());
  CHECK_FALSE(log.read("a", 0, many, enough).lost);
  for (std::uint64_t i = 1; i <= 6; ++i)
    log.append(change_of(i % 2 == 0 ? "b" : "a", i));
  const auto first = log.read("a", 0, 2, enough);
  CHECK(hashes_of(first) == hashes{1, 3});
  CHECK_FALSE(first.lost);
  CHECK(first.next == 3);
  const auto rest = log.read("a", first.next, many, enough);
  CHECK(hashes_of(rest) == hashes{5});
  // Changes of other models are passed by.
  CHECK(rest.next == 6);
  CHECK(hashes_of(log.read("b", 0, many, 1)) == hashes{2});
}

TEST_CASE("events page log: a reader of a page log that is too late, of another run, or behind a loss begins again",
          "[events]") {
  page_log log({.changes_max = 3});
  for (std::uint64_t i = 1; i <= 5; ++i)
    log.append(change_of("a", i));
  CHECK_FALSE(log.read("a", 2, many, enough).lost);
  const auto late = log.read("a", 1, many, enough);
  CHECK(late.lost);
  CHECK(hashes_of(late) == hashes{3, 4, 5});
  CHECK(log.read("a", 6, many, enough).lost);
  CHECK_FALSE(log.read("a", 5, many, enough).lost);
  log.lose();
  const auto behind = log.read("a", 5, many, enough);
  CHECK(behind.lost);
  CHECK(behind.changes.empty());
  CHECK_FALSE(log.read("a", behind.next, many, enough).lost);
  log.append(change_of("a", 9));
  CHECK(hashes_of(log.read("a", behind.next, many, enough)) == hashes{9});
  CHECK(log.read("a", 5, many, enough).lost);
}

TEST_CASE("events page log: a page log keeps no more bytes than it may, and wakes its reader once for many changes",
          "[events]") {
  page_log log({.bytes_max = 100000});
  int woken = 0;
  log.wake_with([&] { ++woken; });
  for (std::uint64_t i = 1; i <= 100; ++i)
    log.append(change_of("a", i, 1000));
  const auto all = log.read("a", 0, many, enough * 1000);
  CHECK(all.lost);
  CHECK(all.changes.size() < 25);
  CHECK(all.changes.size() > 20);
  CHECK(all.changes.back().hash == 100);
  log.notify();
  log.notify();
  CHECK(woken == 1);
}

TEST_CASE("events page log: a reader of a page log knows what the log says after every step", "[events]") {
  std::mt19937_64 random(4711);
  for (int round = 0; round < 200; ++round) {
    page_log log({.changes_max = 1 + random() % 20});
    std::set<std::uint64_t> there;
    std::set<std::uint64_t> known;
    std::uint64_t cursor = 0;
    for (int i = 0; i < 300; ++i) {
      const auto hash = random() % 10;
      auto x = change_of("a", hash);
      x.what = there.contains(hash) ? logged_change::kind::removed : logged_change::kind::stored;
      if (!there.erase(hash))
        there.insert(hash);
      log.append(x);
      if (random() % 50 == 0) {
        there.clear();
        log.lose();
      }
      if (random() % 10 != 0)
        continue;
      for (bool more = true; more;) {
        const auto part = log.read("a", cursor, 1 + random() % 4, enough);
        more = part.lost || !part.changes.empty();
        if (part.lost)
          known.clear();
        cursor = part.next;
        for (const auto& c : part.changes)
          if (c.what == logged_change::kind::stored)
            known.insert(c.hash);
          else
            known.erase(c.hash);
      }
      // Never more than there is.
      for (const auto hash_known : known)
        REQUIRE(there.contains(hash_known));
    }
  }
}

} // namespace events_page_log_test
