#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"
#include "offline/played_cluster.hpp"
#include "offline/what_if.hpp"
#include "tests/catch.hpp"

#include <random>
#include <vector>

namespace offline_cluster_test {

using namespace troupe;
using namespace troupe::offline;

namespace {

std::vector<std::vector<key_digest>> keys_of(const std::string& trace) {
  const auto numbered = number_trace(replay::open_trace(trace, 64, {}).value());
  std::vector<std::vector<key_digest>> out;
  for (const auto& request : numbered.requests) {
    auto& keys = out.emplace_back();
    for (const auto number : request)
      keys.push_back(numbered.keys[number]);
  }
  return out;
}

played_cache::options slots(std::uint64_t n, eviction_factory policy = make_reuse_policy) {
  played_cache::options out;
  out.capacity = n;
  out.policy = policy;
  return out;
}

struct outcome {
  std::size_t hits = 0;
  std::uint64_t fetched = 0;
};

outcome play(const std::vector<std::vector<key_digest>>& requests, played_cluster::options how) {
  played_cluster x(how);
  outcome out;
  for (std::size_t i = 0; i < requests.size(); ++i)
    out.hits += x.play(i % how.nodes, requests[i]);
  out.fetched = x.fetched();
  return out;
}

} // namespace

TEST_CASE("offline cluster: a cluster of one node behaves like that node", "[offline]") {
  const auto requests = keys_of("mixed:3,400,60,5,15,20");
  played_cache alone(slots(500));
  std::size_t hits = 0;
  for (const auto& keys : requests)
    hits += alone.play(keys);
  const auto x = play(requests, {slots(500), 1});
  CHECK(x.hits == hits);
  CHECK(x.fetched == 0);
}

TEST_CASE("offline cluster: with room for all pages, round-robin nodes hit as often as one node", "[offline]") {
  const auto requests = keys_of("mixed:3,400,60,5,15,20");
  const auto one = play(requests, {slots(100'000), 1});
  for (const auto keep : {true, false}) {
    const auto three = play(requests, {slots(100'000), 3, keep});
    CHECK(three.hits == one.hits);
    CHECK(three.fetched > 0);
  }
}

TEST_CASE("offline cluster: nodes that share statistics hit more often than nodes that do not", "[offline]") {
  // Requests that come back after a while, among prompts that never do; in turn at three nodes, so that no node sees
  // two uses of a key that follow each other but by chance.
  std::mt19937_64 random(7);
  std::vector<std::vector<key_digest>> requests;
  std::uint64_t next = 1000;
  for (int step = 0; step < 9000; ++step) {
    auto& keys = requests.emplace_back();
    const auto comes_back = step % 2 == 0;
    const auto number = comes_back ? random() % 60 : ++next;
    for (std::uint64_t i = 0; i < (comes_back ? 10 : 40); ++i)
      keys.push_back({number + 1, i + 1});
  }
  const auto one = play(requests, {slots(1050), 1});
  const auto lru = play(requests, {slots(350, make_lru_policy), 3});
  const auto notified = play(requests, {slots(350), 3});
  const auto silent = play(requests, {slots(350), 3, true, false});
  INFO(one.hits << " " << notified.hits << " " << silent.hits << " " << lru.hits);
  CHECK(notified.hits > silent.hits);
  CHECK(notified.hits > 2 * lru.hits);
  // Of the 350 keys of a node, 32 rest; of one with 1,050, as many.
  CHECK(100 * notified.hits > 97 * one.hits);
}

} // namespace offline_cluster_test
