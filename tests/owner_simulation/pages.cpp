#include "tests/owner_simulation/world.hpp"

#include <algorithm>

/// Pages: a node's writes to its slots and its index, and the reads of them, by itself and by its adopters.

namespace troupe::owner_simulation {

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t keys = 8;

} // namespace

bool world::is_free(const contender& c, std::uint32_t slot) const {
  return std::ranges::none_of(c.index, [&](const auto& x) { return x.second.slot == slot; });
}

void world::save(std::uint64_t number) {
  auto& x = *find(number);
  auto& c = x.contenders.front();
  if (!believes(x, c))
    return count(c.held ? "refused to write" : "not open yet");
  const page_key key = random_.number(1, keys);
  if (c.index.contains(key))
    return;
  std::optional<page_key> evicted;
  std::uint32_t slot = 0;
  while (slot < 4 && !is_free(c, slot))
    ++slot;
  if (slot == 4) {
    auto victim = c.index.begin();
    std::advance(victim, random_.below(c.index.size()));
    slot = victim->second.slot;
    evicted = victim->first;
    c.index.erase(victim);
    if (c.opened == directories_[c.directory].opened)
      directories_[c.directory].index.erase(*evicted);
  }
  const location where{slot, ++last_generation_};
  c.index.emplace(key, where);
  // Was allowed when it was begun; at times it reaches the disk long after that.
  const auto late =
      random_.one_in(10) ? random_.skewed_time(milliseconds(100), 6 * std::chrono::seconds(8)) : file_time();
  after(late, [this, place = c.directory, key, where] {
    directories_[place].slots[where.slot] = {key, where.generation};
  });
  after(late + file_time(), [this, number, key, where, evicted] {
    in_turn(number, [this, number, key, where, evicted] { commit(number, key, where, evicted); });
  });
}

void world::commit(std::uint64_t number, page_key key, location where, std::optional<page_key>) {
  auto& x = *find(number);
  auto& c = x.contenders.front();
  const auto known = c.index.find(key);
  if (known == c.index.end() || known->second.generation != where.generation)
    return;
  if (!believes(x, c)) {
    count("refused to commit");
    c.index.erase(known);
    return;
  }
  count("saved");
  directories_[c.directory].index[key] = where;
}

void world::read(process&, contender& c) {
  const bool adopted = c.kind == io::claim_kind::adopter;
  if (!c.held)
    return;
  for (const auto& [key, where] : c.index) {
    const auto& found = directories_[c.directory].slots[where.slot];
    const bool is_it = found.key == key && found.generation == where.generation;
    if (!is_it && !has(defect::trust_the_index)) {
      count(adopted ? "adopted page missed" : "page missed");
      continue;
    }
    if (found.key != key)
      broken("bytes", "key " + std::to_string(key) + " was answered with a page of key " + std::to_string(found.key));
    count(adopted ? "adopted page read" : "page read");
  }
}

} // namespace troupe::owner_simulation
