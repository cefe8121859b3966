// Cost of the registry's rules per key, at growing numbers of keys in one table, without actors: one thread, one
// namespace, one rank, batches of 512 keys, each batch one chain.

#include "actors/node/registry/registry_state.hpp"

#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;

constexpr std::uint64_t chain_keys = 512;

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Counts the keys and the time of the calls of one kind.
struct meter {
  std::uint64_t keys = 0;
  double seconds = 0;
  double worst = 0;

  template <class F>
  void measure(std::uint64_t n, F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    keys += n;
    seconds += took;
    worst = std::max(worst, took);
  }

  double ns_per_key() const { return keys == 0 ? 0 : seconds * 1e9 / static_cast<double>(keys); }
  double worst_us() const { return worst * 1e6; }
};

/// The order in which a table is filled: chain after chain, so that the entries of one chain are adjacent, or 512
/// chains at once a key each, so that no two adjacent entries belong to the same chain.
enum class layout { ordered, scattered };

struct row {
  layout how = layout::ordered;
  std::uint64_t keys = 0;
  meter fill;
  meter match;
  meter locate;
  meter evict;
  meter refill;
  /// With events: the description of keys after they were saved.
  meter describe;
  double resident_per_key = 0;
};

class workload {
public:
  workload(std::uint64_t keys, layout how, eviction_factory eviction, bool with_events, bool with_history)
      : with_events_(with_events), how_(how), chains_(std::max<std::uint64_t>(1, keys / chain_keys)) {
    registry_options options;
    options.hash_seed = 7;
    options.eviction = eviction;
    if (with_events_)
      options.events = std::make_shared<events::feed>();
    // As large as a node makes it by default.
    if (with_history)
      options.history = std::make_shared<lookup_history>(1024, 65536, now_);
    registry_.emplace(options);
    namespace_spec spec;
    spec.name = "bench";
    spec.world_size = 1;
    ns_ = spec.id();
    if (!registry_->add_namespace(spec))
      std::abort();
  }

  row run() {
    row r;
    r.how = how_;
    r.keys = chains_ * chain_keys;
    const auto before = resident_bytes();
    row_ = &r;
    fill(r.fill);
    r.resident_per_key = static_cast<double>(resident_bytes() - before) / static_cast<double>(r.keys);
    const auto batches = std::clamp<std::uint64_t>(chains_, 4000, 20000);
    match(r.match, batches);
    locate(r.locate, batches / 4);
    const auto changed = std::clamp<std::uint64_t>(chains_ / 10, std::min<std::uint64_t>(chains_, 4), 4000);
    const auto rounds = std::max<std::uint64_t>(1, 400 / changed);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      evict(r.evict, changed);
      for (std::uint64_t c = 0; c < changed; ++c)
        insert_chain(r.refill, next_chain_++);
    }
    if (registry_->keys() != r.keys)
      std::abort();
    return r;
  }

private:
  static std::uint64_t scramble(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  static key_digest key(std::uint64_t chain, std::uint64_t depth) {
    const auto n = chain * chain_keys + depth;
    return {scramble(2 * n), scramble(2 * n + 1)};
  }

  /// As an engine does it after a save: 16 tokens a page.
  void describe(const std::vector<key_digest>& keys) {
    const auto n = keys.size();
    describe_pages_request request{ns_, {}};
    request.pages.block_tokens = 16;
    request.pages.keys.items = keys;
    request.pages.hashes.items.assign(n, 1);
    request.pages.parents.items.assign(n, 2);
    request.pages.has_parent.items.assign(n, 1);
    request.pages.tokens.items.assign(n * 16, 3);
    row_->describe.measure(n, [&] {
      if (!registry_->describe_pages(std::move(request)))
        std::abort();
      (void)registry_->take_outbox();
    });
  }

  void insert(meter& m, std::vector<key_digest> keys, std::vector<key_digest> parents) {
    const auto n = keys.size();
    reserve_request request{ns_, 0, next_ticket(), std::chrono::seconds(10), {}, {}};
    request.keys.items = std::move(keys);
    request.parents.items = std::move(parents);
    m.measure(n, [&] {
      const auto plan = registry_->begin_reserve(request, now_);
      std::vector<slot_ref> slots(plan->slots_needed);
      for (auto& slot : slots)
        slot = {next_slot_++, 1};
      const auto reply = registry_->finish_reserve(plan->plan, slots, now_);
      finish_request finish{ns_, 0, request.ticket, {}};
      finish.pages.items.reserve(n);
      for (std::size_t i = 0; i < n; ++i)
        finish.pages.items.push_back({request.keys[i], reply->results[i].where});
      const auto done = registry_->commit(finish, now_);
      if (done->results.size() != n || done->results[n - 1] != 0)
        std::abort();
      (void)registry_->take_outbox();
    });
    if (with_events_)
      describe(request.keys.items);
  }

  void insert_chain(meter& m, std::uint64_t chain) {
    std::vector<key_digest> keys(chain_keys);
    std::vector<key_digest> parents(chain_keys);
    for (std::uint64_t i = 0; i < chain_keys; ++i) {
      keys[i] = key(chain, i);
      if (i > 0)
        parents[i] = keys[i - 1];
    }
    insert(m, std::move(keys), std::move(parents));
  }

  void fill(meter& m) {
    next_chain_ = chains_;
    if (how_ == layout::ordered) {
      for (std::uint64_t c = 0; c < chains_; ++c)
        insert_chain(m, c);
      return;
    }
    for (std::uint64_t first = 0; first < chains_; first += chain_keys) {
      const auto width = std::min(chain_keys, chains_ - first);
      for (std::uint64_t depth = 0; depth < chain_keys; ++depth) {
        std::vector<key_digest> keys(width);
        std::vector<key_digest> parents(width);
        for (std::uint64_t i = 0; i < width; ++i) {
          keys[i] = key(first + i, depth);
          if (depth > 0)
            parents[i] = key(first + i, depth - 1);
        }
        insert(m, std::move(keys), std::move(parents));
      }
    }
  }

  match_request random_chain() {
    match_request request{ns_, next_ticket(), std::chrono::seconds(10), {}};
    request.keys.items.resize(chain_keys);
    const auto chain = random_() % chains_;
    for (std::uint64_t i = 0; i < chain_keys; ++i)
      request.keys.items[i] = key(chain, i);
    return request;
  }

  void match(meter& m, std::uint64_t batches) {
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto request = random_chain();
      m.measure(chain_keys, [&] {
        const auto reply = registry_->match(request, now_);
        if (reply->matched != chain_keys || !registry_->release({ns_, request.lease, 0}, now_))
          std::abort();
      });
    }
  }

  void locate(meter& m, std::uint64_t batches) {
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto wanted = random_chain();
      const locate_request request{ns_, 0, wanted.lease, wanted.lease_for, wanted.keys};
      m.measure(chain_keys, [&] {
        const auto reply = registry_->locate(request, now_);
        if (reply->locations[chain_keys - 1].code() != errc::ok || !registry_->release({ns_, request.lease, 0}, now_))
          std::abort();
      });
    }
  }

  void evict(meter& m, std::uint64_t chains) {
    for (std::uint64_t left = chains * chain_keys; left > 0;) {
      std::uint32_t freed = 0;
      const auto wanted = static_cast<std::uint32_t>(std::min(left, chain_keys));
      m.measure(wanted, [&] {
        const auto reply = registry_->evict({ns_, 0, wanted}, now_);
        freed = reply->slots;
        (void)registry_->take_outbox();
      });
      left -= freed;
    }
  }

  ticket next_ticket() { return {1 + ++sequence_ % 16, sequence_}; }

  bool with_events_;
  row* row_ = nullptr;
  layout how_;
  std::uint64_t chains_;
  std::optional<registry_state> registry_;
  namespace_id ns_;
  timestamp now_{std::chrono::seconds(1)};
  std::uint64_t sequence_ = 0;
  std::uint64_t next_chain_ = 0;
  slot_number next_slot_ = 0;
  std::mt19937_64 random_{42};
};

void print_table(const std::vector<row>& rows) {
  std::printf("registry state, one core, one rank, batches of %llu keys; ns per key (worst batch in us)\n\n",
              static_cast<unsigned long long>(chain_keys));
  std::printf("%10s %9s | %18s | %18s %8s | %18s | %18s | %18s | %9s\n", "keys", "layout", "reserve+commit",
              "match+release", "Mkeys/s", "locate+release", "evict", "reserve+commit 2", "bytes/key");
  for (const auto& r : rows) {
    std::printf("%10llu %9s", static_cast<unsigned long long>(r.keys),
                r.how == layout::ordered ? "ordered" : "scattered");
    std::printf(" | %7.1f (%8.1f)", r.fill.ns_per_key(), r.fill.worst_us());
    std::printf(" | %7.1f (%8.1f) %8.1f", r.match.ns_per_key(), r.match.worst_us(), 1e3 / r.match.ns_per_key());
    std::printf(" | %7.1f (%8.1f)", r.locate.ns_per_key(), r.locate.worst_us());
    std::printf(" | %7.1f (%8.1f)", r.evict.ns_per_key(), r.evict.worst_us());
    std::printf(" | %7.1f (%8.1f)", r.refill.ns_per_key(), r.refill.worst_us());
    std::printf(" | %9.1f\n", r.resident_per_key);
  }
  if (!rows.empty() && rows.back().describe.keys > 0) {
    std::printf("\n%10s %9s | %18s\n", "keys", "layout", "describe");
    for (const auto& r : rows)
      std::printf("%10llu %9s | %7.1f (%8.1f)\n", static_cast<unsigned long long>(r.keys),
                  r.how == layout::ordered ? "ordered" : "scattered", r.describe.ns_per_key(), r.describe.worst_us());
  }
  std::printf("\nreserve+commit: while the table grows; 2: into a table where as many keys were evicted before.\n"
              "scattered: no two keys of a chain are neighbours in memory. bytes/key: growth of the resident set.\n");
}

void print_json(const row& r) {
  const auto field = [](const char* name, const meter& m) {
    std::printf(",\"%s\":{\"ns_per_key\":%.2f,\"worst_us\":%.1f}", name, m.ns_per_key(), m.worst_us());
  };
  std::printf("{\"keys\":%llu,\"layout\":\"%s\"", static_cast<unsigned long long>(r.keys),
              r.how == layout::ordered ? "ordered" : "scattered");
  field("reserve_commit", r.fill);
  field("match_release", r.match);
  field("locate_release", r.locate);
  field("evict", r.evict);
  field("reserve_commit_again", r.refill);
  if (r.describe.keys > 0)
    field("describe", r.describe);
  std::printf(",\"match_keys_per_second\":%.0f,\"resident_bytes_per_key\":%.1f}\n", 1e9 / r.match.ns_per_key(),
              r.resident_per_key);
}

} // namespace

int main(int argc, char** argv) {
  std::uint64_t keys = 10'000'000;
  bool json = false;
  bool with_events = false;
  bool with_history = true;
  eviction_factory eviction = make_reuse_policy;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--json") {
      json = true;
    } else if (arg == "--lru") {
      eviction = make_lru_policy;
    } else if (arg == "--events") {
      with_events = true;
    } else if (arg == "--no-explain") {
      with_history = false;
    } else if (arg == "--keys" && i + 1 < argc) {
      keys = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: %s [--keys N] [--lru] [--events] [--no-explain] [--json]\n", argv[0]);
      return arg == "--help" ? 0 : 2;
    }
  }
  std::vector<row> rows;
  const auto measure = [&](std::uint64_t n, layout how) {
    rows.push_back(workload(n, how, eviction, with_events, with_history).run());
    if (json)
      print_json(rows.back());
  };
  for (std::uint64_t n = 10'000; n < keys; n *= 10)
    measure(n, layout::ordered);
  measure(keys, layout::ordered);
  if (keys >= 1'000'000)
    measure(keys, layout::scattered);
  if (!json)
    print_table(rows);
  return 0;
}
