// Adds and removes namespaces and ranks, and serves the requests of administrators.

#include "actors/node/registry/shard_administration.hpp"

#include "actors/node/registry/answers.hpp"
#include "base/geometry_bounds.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

template <class T>
void append_difference(std::string& out, std::string_view field, const T& ours, const T& theirs) {
  if (ours == theirs)
    return;
  if (!out.empty())
    out.append(", ");
  if constexpr (std::is_same_v<T, std::string>)
    out.append(field).append(" \"").append(ours).append("\" is not \"").append(theirs).append("\"");
  else
    out.append(field).append(" ").append(std::to_string(ours)).append(" is not ").append(std::to_string(theirs));
}

/// Describes how the first unequal groups differ.
void append_difference(std::string& out, const std::vector<kv_layer_group>& ours,
                       const std::vector<kv_layer_group>& theirs) {
  append_difference(out, "number of further_layers", ours.size(), theirs.size());
  const auto [our, their] = std::ranges::mismatch(ours, theirs);
  if (our == ours.end() || their == theirs.end())
    return;
  const auto at = "further_layers[" + std::to_string(our - ours.begin()) + "].";
  append_difference(out, at + "layers", our->layers, their->layers);
  append_difference(out, at + "parts", our->shape.parts, their->shape.parts);
  append_difference(out, at + "heads", our->shape.heads, their->shape.heads);
  append_difference(out, at + "head_size", our->shape.head_size, their->shape.head_size);
  append_difference(out, at + "element_bytes", our->shape.element_bytes, their->shape.element_bytes);
}

/// Lists the fields of the identity that differ, and how.
std::string differences(const namespace_spec& ours, const namespace_spec& theirs) {
  std::string out;
  append_difference(out, "model", ours.model, theirs.model);
  append_difference(out, "revision", ours.revision, theirs.revision);
  append_difference(out, "dtype", ours.dtype, theirs.dtype);
  append_difference(out, "layout", ours.layout, theirs.layout);
  append_difference(out, "salt", ours.salt, theirs.salt);
  append_difference(out, "world_size", ours.world_size, theirs.world_size);
  append_difference(out, "layers", ours.geometry.layers, theirs.geometry.layers);
  append_difference(out, "parts", ours.geometry.parts, theirs.geometry.parts);
  append_difference(out, "heads", ours.geometry.heads, theirs.geometry.heads);
  append_difference(out, "head_size", ours.geometry.head_size, theirs.geometry.head_size);
  append_difference(out, "element_bytes", ours.geometry.element_bytes, theirs.geometry.element_bytes);
  append_difference(out, "block_tokens", ours.geometry.block_tokens, theirs.geometry.block_tokens);
  append_difference(out, ours.geometry.further, theirs.geometry.further);
  return out;
}

/// Which options differ, and how.
std::string differences(const namespace_options& ours, const namespace_options& theirs) {
  std::string out;
  append_difference(out, "automatic", ours.automatic, theirs.automatic);
  append_difference(out, "slot_index", ours.slot_index, theirs.slot_index);
  append_difference(out, "max_ranks", ours.max_ranks, theirs.max_ranks);
  return out;
}

error out_of_bounds(const namespace_spec& spec, std::string_view what, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  return {errc::invalid_argument, "namespace \"" + spec.name + "\": " + std::string(what) + " is " +
                                      std::to_string(value) + ", but must be from " + std::to_string(least) + " to " +
                                      std::to_string(most)};
}

} // namespace

// -- namespaces -----------------------------------------------------------------------------------------------------

result<void> shard_administration::check_bounds(const namespace_spec& spec, const namespace_options& options) {
  constexpr auto most_ranks = std::numeric_limits<std::uint16_t>::max(); // the largest count that an entry can hold
  const auto most = std::min<std::uint32_t>(spaces_.options().max_ranks, most_ranks);
  if (options.automatic && spec.world_size != 0)
    return spaces_.refuse({errc::invalid_argument, "namespace \"" + spec.name + "\": world_size is " +
                                                       std::to_string(spec.world_size) +
                                                       ", but must be 0 if it follows from the ranks that register"});
  if (options.automatic && (options.max_ranks == 0 || options.max_ranks > most))
    return spaces_.refuse(out_of_bounds(spec, "max_ranks", options.max_ranks, 1, most));
  if (!options.automatic && (spec.world_size == 0 || spec.world_size > most_ranks))
    return spaces_.refuse(out_of_bounds(spec, "world_size", spec.world_size, 1, most_ranks));
  if (const auto broken = find_broken_bound(spec.geometry, geometry_extent::as_far_as_known))
    return spaces_.refuse(
        {errc::invalid_argument, "namespace \"" + spec.name + "\": " + broken->where + " " + broken->what});
  return {};
}

result<void> shard_administration::add_namespace(const namespace_spec& spec, const namespace_options& options) {
  if (auto sound = check_bounds(spec, options); !sound)
    return sound;
  const auto id = spec.id();
  const auto& how = spaces_.options();
  std::uint32_t known_spaces = 0;
  for (std::uint32_t number = 0; number < spaces_.end(); ++number) {
    if (!spaces_.has(number))
      continue;
    ++known_spaces;
    auto& space = spaces_.at(number);
    const auto& known = space.spec();
    if (space.id() != id && known.name != spec.name)
      continue;
    if (removals_.contains(space.id()))
      return spaces_.refuse(
          {errc::busy, "namespace \"" + known.name + "\" is being removed; try again after its removal"});
    auto different = differences(known, spec);
    if (different.empty())
      different = differences(space.options(), options);
    if (!different.empty())
      return spaces_.refuse({errc::identity_mismatch, "namespace \"" + spec.name + "\" exists with other settings: " +
                                                          different + "; use another name, or the same settings"});
    if (space.id() == id) {
      space.share_with(options.origin);
      return {};
    }
  }
  if (known_spaces >= how.max_namespaces)
    return spaces_.refuse({errc::limit_exceeded, "namespace \"" + spec.name + "\" would exceed the limit of " +
                                                     std::to_string(how.max_namespaces) +
                                                     " namespaces; remove one, or raise registry.max_namespaces"});
  auto added =
      std::make_unique<key_space>(key_space::settings{spec, options, how.shard, how.shard_count, how.hash_seed,
                                                      how.change_feed, how.children_hold, how.memory, how.eviction});
  added->account();
  spaces_.add(std::move(added));
  return {};
}

result<void> shard_administration::add_rank(const namespace_id& id, rank_number rank, std::uint32_t slots,
                                            incarnation_number incarnation) {
  const auto number = spaces_.number_of(id);
  if (!number)
    return spaces_.refuse(number.error());
  auto& space = spaces_.at(*number);
  if (rank >= space.rank_limit())
    return spaces_.refuse({errc::out_of_range, "rank " + std::to_string(rank) + ": ranks of namespace \"" +
                                                   space.spec().name + "\" are below " +
                                                   std::to_string(space.rank_limit())});
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + space.spec().name + "\"";
  if (slots == 0)
    return spaces_.refuse({errc::invalid_argument, name + " cannot be registered without slots"});
  const bool renewed = incarnation != 0 && incarnation != space.incarnation_of(rank);
  if (renewed && space.is_retired(rank))
    space.forget_timed(rank);
  const auto info = space.info_of(rank);
  const auto known = info.slots;
  if (known != 0 && known != slots)
    return spaces_.refuse(
        {errc::identity_mismatch, name + " has " + std::to_string(known) + " slots, and cannot be registered with " +
                                      std::to_string(slots) + "; clear what is there under another name"});
  if (renewed && info.pages + info.reserved + info.withheld > 0)
    return spaces_.refuse({errc::busy, name + " has pages of an earlier registration; clear it first"});
  space.add_rank(rank, slots, incarnation);
  return {};
}

result<void> shard_administration::retire_rank(const namespace_id& id, rank_number rank, timestamp now) {
  const auto found = spaces_.find_rank(id, rank);
  if (!found)
    return spaces_.refuse(found.error());
  auto& space = found->keys;
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + space.spec().name + "\"";
  const auto held = space.info_of(rank);
  // An empty rank is not enough: two groups of engines that were given one namespace by mistake would take it from each
  // other as long as neither has saved anything.
  if (held.pages > 0 || !space.was_cleared(rank))
    return spaces_.refuse({errc::identity_mismatch,
                           name + " has " + std::to_string(held.slots) + " slots, " + std::to_string(held.pages) +
                               " of them with pages; other slots cannot be registered before it is cleared"});
  // Promises end at a known time, for which the new slots rest; a lease can be renewed.
  if (const auto leased = space.withheld_by_leases(rank); leased > 0)
    return spaces_.refuse({errc::busy, name + " has " + std::to_string(leased) +
                                           " slots whose keys are leased: release the leases, or try again when they "
                                           "have expired"});
  // From now on the client that registers the rank is its writer. No slot goes back yet: another shard may refuse, and
  // then the old allocator stays and would grant slots that are still being written or read.
  writes_.end_rank(found->number, rank, now);
  space.retire_rank(rank);
  return {};
}

result<void> shard_administration::begin_removal(const remove_namespace_request& request) {
  if (removals_.contains(request.space))
    return {};
  const auto found = spaces_.find_space(request.space);
  if (!found)
    return spaces_.refuse(found.error());
  const auto& [number, space] = *found;
  const auto leases = leases_.count_in(number);
  const auto reservations = writes_.count_in(number);
  if (!request.force && leases + reservations > 0)
    return spaces_.refuse({errc::busy, "namespace \"" + space.spec().name + "\" has " + std::to_string(leases) +
                                           " leases and " + std::to_string(reservations) +
                                           " reservations; wait until they end, or force the removal"});
  space.outbox().change(namespace_removed{request.space});
  space.outbox().end_changes();
  leases_.doom_space(number);
  writes_.doom_space(number);
  spaces_.hide(request.space);
  removals_.emplace(request.space, removal{number, 0});
  return {};
}

remove_namespace_reply shard_administration::go_on_removing(const namespace_id& id) {
  const auto found = removals_.find(id);
  if (found == removals_.end())
    return {false};
  auto& progress = found->second;
  auto& space = spaces_.at(progress.space);
  const auto most = spaces_.options().max_clear_looks;
  // Nothing is protected any more: the slots are removed with their slab.
  progress.from = space.clear(all_ranks, progress.from, most, coarse_never, erased_);
  space.release_due(coarse_never, most);
  if (!finish_removal(progress))
    return {true};
  removals_.erase(found);
  return {false};
}

bool shard_administration::finish_removal(const removal& what) {
  auto& space = spaces_.at(what.space);
  if (what.from < space.table().end() || space.withheld_slots() > 0 || leases_.count_in(what.space) > 0 ||
      writes_.count_in(what.space) > 0)
    return false;
  space.drain_into(left_over_);
  leases_.forget_space(what.space);
  evicted_ += space.evicted_keys(); // totals never decrease
  spaces_.remove(what.space);
  return true;
}

bool shard_administration::waits_for_slots(const namespace_id& id) const {
  const auto found = removals_.find(id);
  if (found == removals_.end())
    return false;
  const auto& [number, from] = found->second;
  const auto& space = spaces_.at(number);
  return from >= space.table().end() && space.withheld_slots() == 0 && leases_.count_in(number) == 0 &&
         writes_.count_in(number) > 0;
}

registry_outbox shard_administration::take_left_over() {
  return std::exchange(left_over_, {});
}

// -- queries ----------------------------------------------------------------------------------------------------------

result<reuse_reply> shard_administration::report_reuse(const reuse_request& request) const {
  const auto space = spaces_.number_of(request.space);
  if (!space)
    return spaces_.refuse(space.error());
  auto known = spaces_.at(*space).policy().knowledge();
  if (!known)
    return fail(errc::unsupported, "the eviction policy of this shard does not learn (registry.eviction)");
  return reuse_reply{known->clock, {known->counts.numbers()}};
}

result<void> shard_administration::learn_reuse(const learn_request& request) {
  const auto space = spaces_.number_of(request.space);
  if (!space)
    return spaces_.refuse(space.error());
  const auto counts = reuse_counts::of_numbers(request.counts.items);
  if (!counts)
    return spaces_.refuse({errc::invalid_argument, "not reuse counts: the number of values is wrong"});
  spaces_.at(*space).policy().learn_from(*counts);
  return {};
}

result<describe_reply> shard_administration::describe(const describe_request& request) const {
  describe_reply reply;
  spaces_.for_each([&](std::uint32_t number, const key_space& space) {
    if (removals_.contains(space.id()) || (!request.space.is_null() && request.space != space.id()))
      return;
    namespace_info info{space.spec(),
                        space.options(),
                        space.keys(),
                        space.complete_keys(),
                        space.evicted_keys(),
                        leases_.count_in(number),
                        0,
                        {},
                        space.lookups()};
    for (const auto rank : space.ranks()) {
      info.ranks.items.push_back(space.info_of(rank));
      info.reservations += info.ranks.items.back().reserved;
    }
    reply.spaces.push_back(std::move(info));
  });
  if (!request.space.is_null() && reply.spaces.empty())
    return tl::unexpected<error>(spaces_.number_of(request.space).error());
  return reply;
}

result<list_pages_reply> shard_administration::list_pages(const list_pages_request& request) const {
  const auto found = spaces_.find_rank(request.space, request.rank);
  if (!found)
    return tl::unexpected<error>(found.error());
  const auto& table = found->keys.table();
  list_pages_reply reply;
  reply.next = request.from;
  for (auto looks = spaces_.options().max_clear_looks;
       looks > 0 && reply.next < table.end() && reply.pages.size() < request.most; --looks, ++reply.next)
    if (const auto& entry = table.entry(reply.next); entry.in_use())
      if (const auto& cell = table.page(reply.next, request.rank); cell.live())
        reply.pages.items.push_back({entry.key, cell.where()});
  reply.more = reply.next < table.end();
  return reply;
}

result<key_reply> shard_administration::look_up(const key_request& request, timestamp now) {
  const auto number = spaces_.number_of(request.space);
  if (!number)
    return spaces_.refuse(number.error());
  const auto& space = spaces_.at(*number);
  const auto entry = space.table().find(request.key);
  if (entry == no_entry || space.table().entry(entry).ghost())
    return fail(errc::not_found, "no key " + to_string(request.key) + " in namespace \"" + space.spec().name + "\"");
  const auto& e = space.table().entry(entry);
  key_reply reply{space.table().parent(entry), e.children, e.leases, space.complete(entry), {}, {}};
  if (e.is_protected(spaces_.clock().now(now)))
    reply.protected_for = duration(spaces_.clock().begin(e.protected_until) - now);
  for (const auto rank : space.ranks())
    if (const auto page = writes_.page_of(space.table().page(entry, rank), rank))
      reply.pages.items.push_back(*page);
  return reply;
}

// -- erasing ----------------------------------------------------------------------------------------------------------

result<result_codes> shard_administration::erase(const erase_request& request, timestamp now) {
  const auto found = spaces_.find_keys(request.space, request.rank, request.keys.items, found_);
  if (!found)
    return spaces_.refuse(found.error());
  auto& space = found->keys;
  result_codes reply;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto entry = space.table().refresh(found_[i], request.keys[i]);
    std::uint64_t pages = 0;
    if (entry != no_entry)
      space.clear(request.rank, entry, 1, spaces_.clock().now(now), pages);
    erased_ += pages;
    reply.results.items.push_back(byte_of(pages > 0 ? errc::ok : errc::not_found));
  }
  return reply;
}

result<clear_reply> shard_administration::clear(const clear_request& request, timestamp now) {
  const auto number = spaces_.number_of(request.space);
  if (!number)
    return spaces_.refuse(number.error());
  auto& space = spaces_.at(*number);
  if (auto bad = spaces_.check_ranks(space, request.rank))
    return spaces_.refuse(std::move(*bad));
  space.note_cleared(request.rank);
  clear_reply reply;
  reply.next =
      space.clear(request.rank, request.from, spaces_.options().max_clear_looks, spaces_.clock().now(now), reply.pages);
  reply.more = reply.next < space.table().end();
  erased_ += reply.pages;
  return reply;
}

} // namespace troupe
