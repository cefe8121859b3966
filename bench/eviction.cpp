// The hit ratio of a trace by capacity and eviction policy, with the real rules and without actors: registry shards and
// an allocator with the default watermarks, one namespace and rank, one request at a time, as `troupe replay
// --concurrency 1` plays it. It is compared with plain implementations of LRU and S3-FIFO, and with the optimum. It
// also measures the nodes of a cluster in turn, world sizes, and the cost of a key.

#include "actors/node/eviction/eviction_policies.hpp"
#include "config/node_config.hpp"
#include "offline/played_cache.hpp"
#include "offline/played_cluster.hpp"
#include "offline/what_if.hpp"
#include "workload/replay/trace.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace troupe;

using offline::numbered_trace;

// -- plain policies: found leading keys are hits; then all keys of the request are stored
// -------------------------------

double plain_lru(const numbered_trace& what, std::uint64_t capacity) {
  std::list<std::uint32_t> order; // oldest first
  std::vector<std::list<std::uint32_t>::iterator> places(what.keys.size(), order.end());
  std::uint64_t hits = 0;
  for (const auto& keys : what.requests) {
    hits += static_cast<std::uint64_t>(
        std::ranges::find_if(keys, [&](auto key) { return places[key] == order.end(); }) - keys.begin());
    for (const auto key : keys) {
      if (places[key] != order.end())
        order.erase(places[key]);
      places[key] = order.insert(order.end(), key);
      if (order.size() > capacity) {
        places[order.front()] = order.end();
        order.pop_front();
      }
    }
  }
  return what.share(hits);
}

double plain_s3_fifo(const numbered_trace& what, std::uint64_t capacity) {
  enum class place : std::uint8_t { gone, small, main, ghost };
  std::deque<std::uint32_t> small;
  std::deque<std::uint32_t> main;
  std::deque<std::uint32_t> ghosts;
  std::vector<place> places(what.keys.size(), place::gone);
  std::vector<int> uses(what.keys.size(), 0);
  const auto there = [&](auto key) { return places[key] == place::small || places[key] == place::main; };
  const auto evict_from_main = [&] {
    for (;;) {
      const auto key = main.front();
      main.pop_front();
      if (uses[key] == 0) {
        places[key] = place::gone;
        return;
      }
      --uses[key];
      main.push_back(key);
    }
  };
  const auto evict = [&] {
    while (!small.empty() && (small.size() >= capacity / 10 || main.empty())) {
      const auto key = small.front();
      small.pop_front();
      if (uses[key] > 1) {
        places[key] = place::main;
        main.push_back(key);
        continue;
      }
      places[key] = place::ghost;
      ghosts.push_back(key);
      if (ghosts.size() > capacity) {
        if (places[ghosts.front()] == place::ghost)
          places[ghosts.front()] = place::gone;
        ghosts.pop_front();
      }
      return;
    }
    evict_from_main();
  };
  std::uint64_t hits = 0;
  for (const auto& keys : what.requests) {
    hits += static_cast<std::uint64_t>(std::ranges::find_if_not(keys, there) - keys.begin());
    for (const auto key : keys) {
      if (there(key)) {
        uses[key] = std::min(3, uses[key] + 1);
        continue;
      }
      while (small.size() + main.size() >= capacity)
        evict();
      uses[key] = 0;
      const bool known = places[key] == place::ghost;
      places[key] = known ? place::main : place::small;
      (known ? main : small).push_back(key);
    }
  }
  return what.share(hits);
}

// -- the real rules ---------------------------------------------------------------------------------------------------

double shipped(const numbered_trace& what, std::uint64_t capacity, std::uint32_t shards, const named_policy& how,
               bool watermarks) {
  const config::storage_config defaults;
  offline::played_cache played(
      {capacity, shards, how.make, watermarks ? defaults.low_watermark : 0, watermarks ? defaults.high_watermark : 0});
  std::uint64_t hits = 0;
  for (const auto& request : what.requests)
    hits += played.play(what.keys_of(request));
  return what.share(hits);
}

struct fill {
  std::uint64_t hits = 0;
  std::uint64_t evicted = 0;
  /// The mean number of free slots after a request, on the fullest and on the emptiest rank, once keys are evicted.
  double least_free = 0;
  double most_free = 0;
};

fill fill_ranks(const numbered_trace& what, const offline::played_cache::options& how) {
  offline::played_cache played(how);
  fill out;
  double samples = 0;
  for (const auto& request : what.requests) {
    out.hits += played.play(what.keys_of(request));
    out.evicted = played.evicted_keys();
    if (out.evicted == 0)
      continue;
    std::vector<std::uint64_t> free;
    for (rank_number rank = 0; rank < how.ranks; ++rank)
      free.push_back(played.free_slots(rank));
    const auto [least, most] = std::ranges::minmax(free);
    out.least_free += static_cast<double>(least);
    out.most_free += static_cast<double>(most);
    ++samples;
  }
  out.least_free /= std::max(samples, 1.0);
  out.most_free /= std::max(samples, 1.0);
  return out;
}

/// The mean of some numbers, and its standard error.
std::pair<double, double> mean_and_error(const std::vector<double>& all) {
  const auto n = static_cast<double>(all.size());
  const auto mean = std::accumulate(all.begin(), all.end(), 0.0) / n;
  double squares = 0;
  for (const auto x : all)
    squares += (x - mean) * (x - mean);
  return {mean, std::sqrt(squares / (n * (n - 1)))};
}

/// Ranks are filled and emptied together, so several of them should find as much as one, within half a point. One trace
/// does not show that: which of two equally good keys goes first changes what a small cache finds by one or two points,
/// so it is the mean over many traces. Returns false if several ranks find less.
bool print_world_sizes() {
  constexpr std::uint64_t slots = 819;
  constexpr int traces = 32;
  constexpr double tolerance = 0.005;
  const config::storage_config defaults;
  std::vector<numbered_trace> all;
  for (int seed = 1; seed <= traces; ++seed)
    all.push_back(
        offline::number_trace(replay::open_trace("mixed:" + std::to_string(seed) + ",300,20,3,5,5", 512, {}).value()));
  std::printf(
      "\nmixed:1…%d,300,20,3,5,5, %llu slots a rank: by world size the mean hits of all blocks and their standard "
      "error, how far that is from one rank and the standard error of the difference, the keys that were "
      "evicted, and the share of slots that is free on the fullest and on the emptiest rank\n\n",
      traces, static_cast<unsigned long long>(slots));
  bool equal = true;
  for (const std::uint32_t shards : {1U, 4U}) {
    std::vector<double> of_one;
    for (const std::uint32_t ranks : {1U, 2U, 4U, 8U}) {
      offline::played_cache::options how{slots, shards, make_reuse_policy, defaults.low_watermark,
                                         defaults.high_watermark};
      how.ranks = ranks;
      std::vector<double> found;
      std::vector<double> apart;
      fill sum;
      for (const auto& what : all) {
        const auto x = fill_ranks(what, how);
        found.push_back(what.share(x.hits));
        if (ranks == 1)
          of_one.push_back(found.back());
        apart.push_back(found.back() - of_one[found.size() - 1]);
        sum.evicted += x.evicted;
        sum.least_free += x.least_free;
        sum.most_free += x.most_free;
      }
      const auto [mean, spread] = mean_and_error(found);
      const auto [difference, its_error] = mean_and_error(apart);
      const bool as_one = difference >= -tolerance;
      equal = equal && as_one;
      const auto percent = [](double free) { return 100 * free / traces / static_cast<double>(slots); };
      std::printf("%u shards, world size %u: %.4f ± %.4f, %+.4f ± %.4f, %llu, %.1f to %.1f %%%s\n", shards, ranks, mean,
                  spread, difference, its_error, static_cast<unsigned long long>(sum.evicted / traces),
                  percent(sum.least_free), percent(sum.most_free), as_one ? "" : ", less than with one rank");
    }
  }
  return equal;
}

/// Sends requests in turn to all nodes, which share the slots: the mean hit ratio over some seeds of hashes.
double in_turn(const numbered_trace& what, std::uint64_t capacity, std::size_t nodes, bool learns) {
  constexpr std::uint64_t seeds = 5;
  const config::storage_config defaults;
  std::uint64_t hits = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    offline::played_cluster played(
        {{capacity / nodes, 1, make_reuse_policy, defaults.low_watermark, defaults.high_watermark, 7 + 1000 * seed},
         nodes,
         true,
         learns});
    std::size_t next = 0;
    for (const auto& request : what.requests)
      hits += played.play(next++ % nodes, what.keys_of(request));
  }
  return what.share(hits) / static_cast<double>(seeds);
}

// -- the cost of a key ------------------------------------------------------------------------------------------------

/// ns for each key that is inserted, touched, and proposed and evicted; batches of 32 entries.
std::array<double, 3> costs(const named_policy& how, std::uint32_t entries) {
  constexpr std::uint32_t batch = 32;
  std::vector<std::uint64_t> hashes(entries);
  std::mt19937_64 random(7);
  for (auto& x : hashes)
    x = random();
  const auto made = how.make([&](entry_index i) { return hashes[i]; });
  std::array<double, 3> out{};
  const auto timed = [&](double& to, const std::function<void()>& f) {
    const auto began = std::chrono::steady_clock::now();
    f();
    to += std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count();
  };
  std::vector<entry_index> some(batch);
  const auto insert = [&](entry_index first) {
    for (std::uint32_t i = 0; i < batch; ++i)
      some[i] = first + i;
    made->announced(some, {.missing = batch});
    made->inserted(some);
  };
  const auto batches = entries / batch;
  for (std::uint32_t i = 0; i < batches; ++i)
    insert(i * batch);
  std::array<entry_index, batch> victims{};
  for (std::uint32_t i = 0; i < batches; ++i) {
    const auto first = static_cast<entry_index>(random() % batches * batch);
    for (std::uint32_t k = 0; k < batch; ++k)
      some[k] = first + k;
    timed(out[1], [&] { made->touched(some, {.missing = 3}); });
    std::uint32_t evicted = 0;
    timed(out[2], [&] {
      while (evicted < batch) {
        const auto n = made->propose(std::span(victims).subspan(evicted));
        for (std::size_t v = 0; v < n; ++v)
          made->left(victims[evicted + v], leave_reason::evicted);
        evicted += static_cast<std::uint32_t>(n);
      }
    });
    for (const auto entry : victims)
      hashes[entry] = random();
    std::ranges::sort(victims);
    timed(out[0], [&] {
      made->announced(victims, {.missing = batch});
      made->inserted(victims);
    });
  }
  for (auto& x : out)
    x /= static_cast<double>(batches) * batch;
  return out;
}

constexpr std::uint64_t capacities[] = {3000, 5000, 10000, 20000, 30000};

template <class F>
void print_row(const char* name, const F& f) {
  std::printf("%-28s", name);
  for (const auto capacity : capacities)
    std::printf(" %9.4f", f(capacity));
  std::printf("\n");
  std::fflush(stdout);
}

void print_table(const numbered_trace& what, bool peers) {
  std::printf("\n%s: %zu requests, %llu blocks, %zu of them different; hits of all blocks by capacity\n\n%-28s",
              what.name.c_str(), what.requests.size(), static_cast<unsigned long long>(what.blocks), what.keys.size(),
              "");
  for (const auto capacity : capacities)
    std::printf(" %9llu", static_cast<unsigned long long>(capacity));
  std::printf("\n");
  if (peers) {
    print_row("plain lru", [&](auto capacity) { return plain_lru(what, capacity); });
    print_row("plain s3-fifo", [&](auto capacity) { return plain_s3_fifo(what, capacity); });
    print_row("knowing the future", [&](auto capacity) { return what.share(offline::optimal_hits(what, capacity)); });
  }
  for (const auto& x : eviction_policies)
    for (const std::uint32_t shards : {1U, 4U}) {
      const auto name = std::string(x.name) + (shards == 1 ? ", 1 shard" : ", 4 shards");
      print_row(name.c_str(), [&](auto capacity) { return shipped(what, capacity, shards, x, true); });
      if (shards == 4)
        print_row((name + ", no watermarks").c_str(),
                  [&](auto capacity) { return shipped(what, capacity, shards, x, false); });
    }
  for (const std::size_t nodes : {1U, 2U, 3U}) {
    const auto name = "reuse, " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes in turn");
    print_row(name.c_str(), [&](auto capacity) { return in_turn(what, capacity, nodes, true); });
    if (nodes > 1)
      print_row((name + ", untold").c_str(), [&](auto capacity) { return in_turn(what, capacity, nodes, false); });
  }
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::string> traces;
  bool peers = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--trace" && i + 1 < argc) {
      traces.emplace_back(argv[++i]);
    } else if (arg == "--no-peers") {
      peers = false;
    } else {
      std::fprintf(stderr, "usage: %s [--trace FILE|loogle:…|mixed:…]… [--no-peers]\n", argv[0]);
      return arg == "--help" ? 0 : 2;
    }
  }
  if (traces.empty())
    traces = {"mixed:1,20000,60,5,15,20", "mixed:2,20000,15,25,10,50", "loogle:100,204800,20,1024"};
  for (const auto& name : traces) {
    const auto what = replay::open_trace(name, 512, {});
    if (!what) {
      std::fprintf(stderr, "%s\n", what.error().text.c_str());
      return 1;
    }
    print_table(offline::number_trace(*what), peers);
  }
  const bool equal = print_world_sizes();
  std::printf(
      "\nns of the policy per key, batches of 32, hashes in an array: inserted, touched, proposed and evicted\n");
  for (const std::uint32_t entries : {10'000U, 1'000'000U})
    for (const auto& x : eviction_policies) {
      const auto [inserted, touched, evicted] = costs(x, entries);
      std::printf("%9u entries, %-8s %7.1f %7.1f %7.1f\n", entries, x.name.data(), inserted, touched, evicted);
    }
  return equal ? 0 : 1;
}
