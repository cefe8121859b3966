// How many of a trace's blocks are hits, by capacity and eviction policy, with the rules as they ship and without
// actors: registry shards and an allocator with the watermarks of the defaults, one namespace and rank, one request at
// a time, as `troupe replay --concurrency 1` plays it. Beside them LRU, S3-FIFO and what could be had by knowing the
// future, in the plainest form. And what a key costs.

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/allocator/eviction_shares.hpp"
#include "actors/node/registry/lru_policy.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "actors/node/registry/reuse_policy.hpp"
#include "actors/node/registry/s3_fifo_policy.hpp"
#include "config/node_config.hpp"
#include "workload/replay/keys.hpp"
#include "workload/replay/trace.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace troupe;

/// A request as numbers of keys: equal numbers are equal prefixes.
using numbered_request = std::vector<std::uint32_t>;

struct workload {
  std::string name;
  std::vector<numbered_request> requests;
  /// By number.
  std::vector<key_digest> keys;
  std::uint64_t blocks = 0;
};

workload made_from(const replay::trace& what) {
  workload out;
  out.name = what.name;
  std::unordered_map<key_digest, std::uint32_t> numbers;
  for (const auto& x : what.requests) {
    auto& numbered = out.requests.emplace_back();
    for (const auto& key : replay::chain_keys(x.hash_ids, 0)) {
      const auto [at, fresh] = numbers.emplace(key, static_cast<std::uint32_t>(out.keys.size()));
      if (fresh)
        out.keys.push_back(key);
      numbered.push_back(at->second);
    }
    out.blocks += numbered.size();
  }
  return out;
}

double ratio(std::uint64_t hits, const workload& of) {
  return static_cast<double>(hits) / static_cast<double>(of.blocks);
}

// -- peers: the leading keys that are there are hits; then all keys of the request are there --------------------------

double plain_lru(const workload& what, std::uint64_t capacity) {
  std::list<std::uint32_t> order; // the oldest first
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
  return ratio(hits, what);
}

double plain_s3_fifo(const workload& what, std::uint64_t capacity) {
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
  return ratio(hits, what);
}

/// Who is asked for again last goes first, and of one request its last key: what is kept is of use to its end.
double offline(const workload& what, std::uint64_t capacity) {
  constexpr auto never = ~std::uint64_t{0};
  std::vector<std::vector<std::uint64_t>> times(what.keys.size());
  for (std::uint64_t t = 0; t < what.requests.size(); ++t)
    for (const auto key : what.requests[t])
      times[key].push_back(t);
  using rank = std::pair<std::uint64_t, std::uint64_t>; // when next, and how deep
  std::set<std::pair<rank, std::uint32_t>> order;
  std::vector<rank> ranks(what.keys.size());
  std::vector<bool> there(what.keys.size(), false);
  std::vector<std::size_t> used(what.keys.size(), 0);
  std::uint64_t hits = 0;
  for (const auto& keys : what.requests) {
    hits +=
        static_cast<std::uint64_t>(std::ranges::find_if_not(keys, [&](auto key) { return there[key]; }) - keys.begin());
    for (std::uint64_t depth = 0; depth < keys.size(); ++depth) {
      const auto key = keys[depth];
      if (there[key])
        order.erase({ranks[key], key});
      const auto next = ++used[key];
      ranks[key] = {next < times[key].size() ? times[key][next] : never, depth};
      there[key] = true;
      order.insert({ranks[key], key});
    }
    for (; order.size() > capacity; order.erase(std::prev(order.end())))
      there[std::prev(order.end())->second] = false;
  }
  return ratio(hits, what);
}

// -- the rules as they ship -------------------------------------------------------------------------------------------

class cache {
public:
  cache(std::uint64_t capacity, std::uint32_t shards, eviction_factory policy, bool watermarks)
      : allocator_(options_of(capacity, watermarks)), shares_(shards) {
    namespace_spec spec;
    spec.name = "bench";
    spec.world_size = 1;
    space_ = spec.id();
    for (std::uint32_t i = 0; i < shards; ++i) {
      registry_options options;
      options.shard = i;
      options.shard_count = shards;
      options.hash_seed = 7;
      options.eviction = policy;
      auto& shard = shards_.emplace_back(std::make_unique<registry_state>(options));
      if (!shard->add_namespace(spec) || !shard->add_rank(space_, 0, static_cast<std::uint32_t>(capacity)))
        std::abort();
    }
  }

  /// Looks up, loads what is there, saves the rest; returns how many keys were there.
  std::size_t play(const std::vector<key_digest>& keys) {
    now_ += std::chrono::milliseconds(100);
    const auto lookup = next_ticket();
    const auto matched = match(keys, lookup);
    load(keys, matched);
    save(keys, matched);
    for (auto& shard : shards_)
      if (!shard->release({space_, lookup, 0}, now_))
        std::abort();
    return matched;
  }

private:
  static allocator_options options_of(std::uint64_t capacity, bool watermarks) {
    const config::storage_config defaults;
    return options_for_slots(static_cast<std::uint32_t>(capacity), watermarks ? defaults.low_watermark : 0,
                             watermarks ? defaults.high_watermark : 0);
  }

  ticket next_ticket() { return {1, ++sequence_}; }
  std::uint32_t owner_of(const key_digest& key) const {
    return shard_of(key, static_cast<std::uint32_t>(shards_.size()));
  }

  /// For each shard the places of its keys among `keys` from the first to before the last.
  std::vector<std::vector<std::size_t>> parts(const std::vector<key_digest>& keys, std::size_t first,
                                              std::size_t last) const {
    std::vector<std::vector<std::size_t>> out(shards_.size());
    for (auto i = first; i < last; ++i)
      out[owner_of(keys[i])].push_back(i);
    return out;
  }

  std::size_t match(const std::vector<key_digest>& keys, ticket lease) {
    const auto split = parts(keys, 0, keys.size());
    auto matched = keys.size();
    for (std::size_t s = 0; s < split.size(); ++s) {
      if (split[s].empty())
        continue;
      match_request request{space_, lease, std::chrono::seconds(60), {}};
      for (const auto i : split[s])
        request.keys.items.push_back(keys[i]);
      const auto found = shards_[s]->match(request, now_).value().matched;
      if (found < split[s].size())
        matched = std::min(matched, split[s][found]);
    }
    for (std::size_t s = 0; s < split.size(); ++s) {
      const auto keep = std::ranges::lower_bound(split[s], matched) - split[s].begin();
      if (!shards_[s]->release({space_, lease, static_cast<std::uint32_t>(keep)}, now_))
        std::abort();
    }
    return matched;
  }

  void load(const std::vector<key_digest>& keys, std::size_t matched) {
    const auto split = parts(keys, 0, matched);
    for (std::size_t s = 0; s < split.size(); ++s) {
      if (split[s].empty())
        continue;
      locate_request request{space_, 0, next_ticket(), std::chrono::seconds(60), {}};
      for (const auto i : split[s])
        request.keys.items.push_back(keys[i]);
      if (!shards_[s]->locate(request, now_) || !shards_[s]->release({space_, request.lease, 0}, now_))
        std::abort();
    }
  }

  void save(const std::vector<key_digest>& keys, std::size_t matched) {
    const auto split = parts(keys, matched, keys.size());
    std::vector<std::pair<std::size_t, reserve_request>> writing;
    for (std::size_t s = 0; s < split.size(); ++s) {
      if (split[s].empty())
        continue;
      reserve_request request{space_, 0, next_ticket(), std::chrono::seconds(60), {}, {}};
      for (const auto i : split[s]) {
        request.keys.items.push_back(keys[i]);
        request.parents.items.push_back(i > 0 ? keys[i - 1] : key_digest{});
      }
      const auto plan = shards_[s]->begin_reserve(request, now_).value();
      if (plan.what == reserve_plan::kind::needs_slots) {
        plans_.push_back({s, plan.plan});
        writing.emplace_back(s, std::move(request));
        allocator_.take(plans_.size() - 1, plan.slots_needed, now_ + std::chrono::seconds(1), now_);
      }
      settle();
    }
    for (auto& [s, request] : writing) {
      // The same ticket again gets the answer of the first.
      const auto answer = shards_[s]->begin_reserve(request, now_).value();
      finish_request finish{space_, 0, request.ticket, {}};
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        if (answer.reply.results[i].code() == errc::ok)
          finish.pages.items.push_back({request.keys[i], answer.reply.results[i].where});
      if (!shards_[s]->commit(finish, now_))
        std::abort();
      settle();
    }
    plans_.clear();
  }

  /// Delivers what a shard has for the others and for the allocator; false if that is nothing.
  bool deliver(registry_state& from) {
    const auto out = from.take_outbox();
    for (const auto& x : out.children)
      if (!shards_[x.shard]->count_children(x.request, now_))
        std::abort();
    for (const auto& x : out.slots) {
      allocator_.publish(x.publish.slots.items);
      allocator_.abort(x.abort.slots.items);
      allocator_.abort(x.unused.slots.items);
      allocator_.release(x.release.slots.items);
    }
    return !out.empty();
  }

  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (auto& shard : shards_)
        more = deliver(*shard) || more;
      const auto out = allocator_.take_outbox();
      more = more || !out.empty();
      for (const auto& x : out.answers)
        if (!shards_[plans_[x.request].first]->finish_reserve(plans_[x.request].second, x.reply.slots.items, now_))
          std::abort();
      allocator_.fenced(out.fence);
      if (out.evict > 0)
        evict(out.evict);
    }
  }

  void evict(std::uint32_t wanted) {
    const auto shares = shares_.divide(wanted);
    std::uint64_t freed = 0;
    bool more = false;
    for (std::size_t s = 0; s < shares.size(); ++s) {
      if (shares[s] == 0)
        continue;
      const auto reply = shards_[s]->evict({space_, 0, shares[s], shares_.forced()}, now_).value();
      deliver(*shards_[s]);
      shares_.answered(s, reply.slots, reply.pages);
      freed += reply.slots;
      more = more || reply.more;
    }
    allocator_.eviction_done(freed, more || shares_.hopeful());
  }

  allocator_state allocator_;
  eviction_shares shares_;
  std::vector<std::unique_ptr<registry_state>> shards_;
  namespace_id space_;
  timestamp now_{std::chrono::seconds(1)};
  std::uint64_t sequence_ = 0;
  /// Who waits for slots: shard and plan, by request.
  std::vector<std::pair<std::size_t, plan_id>> plans_;
};

struct policy {
  const char* name;
  eviction_factory make;
};

constexpr policy policies[] = {
    {"lru", make_lru_policy},
    {"s3-fifo", make_s3_fifo_policy},
    {"reuse", make_reuse_policy},
};

double shipped(const workload& what, std::uint64_t capacity, std::uint32_t shards, const policy& how, bool watermarks) {
  cache played(capacity, shards, how.make, watermarks);
  std::uint64_t hits = 0;
  std::vector<key_digest> keys;
  for (const auto& numbers : what.requests) {
    keys.clear();
    for (const auto number : numbers)
      keys.push_back(what.keys[number]);
    hits += played.play(keys);
  }
  return ratio(hits, what);
}

// -- what a key costs -------------------------------------------------------------------------------------------------

/// ns for each key that is inserted, touched, and proposed and evicted; batches of 32 entries.
std::array<double, 3> costs(const policy& how, std::uint32_t entries) {
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

void print_table(const workload& what, bool peers) {
  std::printf("\n%s: %zu requests, %llu blocks, %zu of them different; hits of all blocks by capacity\n\n%-28s",
              what.name.c_str(), what.requests.size(), static_cast<unsigned long long>(what.blocks), what.keys.size(),
              "");
  for (const auto capacity : capacities)
    std::printf(" %9llu", static_cast<unsigned long long>(capacity));
  std::printf("\n");
  if (peers) {
    print_row("plain lru", [&](auto capacity) { return plain_lru(what, capacity); });
    print_row("plain s3-fifo", [&](auto capacity) { return plain_s3_fifo(what, capacity); });
    print_row("knowing the future", [&](auto capacity) { return offline(what, capacity); });
  }
  for (const auto& x : policies)
    for (const std::uint32_t shards : {1U, 4U}) {
      const auto name = std::string(x.name) + (shards == 1 ? ", 1 shard" : ", 4 shards");
      print_row(name.c_str(), [&](auto capacity) { return shipped(what, capacity, shards, x, true); });
      if (shards == 4)
        print_row((name + ", no watermarks").c_str(),
                  [&](auto capacity) { return shipped(what, capacity, shards, x, false); });
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
    print_table(made_from(*what), peers);
  }
  std::printf(
      "\nns of the policy per key, batches of 32, hashes in an array: inserted, touched, proposed and evicted\n");
  for (const std::uint32_t entries : {10'000U, 1'000'000U})
    for (const auto& x : policies) {
      const auto [inserted, touched, evicted] = costs(x, entries);
      std::printf("%9u entries, %-8s %7.1f %7.1f %7.1f\n", entries, x.name, inserted, touched, evicted);
    }
  return 0;
}
