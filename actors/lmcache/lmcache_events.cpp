#include "actors/client/transfer/description_parts.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/support/actor_support.hpp"
#include "lmcache/protocol/event_batches.hpp"

#include <algorithm>

/// Events about the chunks of LMCache's workers: for the node's publisher, and for workers that subscribe here.

namespace troupe {

namespace {

using lmcache::protocol::stream_control;

/// A batch has no more changes once it has so many bytes.
constexpr std::size_t batch_bytes = std::size_t{1} << 20U;
/// The most descriptions in progress; more are dropped, and with them events.
constexpr std::size_t descriptions_max = 1024;

/// Identifies a chunk in events. Keys are SHA-256, so any 64 bits of them will do.
std::uint64_t hash_of(const key_digest& key) {
  return key.hi;
}

/// As vLLM's events name it.
std::string kind_of(const lmcache::group_needs& x) {
  return x.recurrent ? "mamba" : x.window_chunks > 0 ? "sliding_window" : "full_attention";
}

} // namespace

void lmcache_server::subscribe(const request_ptr& x) {
  if (x->events.control != stream_control::none) {
    if (open_requests_.close(x))
      parts_.forget(*x);
    return x->events.control == stream_control::cancel ? events_.streams.cancelled(x->client, x->number)
                                                       : events_.streams.confirmed(x->client, x->number);
  }
  // The client then reports its own stores, and does not subscribe again.
  if (!parts_.log || !events_.streams.open(x)) {
    parts_.counters->refused.fetch_add(1, std::memory_order_relaxed);
    return answer(x, lmcache::protocol::answer_events({false, 0, 0, false}, {}));
  }
  send_events();
}

void lmcache_server::send_events() {
  if (parts_.log)
    events_.streams.for_each_ready([this](lmcache::event_streams::stream& to) {
      const bool is_first = std::exchange(to.is_new, false);
      to.waits = send_events(to, is_first);
    });
}

bool lmcache_server::send_events(lmcache::event_streams::stream& to, bool is_first) {
  const auto& wanted = to.opened->events;
  const auto part = parts_.log->read(wanted.model, to.cursor, wanted.most, batch_bytes);
  to.cursor = part.next;
  if (!is_first && part.changes.empty() && !part.lost)
    return false;
  std::vector<lmcache::protocol::cache_event> changes;
  changes.reserve(part.changes.size());
  for (const auto& x : part.changes)
    changes.push_back({x.number, x.what == events::logged_change::kind::stored, *x.model, x.hash,
                       x.has_parent ? std::optional(x.parent) : std::nullopt, x.tokens});
  auto frame = lmcache::protocol::answer_events({true, parts_.log->incarnation(), part.next, part.lost}, changes);
  if (open_requests_.is_open(to.opened))
    answer(to.opened, std::move(frame));
  else
    parts_.answer_again(*to.opened, std::move(frame));
  return true;
}

void lmcache_server::describe(const lmcache::transfer_rules::done& x) {
  const auto& chunks = x.request->chunks;
  if (chunks.tokens.empty() || !x.request->instance)
    return;
  const auto number = rules_.current({x.request->client, *x.request->instance});
  const auto known = instances_.find(number);
  if (known == instances_.end())
    return;
  const auto& of = *known->second;
  std::vector<std::vector<std::uint32_t>> those(of.groups.size());
  if (of.groups.size() == 1) {
    // Also those that were there already.
    for (auto i = chunks.begin; i < chunks.end; ++i)
      those.front().push_back(i);
  } else {
    for (const auto& run : x.stored)
      for (std::uint32_t i = 0; i < run.count; ++i)
        those[run.group].push_back(chunks.begin + run.first + i);
  }
  for (std::uint32_t group = 0; group < those.size(); ++group)
    if (!those[group].empty())
      describe(*x.request, of, group, those[group]);
}

void lmcache_server::describe(const lmcache::incoming& x, const instance& of, std::uint32_t group,
                              const std::vector<std::uint32_t>& chunks) {
  const auto& own = of.groups[group];
  const auto& node = own.node->node;
  if (!node.wants_descriptions)
    return;
  const auto& keys = x.chunks.keys;
  page_descriptions all;
  all.block_tokens = parts_.chunk_tokens;
  if (of.groups.size() > 1)
    all.groups.push_back({group, kind_of(own.needs)});
  for (const auto i : chunks) {
    const auto first = x.chunks.tokens.begin() + std::ptrdiff_t{i - x.chunks.begin} * parts_.chunk_tokens;
    all.tokens.items.insert(all.tokens.items.end(), first, first + parts_.chunk_tokens);
    all.keys.items.push_back(keys[i]);
    all.hashes.items.push_back(hash_of(keys[i]));
    all.parents.items.push_back(i > 0 ? hash_of(keys[i - 1]) : 0);
    all.has_parent.items.push_back(i > 0 ? 1 : 0);
  }
  auto parts = transfer::parts_by_shard(all, static_cast<std::uint32_t>(node.shards.size()), node.limits.batch_keys);
  if (events_.describing + parts.size() > descriptions_max)
    return;
  for (auto& part : parts) {
    ++events_.describing;
    ask(node.shards[part.shard], describe_pages_request{own.ns, std::move(part.pages)})
        .then([this](const result_codes&) { --events_.describing; },
              [this](const caf::error&) { --events_.describing; });
  }
}

} // namespace troupe
