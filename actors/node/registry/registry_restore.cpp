// How registry_state comes back from what an earlier run stored.

#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <utility>

namespace troupe {

/// Who claims each slot, while pages are being restored.
struct registry_state::restoring {
  /// Zero while nobody has claimed the slot. A claim without an entry is one that two had: nobody gets the slot any
  /// more.
  struct claim {
    std::uint32_t entry_plus_one = 0;
    generation_number generation = 0;
  };

  using claims = chunked_array<claim>;

  claim& of(std::uint32_t space, rank_number rank, slot_number slot) {
    const auto name = (std::uint64_t{space} << 32U) | rank;
    if (last == nullptr || name != last_name) {
      auto& found = by_rank[name];
      if (!found)
        found = std::make_unique<claims>();
      last = found.get();
      last_name = name;
    }
    last->grow_to(std::uint64_t{slot} + 1);
    return (*last)[slot];
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<claims>> by_rank;
  claims* last = nullptr;
  std::uint64_t last_name = 0;
};

registry_state::registry_state(const registry_options& options)
    : options_(options), tables_(options.memory), restoring_(std::make_unique<restoring>()) {
  assert(options_.shard < options_.shard_count);
}

registry_state::~registry_state() = default;

errc registry_state::restore_page(const stored_page& page, entry_index hint) {
  const auto number = space_number(page.space);
  if (!number)
    return errc::unknown_namespace;
  auto& space = *spaces_[*number];
  if (page.key.is_null() || page.where.generation == 0 || shard_of(page.key, options_.shard_count) != options_.shard)
    return errc::invalid_argument;
  const auto forgotten = [&](errc code) {
    space.outbox().change(page_unpublished{page.space, page.key, page.rank});
    return code;
  };
  if (!space.has_rank(page.rank) || page.where.slot >= space.info_of(page.rank).slots)
    return forgotten(errc::out_of_range);
  auto& claim = restoring_->of(*number, page.rank, page.where.slot);
  auto entry = space.table().refresh(hint, page.key);
  if (entry != no_entry && space.table().page(entry, page.rank).live())
    return space.table().page(entry, page.rank).where() == page.where ? errc::ok : errc::exists;
  if (claim.generation != 0) {
    // At most one of the two is right, and nothing says which: generations of different runs begin at random.
    if (claim.entry_plus_one != 0) {
      space.drop(std::exchange(claim.entry_plus_one, 0) - 1, page.rank);
      ++restored_.displaced;
      --restored_.pages;
    }
    return forgotten(errc::stale);
  }
  entry = space.find_or_create(page.key, no_entry);
  if (entry == no_entry)
    return forgotten(errc::limit_exceeded);
  claim.generation = page.where.generation;
  if (space.restore(entry, page.rank, page.where))
    space.inserted({&entry, 1});
  claim.entry_plus_one = entry + 1;
  if (space.options().slot_index && options_.promised > duration::zero())
    space.protect(entry, coarse_clock::since_beginning(options_.promised));
  if (!page.parent.is_null() && page.parent != page.key)
    space.adopt_parent(entry, page.parent, no_entry);
  ++restored_.pages;
  return errc::ok;
}

result<result_codes> registry_state::restore(std::span<const stored_page> pages) {
  if (!restoring_)
    return refuse({errc::invalid_argument, "pages come back before service begins, and it has begun"});
  result_codes reply;
  reply.results.items.reserve(pages.size());
  // Pages of one namespace mostly come together: their entries are fetched together.
  for (std::size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
    keys_.clear();
    for (end = begin; end < pages.size() && pages[end].space == pages[begin].space; ++end)
      keys_.push_back(pages[end].key);
    found_.assign(keys_.size(), no_entry);
    if (const auto* space = find_space(pages[begin].space))
      space->table().find(keys_, found_);
    for (auto i = begin; i < end; ++i) {
      const auto code = restore_page(pages[i], found_[i - begin]);
      restored_.refused += code == errc::ok ? 0 : 1;
      reply.results.items.push_back(static_cast<std::uint8_t>(code));
    }
  }
  return reply;
}

result<result_codes> registry_state::drop_restored(const namespace_id& id, rank_number rank,
                                                   std::span<const slot_ref> slots) {
  if (!restoring_)
    return refuse({errc::invalid_argument, "pages are dropped before service begins, and it has begun"});
  const auto space = find_rank(id, rank);
  if (!space)
    return refuse(space.error());
  result_codes reply;
  for (const auto& where : slots) {
    auto code = errc::not_found;
    if (where.slot < space->keys.info_of(rank).slots) {
      auto& claim = restoring_->of(space->number, rank, where.slot);
      if (claim.entry_plus_one != 0 && claim.generation == where.generation) {
        space->keys.drop(std::exchange(claim.entry_plus_one, 0) - 1, rank);
        ++restored_.displaced;
        --restored_.pages;
        code = errc::ok;
      }
    }
    reply.results.items.push_back(static_cast<std::uint8_t>(code));
  }
  return reply;
}

result<restore_report> registry_state::restored() {
  if (!restoring_)
    return refuse({errc::invalid_argument, "service has begun already"});
  restoring_.reset();
  restored_.keys = keys();
  return restored_;
}

} // namespace troupe
