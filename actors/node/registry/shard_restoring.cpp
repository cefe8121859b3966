#include "actors/node/registry/shard_restoring.hpp"

#include "actors/node/registry/answers.hpp"

#include <utility>

namespace troupe {

shard_restoring::slot_claim& shard_restoring::claims::of(std::uint32_t ns, rank_number rank, slot_number slot) {
  const auto name = (std::uint64_t{ns} << 32U) | rank;
  if (last_ == nullptr || name != last_name_) {
    auto& found = by_rank_[name];
    if (!found)
      found = std::make_unique<of_rank>();
    last_ = found.get();
    last_name_ = name;
  }
  last_->grow_to(std::uint64_t{slot} + 1);
  return (*last_)[slot];
}

void shard_restoring::drop(key_space& ns, rank_number rank, slot_claim& what) {
  const auto entry = std::exchange(what.entry_plus_one, 0) - 1;
  ns.note(ns.table().entry(entry).key, key_event::not_restored, rank);
  ns.drop(entry, rank);
  ++report_.displaced;
  --report_.pages;
}

errc shard_restoring::restore_page(const stored_page& page, entry_index hint) {
  const auto number = namespaces_.number_of(page.ns);
  if (!number)
    return errc::unknown_namespace;
  auto& ns = namespaces_.at(*number);
  if (page.key.is_null() || page.where.generation == 0 ||
      shard_of(page.key, namespaces_.options().shard_count) != namespaces_.options().shard)
    return errc::invalid_argument;
  const auto forgotten = [&](errc code) {
    ns.outbox().change(page_unpublished{page.ns, page.key, page.rank});
    return code;
  };
  if (!ns.has_rank(page.rank) || page.where.slot >= ns.info_of(page.rank).slots)
    return forgotten(errc::out_of_range);
  auto& claim = claims_->of(*number, page.rank, page.where.slot);
  auto entry = ns.table().refresh(hint, page.key);
  if (entry != no_entry && ns.table().page(entry, page.rank).live())
    return ns.table().page(entry, page.rank).where() == page.where ? errc::ok : errc::exists;
  if (claim.generation != 0) {
    // At most one of the two is right, and nothing tells which: generations of different runs start at random.
    if (claim.entry_plus_one != 0)
      drop(ns, page.rank, claim);
    return forgotten(errc::stale);
  }
  entry = ns.find_or_create(page.key, no_entry);
  if (entry == no_entry)
    return forgotten(errc::limit_exceeded);
  claim.generation = page.where.generation;
  if (ns.restore(entry, page.rank, page.where))
    ns.inserted({&entry, 1});
  claim.entry_plus_one = entry + 1;
  if (ns.options().slot_index && namespaces_.options().promised > duration::zero())
    ns.protect(entry, coarse_clock::since_beginning(namespaces_.options().promised));
  if (!page.parent.is_null() && page.parent != page.key)
    ns.adopt_parent(entry, page.parent, no_entry);
  ++report_.pages;
  return errc::ok;
}

std::optional<error> shard_restoring::check_restored(std::size_t n) {
  if (n <= restored_pages_max)
    return std::nullopt;
  return error{errc::limit_exceeded, std::to_string(n) + " pages of an earlier run in one message; at most " +
                                         std::to_string(restored_pages_max) + " are allowed"};
}

result<result_codes> shard_restoring::restore(std::span<const stored_page> pages) {
  if (!claims_)
    return namespaces_.refuse({errc::invalid_argument, "pages can be restored only before service begins"});
  if (auto bad = check_restored(pages.size()))
    return namespaces_.refuse(*std::move(bad));
  result_codes reply;
  reply.results.items.reserve(pages.size());
  // Pages of one namespace mostly come together, so their entries are looked up together.
  for (std::size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
    keys_.clear();
    for (end = begin; end < pages.size() && pages[end].ns == pages[begin].ns; ++end)
      keys_.push_back(pages[end].key);
    found_.assign(keys_.size(), no_entry);
    if (const auto* ns = namespaces_.find(pages[begin].ns))
      ns->table().find(keys_, found_);
    for (auto i = begin; i < end; ++i) {
      const auto code = restore_page(pages[i], found_[i - begin]);
      report_.refused += code == errc::ok ? 0 : 1;
      reply.results.items.push_back(byte_of(code));
    }
  }
  return reply;
}

result<result_codes> shard_restoring::drop_restored(const namespace_id& id, rank_number rank,
                                                    std::span<const slot_ref> slots) {
  if (!claims_)
    return namespaces_.refuse({errc::invalid_argument, "restored pages can be dropped only before service begins"});
  if (auto bad = check_restored(slots.size()))
    return namespaces_.refuse(*std::move(bad));
  const auto ns = namespaces_.find_rank(id, rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  result_codes reply;
  for (const auto& where : slots) {
    auto code = errc::not_found;
    if (where.slot < ns->keys.info_of(rank).slots) {
      auto& claim = claims_->of(ns->number, rank, where.slot);
      if (claim.entry_plus_one != 0 && claim.generation == where.generation) {
        drop(ns->keys, rank, claim);
        code = errc::ok;
      }
    }
    reply.results.items.push_back(byte_of(code));
  }
  return reply;
}

result<restore_report> shard_restoring::restored(std::uint64_t keys) {
  if (!claims_)
    return namespaces_.refuse({errc::invalid_argument, "service has begun already"});
  claims_.reset();
  report_.keys = keys;
  return report_;
}

} // namespace troupe
