// Many concurrent clients, on pages that record the last write to them.

#include "tests/catch.hpp"
#include "tests/conformance/metadata_server.hpp"
#include "tests/conformance/wire_support.hpp"

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace concurrency_test {

namespace {

using namespace troupe;
using namespace troupe::test;

constexpr std::uint32_t rank_count = 2;
constexpr std::size_t page_count = 64;
constexpr std::size_t key_count = 128;
constexpr int client_count = 8;
constexpr int rounds = 120;

std::string name_of(std::size_t key) {
  return "key-" + std::to_string(key);
}

/// The slab files: which key was last written to a page.
using slabs = std::array<std::array<std::atomic<std::size_t>, page_count>, rank_count>;

/// One engine that does what engines do, in any order.
class engine {
public:
  engine(std::uint16_t port, unsigned seed, slabs& pages) : server_(port, {}), random_(seed), slabs_(pages) {}

  void run() {
    for (int i = 0; i < rounds; ++i) {
      const auto rank = static_cast<std::uint32_t>(random_() % rank_count);
      const auto dice = random_() % 16;
      if (dice == 0)
        cancel(rank);
      else if (dice < 8)
        save(rank);
      else
        load(rank);
    }
  }

  std::vector<std::string> complaints;
  int loaded = 0;

private:
  keys_t some_keys(std::size_t below) {
    std::set<std::string> keys;
    for (auto n = 1 + random_() % 6; n > 0; --n)
      keys.insert(name_of(random_() % below));
    return {keys.begin(), keys.end()};
  }

  std::size_t number_of(const std::string& key) { return std::stoul(key.substr(4)); }

  /// Pages of a rank that came with one answer are of different keys, and exist.
  std::vector<std::pair<std::string, page>> allocate(std::uint32_t rank, const keys_t& keys) {
    const auto given = server_.allocate(rank, keys);
    if (!given || given->size() != keys.size()) {
      complaints.push_back("an allocation failed");
      return {};
    }
    std::set<page> different;
    std::vector<std::pair<std::string, page>> out;
    for (const auto& x : *given) {
      if (x.second < -1 || x.second >= static_cast<page>(page_count))
        complaints.push_back("there is no page " + std::to_string(x.second));
      else if (x.second >= 0 && !different.insert(x.second).second)
        complaints.push_back("page " + std::to_string(x.second) + " was given out twice");
      else if (x.second >= 0)
        out.push_back(x);
    }
    return out;
  }

  void save(std::uint32_t rank) {
    const auto given = allocate(rank, some_keys(key_count));
    for (const auto& [key, to] : given)
      slabs_[rank][static_cast<std::size_t>(to)] = number_of(key);
    if (server_.confirm(rank, given, {}) != 204)
      complaints.push_back("a confirmation failed");
  }

  void cancel(std::uint32_t rank) {
    pages_t released;
    // Slots that are given back are missing for as long as they were promised.
    for (const auto& [key, to] : allocate(rank, {name_of(random_() % key_count)}))
      released.push_back(to);
    if (server_.confirm(rank, {}, released) != 204)
      complaints.push_back("a release failed");
  }

  /// Only half of the keys, so that the others can be evicted.
  void load(std::uint32_t rank) {
    const auto keys = some_keys(key_count / 2);
    const auto found = server_.locations(rank, keys);
    if (!found || found->size() != keys.size())
      return complaints.push_back("a lookup failed");
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!(*found)[i])
        continue;
      ++loaded;
      const auto there = slabs_[rank][static_cast<std::size_t>(*(*found)[i])].load();
      if (there != number_of(keys[i]))
        complaints.push_back(keys[i] + " of rank " + std::to_string(rank) + " was located at page " +
                             std::to_string(*(*found)[i]) + ", which has " + name_of(there));
    }
  }

  served_over_http server_;
  std::mt19937 random_;
  slabs& slabs_;
};

} // namespace

TEST_CASE("concurrency: engines that save, load and cancel concurrently never find a page of another key",
          "[hf3fs][concurrency]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  slot_node_options options;
  options.shards = 3;
  options.rest = std::chrono::milliseconds{1};
  // Longer than any thread of this test is kept waiting between an answer and its use.
  options.hf3fs.protect_for = std::chrono::seconds{20};
  options.hf3fs.reservation_deadline = std::chrono::seconds{20};
  const auto node = started_node(options);
  served_over_http server{node->port(), {}};
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    REQUIRE(server.initialize(rank, static_cast<page>(page_count)) == 200);
  const auto pages = std::make_unique<slabs>();

  std::vector<std::unique_ptr<engine>> engines;
  for (int i = 0; i < client_count; ++i)
    engines.push_back(std::make_unique<engine>(node->port(), seed * 100 + static_cast<unsigned>(i), *pages));
  std::vector<std::thread> threads;
  for (const auto& x : engines)
    threads.emplace_back([&] {
      try {
        x->run();
      } catch (const std::exception& e) {
        x->complaints.push_back(e.what());
      }
    });
  for (auto& x : threads)
    x.join();
  int loaded = 0;
  for (const auto& x : engines) {
    loaded += x->loaded;
    for (const auto& complaint : x->complaints)
      FAIL_CHECK(complaint);
  }
  CHECK(loaded > 0);

  // When all clients have stopped: each page at most once, and no more pages than there are.
  keys_t all;
  for (std::size_t key = 0; key < key_count; ++key)
    all.push_back(name_of(key));
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    std::set<page> taken;
    const auto found = server.locations(rank, all);
    for (const auto& where : found.value())
      CHECK((!where || taken.insert(*where).second));
  }
  for (const auto& ns : node->describe()) {
    CHECK(ns.evicted_keys > 0);
    for (const auto& rank : ns.ranks)
      CHECK(rank.pages + rank.reserved + rank.withheld <= rank.slots);
  }
}

} // namespace concurrency_test
