// The parts the registry is made of: index, arrays, deadlines, owners, recency.

#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/registry/deadline_queue.hpp"
#include "actors/node/registry/key_table.hpp"
#include "actors/node/registry/owner_index.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace registry_index_test {

using namespace troupe;

namespace {

timestamp at(std::int64_t seconds) {
  return timestamp{std::chrono::seconds(seconds)};
}

std::vector<entry_index> order_of(const lru_policy& policy) {
  std::vector<entry_index> out;
  policy.for_each([&](entry_index i) { out.push_back(i); });
  return out;
}

entry_index first_of(lru_policy& policy) {
  entry_index out = no_entry;
  policy.propose({&out, 1});
  return out;
}

} // namespace

TEST_CASE("registry index: a chunked array starts at zero and never moves an element", "[registry]") {
  chunked_array<std::uint64_t> array;
  array.grow_to(1);
  auto* const first = &array[0];
  *first = 42;
  const auto many = 3 * chunked_array<std::uint64_t>::per_chunk;
  array.grow_to(many);
  CHECK(&array[0] == first);
  CHECK(array[0] == 42);
  CHECK(array[many - 1] == 0);
  array.grow_to(5);
  CHECK(array.size() == many);
  CHECK(array.resident_bytes() == 3 * chunk_bytes);
}

TEST_CASE("registry index: the key index finds inserted keys and not erased ones, through splits", "[registry]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  key_index index;
  std::unordered_map<entry_index, std::uint32_t> tags;
  const auto check_some = [&] {
    for (int i = 0; i < 1000; ++i) {
      const auto entry = static_cast<entry_index>(random() % 60000);
      const auto known = tags.find(entry);
      const auto tag = known != tags.end() ? known->second : static_cast<std::uint32_t>(random());
      const auto found = index.find(tag, [&](entry_index e) { return e == entry; });
      if (found != (known != tags.end() ? entry : no_entry))
        return false;
    }
    return true;
  };
  for (entry_index entry = 0; entry < 50000; ++entry) {
    // Few distinct low bits, so that long runs of neighbours form.
    const auto tag = static_cast<std::uint32_t>(random()) & 0xffffff3fU;
    REQUIRE(index.insert(tag, entry));
    tags[entry] = tag;
    if (entry % 3 == 2) {
      const auto victim = static_cast<entry_index>(random() % (entry + 1));
      if (const auto known = tags.find(victim); known != tags.end()) {
        index.erase(known->second, victim);
        tags.erase(known);
      }
    }
    if (entry % 5000 == 0)
      REQUIRE(check_some());
  }
  CHECK(index.segments() > 8);
  CHECK(index.size() == tags.size());
  for (const auto& [entry, tag] : tags)
    REQUIRE(index.find(tag, [wanted = entry](entry_index e) { return e == wanted; }) == entry);
  for (const auto& [entry, tag] : tags)
    index.erase(tag, entry);
  CHECK(index.size() == 0);
  CHECK(index.candidate(tags.begin()->second) == no_entry);
}

TEST_CASE("registry index: an index that cannot split further refuses new keys and keeps its contents", "[registry]") {
  key_index index;
  entry_index n = 0;
  while (n < 10000 && index.insert(0xabcd1234, n))
    ++n;
  CHECK(n == 4095);
  CHECK(index.find(0xabcd1234, [](entry_index e) { return e == 4094; }) == 4094);
  CHECK(index.find(0xabcd1234, [](entry_index e) { return e == 4095; }) == no_entry);
  CHECK(index.insert(0x1bcd1234, 5000));
  index.erase(0xabcd1234, 7);
  CHECK(index.insert(0xabcd1234, 7));
}

TEST_CASE("registry index: numbered keys spread over the index as well as hashed ones", "[registry]") {
  // Clients may number their keys in either half; were the index's hash weak, segments would split far too often.
  for (const bool low : {true, false}) {
    key_table table(1, 11);
    table.add_rank(0);
    std::vector<key_digest> keys;
    std::vector<entry_index> entries;
    for (std::uint64_t n = 1; n <= 200000; ++n) {
      keys.push_back(low ? key_digest{0, n} : key_digest{n, 0});
      entries.push_back(table.create(keys.back()));
    }
    INFO("numbered in the low half: " << low);
    // With this many keys some share their 32-bit tag: the keys themselves decide.
    std::vector<entry_index> found(keys.size());
    table.find(keys, found);
    CHECK(found == entries);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto n = 200001 + i;
      wrong += table.find(keys[i]) == entries[i] ? 0 : 1;
      wrong += table.find(low ? key_digest{0, n} : key_digest{n, 0}) == no_entry ? 0 : 1;
    }
    CHECK(wrong == 0);
    // In any order, so that each key is searched.
    std::vector<std::size_t> order(keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
    std::vector<key_digest> mixed, others;
    std::vector<entry_index> expected;
    for (const auto i : order) {
      mixed.push_back(keys[i]);
      expected.push_back(entries[i]);
      others.push_back(low ? key_digest{0, 200001 + i} : key_digest{200001 + i, 0});
    }
    table.find(mixed, found);
    CHECK(found == expected);
    table.find(others, found);
    CHECK(std::ranges::count(found, no_entry) == std::ssize(found));
    // 200,000 keys fill 64 segments of 4,096 slots to 0.76 at most; twice as many if all have just split.
    CHECK(table.resident_bytes() < 200000 * (32 + 16 + 8) + 128 * 4096 * 8 + 4 * chunk_bytes);
  }
}

TEST_CASE("registry index: a key table finds keys in batches and reuses erased entries", "[registry]") {
  key_table table(2, 5);
  std::vector<key_digest> keys;
  std::vector<entry_index> entries;
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    keys.push_back({n, ~n});
    entries.push_back(table.create(keys.back()));
  }
  keys.push_back({5000, 5000});
  entries.push_back(no_entry);
  std::vector<entry_index> found(keys.size());
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{17}, keys.size()}) {
    std::fill(found.begin(), found.end(), 77);
    table.find(std::span(keys).first(n), found);
    CHECK(std::equal(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(n), found.begin()));
  }
  const auto end = table.end();
  table.erase(entries[3]);
  CHECK(table.find(keys[3]) == no_entry);
  CHECK(table.refresh(entries[3], keys[3]) == no_entry);
  CHECK(table.create({6000, 6000}) == entries[3]);
  CHECK(table.refresh(entries[3], keys[4]) == entries[4]);
  CHECK(table.end() == end);
}

TEST_CASE("registry index: a batch that continues like an earlier one does not find keys that agree in one half only",
          "[registry]") {
  const bool low = GENERATE(true, false);
  const auto numbered = [&](std::uint64_t n) { return low ? key_digest{7, n} : key_digest{n, 7}; };
  key_table table(1, 5);
  std::vector<key_digest> batch;
  std::vector<entry_index> entries;
  for (std::uint64_t n = 1; n <= 100; ++n) {
    batch.push_back(numbered(n));
    entries.push_back(table.create(batch.back()));
  }
  for (std::size_t i = 40; i < batch.size(); ++i) {
    batch[i] = numbered(1000 + i);
    entries[i] = no_entry;
  }
  std::vector<entry_index> found(batch.size());
  table.find(batch, found);
  CHECK(found == entries);
  CHECK(table.refresh(entries[3], batch[4]) == entries[4]);
  CHECK(table.refresh(entries[3], batch[40]) == no_entry);
}

TEST_CASE("registry index: deadlines expire in order and can be moved and removed", "[registry]") {
  const auto seed = GENERATE(10U, 11U, 12U, 13U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  deadline_queue queue;
  std::map<std::uint32_t, timestamp> model;
  for (int step = 0; step < 3000; ++step) {
    const auto id = static_cast<std::uint32_t>(random() % 60);
    if (random() % 3 == 0) {
      queue.erase(id);
      model.erase(id);
    } else {
      const auto when = at(static_cast<std::int64_t>(random() % 500));
      queue.set(id, when);
      model[id] = when;
    }
    const auto earliest =
        std::min_element(model.begin(), model.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    REQUIRE(queue.size() == model.size());
    REQUIRE(queue.next().has_value() == !model.empty());
    if (model.empty())
      continue;
    REQUIRE(*queue.next() == earliest->second);
    REQUIRE(model.at(queue.due(earliest->second).value()) == earliest->second);
    REQUIRE_FALSE(queue.due(earliest->second - std::chrono::nanoseconds(1)).has_value());
  }
}

TEST_CASE("registry index: the leases of an owner are found in any order of removal", "[registry]") {
  owner_index index;
  for (std::uint32_t id = 0; id < 6; ++id)
    index.add(id % 2 + 1, id);
  index.remove(1, 2);
  index.remove(2, 5);
  index.remove(2, 1);
  const auto all = [&](owner_id owner) {
    std::set<std::uint32_t> out;
    for (auto id = index.first(owner); id != owner_index::none; id = index.next(id))
      out.insert(id);
    return out;
  };
  CHECK(all(1) == std::set<std::uint32_t>{0, 4});
  CHECK(all(2) == std::set<std::uint32_t>{3});
  CHECK(all(3).empty());
  CHECK(index.count(1) == 2);
  index.remove(2, 3);
  CHECK(index.count(2) == 0);
  CHECK(index.first(2) == owner_index::none);
}

TEST_CASE("registry index: lru: later keys of a batch age first, and touched or kept keys are evicted last",
          "[registry]") {
  lru_policy policy;
  const std::vector<entry_index> first{0, 1, 2};
  const std::vector<entry_index> second{5, 6};
  policy.inserted(first);
  policy.inserted(second);
  CHECK(order_of(policy) == std::vector<entry_index>{2, 1, 0, 6, 5});
  policy.touched(std::vector<entry_index>{0, 1}, {});
  CHECK(order_of(policy) == std::vector<entry_index>{2, 6, 5, 1, 0});
  policy.touched(std::vector<entry_index>{5, 2, 5}, {});
  CHECK(order_of(policy) == std::vector<entry_index>{6, 1, 0, 2, 5});
  policy.kept(6);
  policy.left(0, leave_reason::evicted);
  CHECK(order_of(policy) == std::vector<entry_index>{1, 2, 5, 6});
  policy.kept(1);
  policy.freed(1);
  CHECK(first_of(policy) == 1);
  CHECK(policy.size() == 4);
}

TEST_CASE("registry index: lru keeps the order of a plain list", "[registry]") {
  const auto seed = GENERATE(21U, 22U, 23U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  lru_policy policy;
  std::list<entry_index> model; // oldest first
  std::list<entry_index> aside;
  std::set<entry_index> members;
  for (int step = 0; step < 500; ++step) {
    std::vector<entry_index> batch;
    for (auto n = random() % 200; n > 0; --n)
      batch.push_back(static_cast<entry_index>(random() % 1000));
    std::vector<entry_index> fresh;
    std::vector<entry_index> known;
    for (const auto entry : batch)
      (members.insert(entry).second ? fresh : known).push_back(entry);
    policy.inserted(fresh);
    policy.touched(known, {});
    for (auto i = fresh.rbegin(); i != fresh.rend(); ++i)
      model.push_back(*i);
    for (auto i = known.rbegin(); i != known.rend(); ++i) {
      model.remove(*i);
      aside.remove(*i);
      model.push_back(*i);
    }
    for (auto n = random() % 100; n > 0 && !model.empty(); --n) {
      const auto victim = model.front();
      model.pop_front();
      if (random() % 4 == 0) {
        policy.kept(victim);
        aside.push_back(victim);
        continue;
      }
      policy.left(victim, leave_reason::evicted);
      members.erase(victim);
      for (int back = 0; back < 2 && !aside.empty(); ++back) {
        model.push_back(aside.front());
        aside.pop_front();
      }
    }
    // Entries set aside are the most recently used ones in a listed order.
    auto all = model;
    all.insert(all.end(), aside.begin(), aside.end());
    REQUIRE(order_of(policy) == std::vector<entry_index>(all.begin(), all.end()));
  }
}

TEST_CASE("registry index: lru moves adjacent entries like separate ones", "[registry]") {
  const auto seed = GENERATE(31U, 32U, 33U, 34U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto size = seed % 2 == 0 ? std::size_t{300} : std::size_t{12};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  lru_policy policy;
  std::vector<entry_index> entries(size);
  for (std::size_t i = 0; i < size; ++i)
    entries[i] = static_cast<entry_index>((i * 7) % size * 3); // gaps, and no neighbour in memory is one in the list
  policy.inserted(entries);
  std::list<entry_index> model(entries.rbegin(), entries.rend()); // oldest first
  const auto touch = [&](const std::vector<entry_index>& batch) {
    policy.touched(batch, {});
    for (auto i = batch.rbegin(); i != batch.rend(); ++i) {
      model.remove(*i);
      model.push_back(*i);
    }
    REQUIRE(order_of(policy) == std::vector<entry_index>(model.begin(), model.end()));
    if (batch.empty())
      return;
    // The order is read in one direction; to take an entry out needs the links of the other.
    const auto moved = batch[below(batch.size())];
    policy.left(moved, leave_reason::erased);
    policy.inserted(std::span(&moved, 1));
    model.remove(moved);
    model.push_back(moved);
    REQUIRE(order_of(policy) == std::vector<entry_index>(model.begin(), model.end()));
  };
  touch({});
  touch({model.back()});
  touch({model.front()});
  touch({model.rbegin(), model.rend()}); // all, as they lie
  touch({model.begin(), model.end()});   // all, the other way round
  touch({model.back(), model.back()});
  touch({model.front(), model.back(), model.front()});
  for (int step = 0; step < 600; ++step) {
    const std::vector<entry_index> order(model.rbegin(), model.rend()); // youngest first, as batches are
    std::vector<entry_index> batch;
    for (auto pieces = 1 + below(4); pieces > 0; --pieces) {
      const auto begin = step % 3 == 0 ? 0 : below(size); // often from the youngest end on
      const auto end = begin + 1 + below(step % 5 == 0 ? size - begin : std::min<std::size_t>(size - begin, 6));
      const auto at = batch.size();
      batch.insert(batch.end(), order.begin() + static_cast<std::ptrdiff_t>(begin),
                   order.begin() + static_cast<std::ptrdiff_t>(end));
      const auto piece = std::span(batch).subspan(at);
      switch (random() % 6) {
      case 0:
        std::reverse(piece.begin(), piece.end());
        break;
      case 1:
        batch.push_back(piece.front()); // twice
        break;
      case 2:
        std::swap(batch[at + below(batch.size() - at)], batch[below(batch.size())]);
        break;
      default:
        break;
      }
    }
    touch(batch);
  }
}

TEST_CASE("registry index: a key table finds in batches what it finds one by one", "[registry]") {
  const auto seed = GENERATE(41U, 42U, 43U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  key_table table(1, seed);
  table.add_rank(0);
  std::vector<key_digest> keys; // in the order in which they got their entries, with some that have none
  for (std::uint64_t n = 1; n <= 3000; ++n)
    keys.push_back({n, random()});
  for (const auto& key : keys)
    table.create(key);
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (random() % 100 == 0)
      table.erase(table.find(keys[i]));
  keys.push_back({5000, 1});
  for (int step = 0; step < 400; ++step) {
    std::vector<key_digest> batch;
    for (auto pieces = 1 + random() % 5; pieces > 0; --pieces) {
      const auto begin = random() % keys.size();
      const auto end = std::min<std::size_t>(keys.size(), begin + 1 + random() % (step % 2 == 0 ? 300 : 5));
      batch.insert(batch.end(), keys.begin() + static_cast<std::ptrdiff_t>(begin),
                   keys.begin() + static_cast<std::ptrdiff_t>(end));
    }
    if (random() % 4 == 0)
      batch[random() % batch.size()] = {}; // the null key, even where an unused entry follows
    std::vector<entry_index> found(batch.size(), 77);
    table.find(batch, found);
    std::vector<entry_index> expected;
    for (const auto& key : batch)
      expected.push_back(table.find(key));
    REQUIRE(found == expected);
  }
}

} // namespace registry_index_test
