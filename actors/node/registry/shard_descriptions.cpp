#include "actors/node/registry/shard_descriptions.hpp"

#include "actors/node/registry/answers.hpp"
#include "events/description_rules.hpp"
#include "events/description_text.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void shard_descriptions::find_residents(const key_space& ns) {
  resident_.clear();
  const auto& residence = namespaces_.options().residence;
  for (const auto rank : ns.ranks()) {
    auto slots = residence ? residence->find(ns.id(), rank) : nullptr;
    if (!slots)
      return resident_.clear();
    resident_.push_back(std::move(slots));
  }
}

bool shard_descriptions::in_memory(const key_space& ns, entry_index i) const {
  if (resident_.empty())
    return false;
  const auto ranks = ns.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!resident_[r]->contains(ns.table().page(i, ranks[r]).where().slot))
      return false;
  return true;
}

result<result_codes> shard_descriptions::describe(describe_pages_request request, bool stores) {
  if (!namespaces_.options().events)
    return fail(errc::unsupported, "this node publishes no events; set events.endpoint");
  const auto ns = namespaces_.find_namespace(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto& pages = request.pages;
  auto bad = namespaces_.check_batch(pages.keys.size());
  if (!bad)
    bad = events::fault_of(pages);
  if (bad)
    return namespaces_.refuse(std::move(*bad));
  auto& keys = ns->keys;
  auto& described = *keys.described();
  find_residents(keys);
  found_.resize(pages.keys.size());
  keys.table().find(pages.keys.items, found_);
  result_codes reply;
  reply.results.items.assign(found_.size(), byte_of(errc::not_found));
  events::pages_described change;
  for (std::uint32_t i = 0; i < found_.size(); ++i) {
    const auto entry = found_[i];
    if (entry == no_entry || !keys.complete(entry))
      continue;
    const bool now_in_memory = in_memory(keys, entry);
    // The tier of a known page stays until it is looked at, so that its move is published.
    const bool before = described.is_described(entry);
    const bool tier = before ? described.was_in_memory(entry) : now_in_memory;
    described.describe(entry, tier);
    if (stores && !before && keys.outbox().feeds())
      keys.outbox().change(key_described{request.ns, pages.keys[i], events::description_text(pages, i)});
    change.positions.push_back(i);
    change.in_memory.push_back(tier ? 1 : 0);
    reply.results[i] = byte_of(errc::ok);
  }
  if (change.positions.empty())
    return reply;
  change.pages = std::move(pages);
  described.add(std::move(change));
  return reply;
}

void shard_descriptions::look_at_tiers() {
  if (!namespaces_.options().events || namespaces_.end() == 0)
    return;
  if (number_ >= namespaces_.end() || !namespaces_.has(number_) || entry_ >= namespaces_.at(number_).table().end()) {
    number_ = number_ + 1 >= namespaces_.end() ? 0 : number_ + 1;
    entry_ = 0;
    if (!namespaces_.has(number_))
      return;
  }
  auto& ns = namespaces_.at(number_);
  find_residents(ns);
  if (resident_.empty()) {
    entry_ = ns.table().end();
    return;
  }
  auto& described = *ns.described();
  const auto end = std::min<std::uint64_t>(ns.table().end(), std::uint64_t{entry_} + looks);
  for (; entry_ < end; ++entry_) {
    if (!described.is_described(entry_))
      continue;
    if (const bool tier = in_memory(ns, entry_); tier != described.was_in_memory(entry_))
      described.move(entry_, ns.table().entry(entry_).key, tier);
  }
}

} // namespace troupe
