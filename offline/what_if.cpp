#include "offline/what_if.hpp"

#include "actors/node/eviction/eviction_policies.hpp"
#include "config/schema.hpp"
#include "offline/played_cache.hpp"
#include "workload/replay/keys.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

namespace troupe::offline {

namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
/// Slots are numbers of 32 bits.
constexpr std::uint64_t most_slots = std::uint64_t{1} << 31U;
constexpr std::uint64_t least_slots = 16;
/// The number of points of a curve by default.
constexpr int usual_points = 6;

std::uint64_t play(const numbered_trace& what, const played_cache::options& how) {
  played_cache cache(how);
  std::uint64_t hits = 0;
  for (const auto& request : what.requests)
    hits += cache.play(what.keys_of(request));
  return hits;
}

std::vector<std::uint64_t> usual_capacities(const numbered_trace& what) {
  std::vector<std::uint64_t> out;
  std::uint64_t capacity = std::max<std::uint64_t>(what.keys.size(), least_slots);
  for (int i = 0; i < usual_points && capacity >= least_slots; ++i, capacity /= 2)
    out.push_back(capacity);
  std::ranges::reverse(out);
  return out;
}

result<void> check(const what_if_options& options) {
  for (const auto& x : options.policies)
    if (std::ranges::find(config::evictions, x) == config::evictions.end()) {
      std::string known;
      for (const auto name : config::evictions)
        known.append(known.empty() ? "" : ", ").append(name);
      return fail(errc::invalid_argument, "there is no policy '" + x + "'; there are " + known);
    }
  for (const auto x : options.capacities)
    if (x < least_slots || x > most_slots)
      return fail(errc::invalid_argument, "a capacity must be from " + std::to_string(least_slots) + " to " +
                                              std::to_string(most_slots) + " blocks, not " + std::to_string(x));
  if (options.shards == 0)
    return fail(errc::invalid_argument, "a registry has at least one shard");
  if (options.ranks == 0 || options.ranks > config::max_ranks)
    return fail(errc::invalid_argument, "a namespace has from 1 to " + std::to_string(config::max_ranks) +
                                            " ranks, not " + std::to_string(options.ranks));
  return {};
}

} // namespace

std::vector<key_digest> numbered_trace::keys_of(const std::vector<std::uint32_t>& request) const {
  std::vector<key_digest> out;
  out.reserve(request.size());
  for (const auto number : request)
    out.push_back(keys[number]);
  return out;
}

double numbered_trace::share(std::uint64_t hits) const noexcept {
  return blocks == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(blocks);
}

double what_if_report::ratio(std::uint64_t hits) const noexcept {
  return blocks == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(blocks);
}

numbered_trace number_trace(const replay::trace& what) {
  numbered_trace out;
  out.name = what.name;
  std::unordered_map<key_digest, std::uint32_t> numbers;
  for (const auto& x : what.requests) {
    auto& numbered = out.requests.emplace_back();
    bool leads = true;
    for (const auto& key : replay::chain_keys(x.hash_ids, 0)) {
      const auto [at, fresh] = numbers.emplace(key, static_cast<std::uint32_t>(out.keys.size()));
      if (fresh)
        out.keys.push_back(key);
      leads = leads && !fresh;
      out.repeated += leads ? 1 : 0;
      numbered.push_back(at->second);
    }
    out.blocks += numbered.size();
  }
  return out;
}

std::vector<std::string> every_policy() {
  std::vector<std::string> out;
  out.reserve(eviction_policies.size());
  for (const auto& x : eviction_policies)
    out.emplace_back(x.name);
  return out;
}

std::uint64_t optimal_hits(const numbered_trace& what, std::uint64_t capacity) {
  // The next use of the key, for each use, from the last one back.
  std::vector<std::uint64_t> next_use(what.keys.size(), never);
  std::vector<std::vector<std::uint64_t>> next(what.requests.size());
  for (auto t = what.requests.size(); t-- > 0;) {
    const auto& keys = what.requests[t];
    next[t].resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i)
      next[t][i] = next_use[keys[i]];
    for (const auto key : keys)
      next_use[key] = t;
  }
  using rank = std::pair<std::uint64_t, std::uint64_t>; // the next use, and the depth
  std::set<std::pair<rank, std::uint32_t>> order;
  std::vector<rank> ranks(what.keys.size());
  std::vector<bool> there(what.keys.size(), false);
  std::uint64_t hits = 0;
  for (std::size_t t = 0; t < what.requests.size(); ++t) {
    const auto& keys = what.requests[t];
    hits +=
        static_cast<std::uint64_t>(std::ranges::find_if_not(keys, [&](auto key) { return there[key]; }) - keys.begin());
    for (std::uint64_t depth = 0; depth < keys.size(); ++depth) {
      const auto key = keys[depth];
      if (there[key])
        order.erase({ranks[key], key});
      ranks[key] = {next[t][depth], depth};
      there[key] = true;
      order.insert({ranks[key], key});
    }
    for (; order.size() > capacity; order.erase(std::prev(order.end())))
      there[std::prev(order.end())->second] = false;
  }
  return hits;
}

result<what_if_report> what_if(const replay::trace& what, const what_if_options& options,
                               const std::function<void(const std::string&)>& progress) {
  if (auto sound = check(options); !sound)
    return tl::unexpected(std::move(sound.error()));
  const auto numbered = number_trace(what);
  what_if_report out;
  out.trace = what.name;
  out.ranks = options.ranks;
  out.requests = what.requests.size();
  out.blocks = numbered.blocks;
  out.different = numbered.keys.size();
  out.repeated = numbered.repeated;
  out.capacities = options.capacities.empty() ? usual_capacities(numbered) : options.capacities;
  std::ranges::sort(out.capacities);
  const auto first = std::unique(out.capacities.begin(), out.capacities.end());
  out.capacities.erase(first, out.capacities.end());
  const auto add = [&](const std::string& name, const auto& hits_with) {
    auto& row = out.rows.emplace_back();
    row.name = name;
    for (const auto capacity : out.capacities) {
      progress(name + " with " + std::to_string(capacity) + " blocks");
      const auto began = std::chrono::steady_clock::now();
      row.hits.push_back(hits_with(capacity));
      row.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
  };
  for (const auto& name : options.policies)
    add(name, [&](std::uint64_t capacity) {
      played_cache::options how{capacity, options.shards, eviction_named(name), options.low_watermark,
                                options.high_watermark};
      how.ranks = options.ranks;
      return play(numbered, how);
    });
  add(what_if_report::optimum, [&](std::uint64_t capacity) { return optimal_hits(numbered, capacity); });
  return out;
}

} // namespace troupe::offline
