// Statistics of key reuse and the eviction order that follows from them.

#include "actors/node/eviction/ghost_table.hpp"
#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"
#include "actors/node/eviction/reuse_statistics.hpp"
#include "actors/node/eviction/s3_fifo_policy.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace reuse_policy_test {

using namespace troupe;

namespace {

using entries_t = std::vector<entry_index>;

std::uint64_t scrambled(std::uint64_t x) {
  x = (x + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
  return x ^ (x >> 29);
}

/// A cache of a given number of keys under a policy, which reuses entries for other keys.
class small_cache {
public:
  small_cache(eviction_factory factory, std::size_t capacity)
      : capacity_(capacity), policy_(factory([this](entry_index i) { return scrambled(keys_[i]); })) {}

  /// Requests a chain: returns how many of its first keys are present, and inserts all.
  std::size_t use(const std::vector<std::uint64_t>& chain) {
    entries_t found;
    for (const auto key : chain) {
      const auto at = places_.find(key);
      if (at == places_.end())
        break;
      found.push_back(at->second);
    }
    const entry_use how{.missing = chain.size() - found.size()};
    policy_->touched(found, how);
    make_room(chain.size() - found.size(), {found.begin(), found.end()});
    entries_t fresh;
    for (auto i = found.size(); i < chain.size(); ++i) {
      if (places_.contains(chain[i]))
        continue;
      auto entry = static_cast<entry_index>(keys_.size());
      if (free_.empty()) {
        keys_.push_back(chain[i]);
      } else {
        entry = free_.back();
        free_.pop_back();
        keys_[entry] = chain[i];
      }
      places_[chain[i]] = entry;
      fresh.push_back(entry);
    }
    policy_->announced(fresh, how);
    policy_->inserted(fresh);
    return found.size();
  }

  /// How many of these keys are present. Not a use.
  std::size_t has(const std::vector<std::uint64_t>& chain) const {
    return static_cast<std::size_t>(std::ranges::count_if(chain, [&](auto key) { return places_.contains(key); }));
  }

  const eviction_policy& policy() const { return *policy_; }

private:
  void make_room(std::size_t keys, const std::set<entry_index>& in_use) {
    while (places_.size() + keys > capacity_) {
      entry_index victim = no_entry;
      REQUIRE(policy_->propose({&victim, 1}) == 1);
      if (in_use.contains(victim)) {
        policy_->kept(victim);
        continue;
      }
      policy_->left(victim, leave_reason::evicted);
      places_.erase(keys_[victim]);
      free_.push_back(victim);
    }
  }

  std::size_t capacity_;
  std::vector<std::uint64_t> keys_;
  entries_t free_;
  std::map<std::uint64_t, entry_index> places_;
  std::unique_ptr<eviction_policy> policy_;
};

std::vector<std::uint64_t> chain_of(std::uint64_t number, std::size_t keys) {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < keys; ++i)
    out.push_back(number * 1000 + i);
  return out;
}

} // namespace

TEST_CASE("reuse policy: a ghost is recalled once with its note, within the capacity", "[registry]") {
  ghost_table ghosts;
  CHECK_FALSE(ghosts.recall(scrambled(1)).has_value());
  ghosts.remember(scrambled(1), 3);
  CHECK(ghosts.recall(scrambled(1)) == 3U);
  CHECK_FALSE(ghosts.recall(scrambled(1)).has_value());
  for (std::uint64_t n = 0; n < 100'000; ++n) {
    ghosts.make_room_for(n);
    ghosts.remember(scrambled(n), n % 4);
  }
  CHECK(ghosts.room() >= 99'999);
  CHECK(ghosts.resident_bytes() <= 2 * 100'000 + 64);
  std::uint64_t known = 0;
  for (std::uint64_t n = 50'000; n < 100'000; ++n)
    known += ghosts.recall(scrambled(n)) == n % 4 ? 1 : 0;
  CHECK(known > 45'000);
  std::uint64_t taken_for_known = 0;
  for (std::uint64_t n = 200'000; n < 300'000; ++n)
    taken_for_known += ghosts.recall(scrambled(n)) ? 1 : 0;
  CHECK(taken_for_known < 100);
}

TEST_CASE("reuse policy: keys are worth more where keys of their class return, and nothing before that", "[registry]") {
  reuse_statistics statistics;
  std::uint64_t now = 0;
  // Keys of class 0 come back after 3,000 others, those of class 1 never.
  std::deque<std::uint64_t> waiting;
  for (std::uint64_t n = 0; n < 60'000; ++n) {
    ++now;
    if (n % 10 == 0) {
      statistics.note(scrambled(n), 0, now, 10'000);
      waiting.push_back(n);
    } else {
      statistics.note(scrambled(n), 1, now, 10'000);
    }
    if (waiting.size() > 300) {
      statistics.note(scrambled(waiting.front()), 3, now, 10'000);
      waiting.pop_front();
    }
    REQUIRE(statistics.followed() <= 2048);
  }
  statistics.learn(now);
  CHECK(statistics.worth(0, 2000) > 10 * statistics.worth(1, 2000));
  CHECK(statistics.worth(0, 2000) > statistics.worth(0, 100));
  CHECK(statistics.worth(0, 2000) > 10 * statistics.worth(0, 5000));
  CHECK(statistics.resident_bytes() < 128 * 1024);
}

TEST_CASE("reuse policy: a key that is used at a peer counts as used and is tracked there", "[registry]") {
  reuse_statistics statistics;
  statistics.note(scrambled(1), 0, 1000, 100);
  statistics.note(scrambled(2), 0, 1000, 100);
  statistics.used_elsewhere(scrambled(1), 3000);
  CHECK(statistics.followed() == 1);
  auto seen = statistics.counts(5000);
  CHECK(seen.used[0][reuse_counts::step_of(2000)] == 1);
  CHECK(seen.ended[0][reuse_counts::step_of(2000)] == 1);
  // The other one waits as yet.
  CHECK(seen.ended[0][reuse_counts::step_of(4000)] == 1);
  CHECK(seen.seen() == 2);
  // One key was never tracked, and one is no longer tracked.
  statistics.used_elsewhere(scrambled(1), 4000);
  statistics.used_elsewhere(scrambled(3), 4000);
  CHECK(statistics.counts(5000) == seen);
}

TEST_CASE("reuse policy: statistics of peers count like local ones, up to twice as much", "[registry]") {
  reuse_statistics alone;
  reuse_statistics together;
  for (auto* x : {&alone, &together}) {
    for (std::uint64_t n = 0; n < 500; ++n)
      x->note(scrambled(n), 0, 1000, 1000);
    x->learn(20'000);
  }
  reuse_counts others;
  others.used[0][reuse_counts::step_of(3000)] = 400;
  others.ended[0][reuse_counts::step_of(3000)] = 400;
  together.learn_from(others);
  CHECK(together.worth(0, 2000) == alone.worth(0, 2000));
  alone.learn(20'000);
  together.learn(20'000);
  CHECK(together.worth(0, 2000) > 5 * alone.worth(0, 2000));
  // Ten times as much makes the same of it as twice as much.
  reuse_statistics flooded;
  reuse_statistics bounded;
  for (auto* x : {&flooded, &bounded})
    for (std::uint64_t n = 0; n < 500; ++n)
      x->note(scrambled(n), 0, 1000, 1000);
  others *= 1000 / others.seen();
  bounded.learn_from(others);
  others *= 10;
  flooded.learn_from(others);
  bounded.learn(20'000);
  flooded.learn(20'000);
  CHECK(flooded.worth(0, 2000) == Approx(bounded.worth(0, 2000)));
  // The exported counts are the local ones.
  CHECK(flooded.counts(20'000).used[0][reuse_counts::step_of(3000)] == 0);
}

TEST_CASE("reuse policy: a fetched key does not advance the clock, and its uses count from the first local one",
          "[registry]") {
  const auto policy = make_reuse_policy([](entry_index i) { return scrambled(i); });
  const entries_t fresh{0, 1, 2, 3};
  const entries_t fetched{4, 5, 6};
  policy->inserted(fresh);
  policy->fetched(fetched);
  CHECK(policy->size() == 7);
  REQUIRE(policy->knowledge());
  CHECK(policy->knowledge()->clock == 4);
  CHECK(policy->knowledge()->counts.seen() == 4);
  policy->touched(fetched, {});
  CHECK(policy->knowledge()->counts.seen() == 7);
  // A lookup by a peer counts as a use there, for present and removed keys.
  policy->touched({fresh.data(), 2}, {.by_peer = true});
  policy->left(2, leave_reason::evicted);
  policy->used_elsewhere(scrambled(2));
  const auto known = policy->knowledge()->counts;
  CHECK(known.used[0][0] == 3);
  CHECK(known.seen() == 7);
  // Without learning none of it matters.
  for (const auto factory : {make_lru_policy, make_s3_fifo_policy}) {
    const auto other = factory([](entry_index i) { return scrambled(i); });
    other->fetched(fetched);
    other->used_elsewhere(scrambled(4));
    other->learn_from({});
    CHECK(other->size() == 3);
    CHECK_FALSE(other->knowledge());
  }
}

TEST_CASE("reuse policy: conversations are kept among prompts that do not return", "[registry]") {
  std::map<eviction_factory, std::size_t> hits;
  for (const auto factory : {make_lru_policy, make_reuse_policy}) {
    small_cache cache(factory, 1000);
    std::mt19937 random(5);
    std::uint64_t next = 1000;
    for (int step = 0; step < 6000; ++step) {
      if (step % 3 != 0) {
        cache.use(chain_of(++next, 40));
        continue;
      }
      const auto talk = random() % 60;
      hits[factory] += cache.use(chain_of(talk, 10));
    }
    CHECK(cache.policy().size() <= 1000);
  }
  // 60 conversations of 10 keys fit; between two requests of one, 4,800 other keys come in.
  CHECK(hits[make_lru_policy] < 5000);
  CHECK(hits[make_reuse_policy] > 12'000);
}

TEST_CASE("reuse policy: keys are not evicted as soon as they are inserted, whatever they are worth", "[registry]") {
  // Prompts of 40 keys never return, and conversations do after 4,800 other keys: so the newest keys are worth least.
  constexpr std::size_t capacity = 4000;
  small_cache cache(make_reuse_policy, capacity);
  std::uint64_t next = 1000;
  std::uint64_t talk = 0;
  std::size_t lost = 0;
  for (int step = 0; step < 4000; ++step) {
    if (step % 10 == 0)
      cache.use(chain_of(++talk % 13, 10));
    const auto before = next;
    cache.use(chain_of(++next, 40));
    // A client asks for what it has saved before others have saved much.
    for (auto i = before; i <= next && i > 1000; ++i)
      lost += 40 - cache.has(chain_of(i, 40));
  }
  CHECK(lost == 0);
}

TEST_CASE("reuse policy: where all keys are new, the oldest of them are evicted", "[registry]") {
  small_cache cache(make_reuse_policy, 20);
  for (std::uint64_t i = 0; i < 100; ++i) {
    cache.use({i});
    CHECK(cache.has({i}) == 1);
  }
  CHECK(cache.policy().size() == 20);
}

TEST_CASE("reuse policy: a policy takes 8 bytes for an entry and 2 for a ghost", "[registry]") {
  const auto factory = GENERATE(make_lru_policy, make_s3_fifo_policy, make_reuse_policy);
  constexpr std::uint64_t n = 1'000'000;
  const auto policy = factory([](entry_index i) { return scrambled(i); });
  entries_t batch(100);
  for (std::uint64_t first = 0; first < n; first += batch.size()) {
    for (std::size_t i = 0; i < batch.size(); ++i)
      batch[i] = static_cast<entry_index>(first + i);
    policy->inserted(batch);
  }
  CHECK(policy->size() == n);
  // Arrays grow in pieces of 2 MiB.
  CHECK(policy->resident_bytes() <= 10 * n + (4U << 20) + (128U << 10));
}

TEST_CASE("reuse policy: S3-FIFO behaves like its plain form", "[registry]") {
  std::mt19937 random(GENERATE(11U, 12U, 13U));
  constexpr std::size_t capacity = 200;
  small_cache cache(make_s3_fifo_policy, capacity);
  std::deque<std::uint64_t> small;
  std::deque<std::uint64_t> main;
  std::set<std::uint64_t> ghosts;
  std::map<std::uint64_t, int> uses;
  const auto evict_one = [&] {
    for (;;) {
      auto from_small = 10 * small.size() >= small.size() + main.size();
      if (from_small ? small.empty() : main.empty())
        from_small = !from_small;
      auto& from = from_small ? small : main;
      const auto key = from.front();
      from.pop_front();
      auto& used = uses[key];
      if (from_small ? used > 1 : used > 0) {
        used = from_small ? 0 : used - 1;
        main.push_back(key);
        continue;
      }
      if (from_small)
        ghosts.insert(key);
      uses.erase(key);
      return;
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    const auto key = std::min(random() % 1000, random() % 1000);
    const auto known = uses.contains(key);
    REQUIRE(cache.use({key}) == (known ? 1 : 0));
    if (known) {
      uses[key] = std::min(3, uses[key] + 1);
      continue;
    }
    if (uses.size() >= capacity)
      evict_one();
    uses[key] = 0;
    (ghosts.erase(key) > 0 ? main : small).push_back(key);
  }
}

} // namespace reuse_policy_test
