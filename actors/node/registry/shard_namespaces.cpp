#include "actors/node/registry/shard_namespaces.hpp"

#include "messages/registry_slot_messages.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

const key_space* shard_namespaces::find(const namespace_id& id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? nullptr : namespaces_[found->second].get();
}

result<std::uint32_t> shard_namespaces::number_of(const namespace_id& id) const {
  const auto found = numbers_.find(id);
  if (found == numbers_.end())
    return fail(errc::unknown_namespace, "no namespace " + to_string(id) + " in this registry; add it first");
  return found->second;
}

result<found_namespace> shard_namespaces::find_namespace(const namespace_id& id) const {
  const auto number = number_of(id);
  if (!number)
    return tl::unexpected<error>(number.error());
  return found_namespace{*number, *namespaces_[*number]};
}

result<found_namespace> shard_namespaces::find_rank(const namespace_id& id, rank_number rank) const {
  auto ns = find_namespace(id);
  if (ns)
    if (auto bad = check_rank(ns->keys, rank))
      return tl::unexpected<error>(std::move(*bad));
  return ns;
}

std::uint32_t shard_namespaces::add(std::unique_ptr<key_space> ns) {
  const auto at = std::find(namespaces_.begin(), namespaces_.end(), nullptr);
  const auto number = static_cast<std::uint32_t>(at - namespaces_.begin());
  numbers_.emplace(ns->id(), number);
  if (at == namespaces_.end())
    namespaces_.push_back(std::move(ns));
  else
    *at = std::move(ns);
  if (siblings_.size() < namespaces_.size())
    siblings_.resize(namespaces_.size());
  const auto& whole = namespaces_[number]->spec().group_of;
  for (const auto& [id, other] : numbers_)
    if (!whole.empty() && other != number && namespaces_[other]->spec().group_of == whole &&
        siblings_[other].size() < most_siblings && siblings_[number].size() < most_siblings) {
      relate(number, other);
      relate(other, number);
    }
  return number;
}

void shard_namespaces::hide(const namespace_id& id) {
  const auto found = numbers_.find(id);
  if (found == numbers_.end())
    return;
  const auto number = found->second;
  numbers_.erase(found);
  for (const auto other : std::exchange(siblings_[number], {})) {
    std::erase(siblings_[other], number);
    end_if_alone(other);
  }
  end_if_alone(number);
}

void shard_namespaces::relate(std::uint32_t number, std::uint32_t to) {
  if (siblings_[number].empty()) {
    with_siblings_.push_back(number);
    namespaces_[number]->collect_group_changes(true);
  }
  siblings_[number].push_back(to);
}

void shard_namespaces::end_if_alone(std::uint32_t number) {
  if (!siblings_[number].empty())
    return;
  std::erase(with_siblings_, number);
  namespaces_[number]->collect_group_changes(false);
}

std::optional<error> shard_namespaces::check_rank(const key_space& ns, rank_number rank) const {
  if (ns.has_rank(rank))
    return std::nullopt;
  const auto prefix = "rank " + std::to_string(rank) + ": namespace \"" + ns.spec().name + "\" has ";
  if (ns.options().automatic)
    return error{errc::out_of_range,
                 prefix + std::to_string(ns.ranks().size()) + " ranks without this one; register it first"};
  return error{errc::out_of_range, prefix + "ranks 0 to " + std::to_string(ns.spec().world_size - 1)};
}

std::optional<error> shard_namespaces::check_ranks(const key_space& ns, rank_number rank) const {
  return rank == all_ranks ? std::nullopt : check_rank(ns, rank);
}

std::optional<error> shard_namespaces::check_batch(std::size_t n) const {
  if (n <= options_.max_batch)
    return std::nullopt;
  return error{errc::limit_exceeded, "a batch of " + std::to_string(n) + " keys; at most " +
                                         std::to_string(options_.max_batch) + " are allowed, send several"};
}

std::optional<error> shard_namespaces::check_keys(std::span<const key_digest> keys) const {
  if (auto bad = check_batch(keys.size()))
    return bad;
  for (const auto& key : keys)
    if (key.is_null())
      return error{errc::invalid_argument, "the null key means no key, and cannot be stored or looked up"};
  return std::nullopt;
}

result<found_namespace> shard_namespaces::find_keys(const namespace_id& id, rank_number rank,
                                                    std::span<const key_digest> keys,
                                                    std::vector<entry_index>& entries) const {
  auto found = find_namespace(id);
  if (!found)
    return found;
  if (auto bad = check_ranks(found->keys, rank))
    return tl::unexpected<error>(*std::move(bad));
  if (auto bad = check_keys(keys))
    return tl::unexpected<error>(*std::move(bad));
  entries.resize(keys.size());
  found->keys.table().find(keys, entries);
  return found;
}

std::optional<error> shard_namespaces::check_duration(duration x, duration most, std::string_view what) {
  if (x > duration::zero() && x <= most)
    return std::nullopt;
  return error{errc::invalid_argument, std::string(what) + " must be more than 0 and at most " +
                                           std::to_string(most.count()) + " ns, but is " + std::to_string(x.count())};
}

std::optional<error> shard_namespaces::check_ticket(const ticket& x) {
  if (x.owner != 0)
    return std::nullopt;
  return error{errc::invalid_argument, "the ticket's owner is 0, which means no owner; use the client's own id"};
}

} // namespace troupe
