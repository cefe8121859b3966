// The hit ratio of a trace for models with several groups of layers, by capacity and eviction policy: groups that evict
// apart, beside groups that follow each other as a node's do, and beside one group. With the real rules of registry
// shards, allocators and hits, and without actors, one request at a time. Every request saves a page in each group
// where there is none, in the order in which a prefill fills them.

#include "actors/node/eviction/eviction_policies.hpp"
#include "config/node_config.hpp"
#include "connector/groups/page_group.hpp"
#include "offline/played_cache.hpp"
#include "offline/what_if.hpp"
#include "workload/replay/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace troupe;

constexpr std::uint32_t page_tokens = 512;

/// A group of layers, and how much of a prefix it saves: all pages, or every n-th and the last one of a prompt.
struct group {
  connector::page_group needs;
  std::uint32_t every = 1;
};

struct model {
  const char* name;
  std::vector<group> groups;
};

group full() {
  return {{connector::group_kind::full}};
}

group window(std::uint32_t tokens) {
  return {{connector::group_kind::window, tokens}};
}

group state(std::uint32_t every) {
  return {{connector::group_kind::state}, every};
}

/// The capacities of the groups, so that each holds as many tokens as the others: what a workload makes of slabs that
/// grow until the disk is full.
std::vector<std::uint64_t> capacities(const model& of, std::uint64_t pages) {
  std::vector<std::uint64_t> out;
  for (const auto& x : of.groups)
    out.push_back(pages / x.every);
  return out;
}

/// A prompt's last page has a state even where not every page has one.
bool saves(const group& x, std::size_t page, std::size_t pages) {
  return (page + 1) % x.every == 0 || page + 1 == pages;
}

std::uint32_t play(offline::played_cache& cache, const model& of, std::span<const key_digest> keys) {
  // A lease is in one namespace.
  std::vector<ticket> lookups;
  std::vector<std::vector<std::uint8_t>> found;
  std::vector<connector::page_group> needs;
  for (std::uint32_t g = 0; g < of.groups.size(); ++g) {
    lookups.push_back(cache.begin());
    found.push_back(cache.find(keys, lookups[g], g));
    needs.push_back(of.groups[g].needs);
  }
  const auto hit = connector::longest_hit(needs, found, static_cast<std::uint32_t>(keys.size()), page_tokens);
  for (std::uint32_t g = 0; g < of.groups.size(); ++g) {
    if (hit > 0)
      cache.use(keys, connector::first_page_needed(needs[g], hit, page_tokens), hit, lookups[g], g);
    const bool chained = needs[g].kind == connector::group_kind::full;
    for (std::size_t first = hit; first < keys.size();) {
      // Runs of pages that are saved together.
      auto last = first;
      while (last < keys.size() && saves(of.groups[g], last, keys.size()))
        ++last;
      if (last > first)
        cache.save(keys, first, last, {.group = g, .chained = chained});
      first = last + 1;
    }
    cache.end(lookups[g], {}, g);
  }
  return hit;
}

double hits(const offline::numbered_trace& what, const model& of, std::uint64_t pages, const std::string& policy,
            std::uint32_t shards, bool related) {
  const config::storage_config defaults;
  offline::played_cache::options options{0, shards, eviction_named(policy), defaults.low_watermark,
                                         defaults.high_watermark};
  options.group_capacities = capacities(of, pages);
  options.groups_related = related;
  offline::played_cache cache(options);
  std::uint64_t sum = 0;
  for (const auto& request : what.requests)
    sum += play(cache, of, what.keys_of(request));
  return what.share(sum);
}

constexpr std::uint64_t shown_capacities[] = {3000, 5000, 10000, 20000, 30000};

void print_table(const offline::numbered_trace& what) {
  const model models[] = {
      {"one group", {full()}},
      {"full and a window of 1,024 tokens", {full(), window(1024)}},
      {"full and a window of 128 tokens", {full(), window(128)}},
      {"full and a state a page", {full(), state(1)}},
      {"full and a state every 8 pages", {full(), state(8)}},
      {"full, window and states", {full(), window(1024), state(4)}},
  };
  std::printf("\n%s: %zu requests, %llu pages; hits of all pages by the pages of capacity\n\n%-46s", what.name.c_str(),
              what.requests.size(), static_cast<unsigned long long>(what.blocks), "");
  for (const auto capacity : shown_capacities)
    std::printf(" %9llu", static_cast<unsigned long long>(capacity));
  std::printf("\n");
  for (const auto& of : models)
    for (const auto& policy : offline::what_if_options{}.policies)
      for (const std::uint32_t shards : {1U, 4U})
        for (const bool related : {false, true}) {
          if (related && of.groups.size() == 1)
            continue;
          const auto name = policy + (shards == 1 ? ", 1 shard" : ", 4 shards") +
                            (of.groups.size() == 1 ? ""
                             : related             ? ", together"
                                                   : ", apart");
          std::printf("%-34s %-20s", of.name, name.c_str());
          for (const auto capacity : shown_capacities)
            std::printf(" %9.4f", hits(what, of, capacity, policy, shards, related));
          std::printf("\n");
          std::fflush(stdout);
        }
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::string> traces;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--trace" && i + 1 < argc) {
      traces.emplace_back(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: %s [--trace FILE|loogle:…|mixed:…]…\n", argv[0]);
      return arg == "--help" ? 0 : 2;
    }
  }
  if (traces.empty())
    traces = {"mixed:1,20000,60,5,15,20", "loogle:100,204800,20,1024"};
  for (const auto& name : traces) {
    const auto what = replay::open_trace(name, page_tokens, {});
    if (!what) {
      std::fprintf(stderr, "%s\n", what.error().text.c_str());
      return 1;
    }
    print_table(offline::number_trace(*what));
  }
}
