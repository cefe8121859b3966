#include "tests/simulation/lease_book.hpp"

#include <algorithm>

namespace troupe::simulation {

namespace {

template <class Key>
void one_less(std::map<Key, int>& of, const Key& what) {
  const auto i = of.find(what);
  if (i != of.end() && --i->second == 0)
    of.erase(i);
}

} // namespace

void lease_book::taken(std::uint32_t shard, const ticket& name, std::span<const key_digest> keys, duration lease_for,
                       timestamp now) {
  auto& leases = shards_[shard].leases;
  auto found = leases.find(name);
  if (found != leases.end() && found->second.deadline <= now) {
    leases.erase(found);
    found = leases.end();
  }
  if (found == leases.end()) {
    if (keys.empty())
      return;
    found = leases.emplace(name, lease{}).first;
  }
  auto& l = found->second;
  for (const auto& key : keys)
    if (std::find(l.keys.begin(), l.keys.end(), key) == l.keys.end())
      l.keys.push_back(key);
  l.deadline = std::max(l.deadline, now + lease_for);
}

void lease_book::notified(std::uint32_t shard, const ticket& name, rank_number rank, const page_ref& page) {
  shards_[shard].leases.at(name).pages.push_back({rank, page});
}

void lease_book::released(std::uint32_t shard, const ticket& name, std::uint32_t keep, timestamp now) {
  one_less(shards_[shard].ending, name);
  auto& leases = shards_[shard].leases;
  const auto found = leases.find(name);
  if (found == leases.end())
    return;
  auto& l = found->second;
  if (keep == 0 || l.deadline <= now) {
    leases.erase(found);
    return;
  }
  if (keep < l.keys.size())
    l.keys.resize(keep);
  std::erase_if(l.pages, [&](const notified_page& x) {
    return std::find(l.keys.begin(), l.keys.end(), x.page.key) == l.keys.end();
  });
}

void lease_book::owner_died(std::uint32_t shard, owner_id owner, timestamp now) {
  one_less(shards_[shard].dying, owner);
  for (auto& [name, l] : shards_[shard].leases)
    if (name.owner == owner)
      l.deadline = std::min(l.deadline, now);
}

void lease_book::forget(std::uint32_t shard, timestamp before) {
  std::erase_if(shards_[shard].leases, [before](const auto& x) { return x.second.deadline <= before; });
}

void lease_book::reserved(std::uint32_t shard, const ticket& token, timestamp until) {
  auto& known = shards_[shard].reservations.emplace(token, until).first->second;
  known = std::max(known, until);
}

std::string lease_book::committed(std::uint32_t shard, const ticket& token, timestamp now) const {
  const auto& reservations = shards_[shard].reservations;
  const auto found = reservations.find(token);
  if (found == reservations.end())
    return "it is not reserved";
  if (now <= found->second)
    return {};
  return "its reservation has run out " + std::to_string((now - found->second).count()) + " ns before";
}

std::string lease_book::reader_of(std::uint32_t shard, rank_number rank, slot_ref where, timestamp now) const {
  for (const auto& [name, l] : shards_[shard].leases) {
    if (!shards_[shard].holds(name, l, now))
      continue;
    for (const auto& x : l.pages)
      if (x.rank == rank && x.page.where == where)
        return "lease " + std::to_string(name.owner) + "/" + std::to_string(name.sequence) + " holds it for key " +
               to_string(x.page.key);
  }
  return {};
}

std::string lease_book::holder_of(std::uint32_t shard, const key_digest& key, timestamp now) const {
  for (const auto& [name, l] : shards_[shard].leases)
    if (shards_[shard].holds(name, l, now) && std::find(l.keys.begin(), l.keys.end(), key) != l.keys.end())
      return "lease " + std::to_string(name.owner) + "/" + std::to_string(name.sequence) + " holds key " +
             to_string(key);
  return {};
}

std::pair<std::size_t, std::size_t> lease_book::count(std::uint32_t shard, timestamp now, timestamp before) const {
  std::pair<std::size_t, std::size_t> out;
  for (const auto& [name, l] : shards_[shard].leases) {
    out.first += l.deadline > now ? 1 : 0;
    out.second += l.deadline > before ? 1 : 0;
  }
  return out;
}

std::pair<std::size_t, std::size_t> lease_book::count_of(std::uint32_t shard, const key_digest& key, timestamp now,
                                                         timestamp before) const {
  std::pair<std::size_t, std::size_t> out;
  for (const auto& [name, l] : shards_[shard].leases)
    if (l.deadline > before && std::find(l.keys.begin(), l.keys.end(), key) != l.keys.end()) {
      out.first += l.deadline > now ? 1 : 0;
      ++out.second;
    }
  return out;
}

std::optional<key_digest> lease_book::key_of(std::uint32_t shard, const ticket& name, std::size_t place) const {
  const auto found = shards_[shard].leases.find(name);
  return found == shards_[shard].leases.end() || place >= found->second.keys.size()
             ? std::nullopt
             : std::optional(found->second.keys[place]);
}

bool lease_book::lasts(std::uint32_t shard, const ticket& name, timestamp now) const {
  const auto found = shards_[shard].leases.find(name);
  return found != shards_[shard].leases.end() && found->second.deadline > now;
}

bool lease_book::lists(std::uint32_t shard, const ticket& name, const key_digest& key, timestamp now) const {
  if (!lasts(shard, name, now))
    return false;
  const auto& keys = shards_[shard].leases.at(name).keys;
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::optional<lease_book::holding> lease_book::any_key(std::uint32_t shard, std::uint64_t random) const {
  const auto& leases = shards_[shard].leases;
  if (leases.empty())
    return std::nullopt;
  const auto& [name, l] = *std::next(leases.begin(), static_cast<std::ptrdiff_t>(random % leases.size()));
  return holding{name.owner, l.keys[random / leases.size() % l.keys.size()]};
}

std::optional<lease_book::holding> lease_book::key_at(rank_number rank, slot_ref where) const {
  for (const auto& shard : shards_)
    for (const auto& [name, l] : shard.leases)
      for (const auto& x : l.pages)
        if (x.rank == rank && x.page.where == where)
          return holding{name.owner, x.page.key};
  return std::nullopt;
}

} // namespace troupe::simulation
