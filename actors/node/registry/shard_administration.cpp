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
  append_difference(out, "group_of", ours.group_of, theirs.group_of);
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
  const auto most = std::min<std::uint32_t>(namespaces_.options().max_ranks, most_ranks);
  if (options.automatic && spec.world_size != 0)
    return namespaces_.refuse(
        {errc::invalid_argument, "namespace \"" + spec.name + "\": world_size is " + std::to_string(spec.world_size) +
                                     ", but must be 0 if it follows from the ranks that register"});
  if (options.automatic && (options.max_ranks == 0 || options.max_ranks > most))
    return namespaces_.refuse(out_of_bounds(spec, "max_ranks", options.max_ranks, 1, most));
  if (!options.automatic && (spec.world_size == 0 || spec.world_size > most_ranks))
    return namespaces_.refuse(out_of_bounds(spec, "world_size", spec.world_size, 1, most_ranks));
  if (const auto broken = find_broken_bound(spec.geometry, geometry_extent::as_far_as_known))
    return namespaces_.refuse(
        {errc::invalid_argument, "namespace \"" + spec.name + "\": " + broken->where + " " + broken->what});
  return {};
}

result<void> shard_administration::add_namespace(const namespace_spec& spec, const namespace_options& options) {
  if (auto sound = check_bounds(spec, options); !sound)
    return sound;
  const auto id = spec.id();
  const auto& how = namespaces_.options();
  std::uint32_t known_namespaces = 0;
  for (std::uint32_t number = 0; number < namespaces_.end(); ++number) {
    if (!namespaces_.has(number))
      continue;
    ++known_namespaces;
    auto& ns = namespaces_.at(number);
    const auto& known = ns.spec();
    if (ns.id() != id && known.name != spec.name)
      continue;
    if (removals_.contains(ns.id()))
      return namespaces_.refuse(
          {errc::busy, "namespace \"" + known.name + "\" is being removed; try again after its removal"});
    auto different = differences(known, spec);
    if (different.empty())
      different = differences(ns.options(), options);
    if (!different.empty())
      return namespaces_.refuse({errc::identity_mismatch, "namespace \"" + spec.name +
                                                              "\" exists with other settings: " + different +
                                                              "; use another name, or the same settings"});
    if (ns.id() == id) {
      ns.share_with(options.origin);
      return {};
    }
  }
  if (known_namespaces >= how.max_namespaces)
    return namespaces_.refuse({errc::limit_exceeded, "namespace \"" + spec.name + "\" would exceed the limit of " +
                                                         std::to_string(how.max_namespaces) +
                                                         " namespaces; remove one, or raise registry.max_namespaces"});
  auto added = std::make_unique<key_space>(key_space::settings{.spec = spec,
                                                               .options = options,
                                                               .shard = how.shard,
                                                               .shard_count = how.shard_count,
                                                               .hash_seed = how.hash_seed,
                                                               .change_feed = how.change_feed,
                                                               .describes = how.events != nullptr,
                                                               .children_hold = how.children_hold,
                                                               .memory = how.memory,
                                                               .eviction = how.eviction,
                                                               .history = how.history});
  added->account();
  namespaces_.add(std::move(added));
  return {};
}

result<void> shard_administration::add_rank(const namespace_id& id, rank_number rank, std::uint32_t slots,
                                            incarnation_number incarnation) {
  const auto number = namespaces_.number_of(id);
  if (!number)
    return namespaces_.refuse(number.error());
  auto& ns = namespaces_.at(*number);
  if (rank >= ns.rank_limit())
    return namespaces_.refuse({errc::out_of_range, "rank " + std::to_string(rank) + ": ranks of namespace \"" +
                                                       ns.spec().name + "\" are below " +
                                                       std::to_string(ns.rank_limit())});
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + ns.spec().name + "\"";
  if (slots == 0)
    return namespaces_.refuse({errc::invalid_argument, name + " cannot be registered without slots"});
  const bool renewed = incarnation != 0 && incarnation != ns.incarnation_of(rank);
  if (renewed && ns.is_retired(rank))
    ns.forget_timed(rank);
  const auto info = ns.info_of(rank);
  const auto known = info.slots;
  if (known != 0 && known != slots)
    return namespaces_.refuse(
        {errc::identity_mismatch, name + " has " + std::to_string(known) + " slots, and cannot be registered with " +
                                      std::to_string(slots) + "; clear what is there under another name"});
  if (renewed && info.pages + info.reserved + info.withheld > 0)
    return namespaces_.refuse({errc::busy, name + " has pages of an earlier registration; clear it first"});
  ns.add_rank(rank, slots, incarnation);
  return {};
}

result<void> shard_administration::retire_rank(const namespace_id& id, rank_number rank, timestamp now) {
  const auto found = namespaces_.find_rank(id, rank);
  if (!found)
    return namespaces_.refuse(found.error());
  auto& ns = found->keys;
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + ns.spec().name + "\"";
  const auto held = ns.info_of(rank);
  // An empty rank is not enough: two groups of engines that were given one namespace by mistake would take it from each
  // other as long as neither has saved anything.
  if (held.pages > 0 || !ns.was_cleared(rank))
    return namespaces_.refuse({errc::identity_mismatch,
                               name + " has " + std::to_string(held.slots) + " slots, " + std::to_string(held.pages) +
                                   " of them with pages; other slots cannot be registered before it is cleared"});
  // Promises end at a known time, for which the new slots rest; a lease can be renewed.
  if (const auto leased = ns.withheld_by_leases(rank); leased > 0)
    return namespaces_.refuse(
        {errc::busy, name + " has " + std::to_string(leased) +
                         " slots whose keys are leased: release the leases, or try again when they "
                         "have expired"});
  // From now on the client that registers the rank is its writer. No slot goes back yet: another shard may refuse, and
  // then the old allocator stays and would grant slots that are still being written or read.
  writes_.end_rank(found->number, rank, now);
  ns.retire_rank(rank);
  return {};
}

result<void> shard_administration::begin_removal(const remove_namespace_request& request) {
  if (removals_.contains(request.ns))
    return {};
  const auto found = namespaces_.find_namespace(request.ns);
  if (!found)
    return namespaces_.refuse(found.error());
  const auto& [number, ns] = *found;
  const auto leases = leases_.count_in(number);
  const auto reservations = writes_.count_in(number);
  if (!request.force && leases + reservations > 0)
    return namespaces_.refuse(namespace_in_use(ns.spec().name, leases, reservations));
  ns.outbox().change(namespace_removed{request.ns});
  ns.outbox().end_changes();
  leases_.doom_namespace(number);
  writes_.doom_namespace(number);
  namespaces_.hide(request.ns);
  removals_.emplace(request.ns, removal{number, 0});
  return {};
}

remove_namespace_reply shard_administration::go_on_removing(const namespace_id& id) {
  const auto found = removals_.find(id);
  if (found == removals_.end())
    return {false};
  auto& progress = found->second;
  auto& ns = namespaces_.at(progress.ns);
  const auto most = namespaces_.options().max_clear_looks;
  // Nothing is protected any more: the slots are removed with their slab.
  progress.from = ns.clear(all_ranks, progress.from, most, coarse_never, erased_);
  ns.release_due(coarse_never, most);
  if (!finish_removal(progress))
    return {true};
  removals_.erase(found);
  return {false};
}

bool shard_administration::finish_removal(const removal& what) {
  auto& ns = namespaces_.at(what.ns);
  if (what.from < ns.table().end() || ns.withheld_slots() > 0 || leases_.count_in(what.ns) > 0 ||
      writes_.count_in(what.ns) > 0)
    return false;
  if (auto* const described = ns.described())
    described->add(events::namespace_ended{});
  ns.drain_into(left_over_);
  leases_.forget_namespace(what.ns);
  evicted_ += ns.evicted_keys(); // totals never decrease
  namespaces_.remove(what.ns);
  return true;
}

bool shard_administration::waits_for_slots(const namespace_id& id) const {
  const auto found = removals_.find(id);
  if (found == removals_.end())
    return false;
  const auto& [number, from] = found->second;
  const auto& ns = namespaces_.at(number);
  return from >= ns.table().end() && ns.withheld_slots() == 0 && leases_.count_in(number) == 0 &&
         writes_.count_in(number) > 0;
}

registry_outbox shard_administration::take_left_over() {
  return std::exchange(left_over_, {});
}

// -- queries ----------------------------------------------------------------------------------------------------------

result<reuse_reply> shard_administration::report_reuse(const reuse_request& request) const {
  const auto ns = namespaces_.number_of(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto known = namespaces_.at(*ns).policy().knowledge();
  if (!known)
    return fail(errc::unsupported, "the eviction policy of this shard does not learn (registry.eviction)");
  return reuse_reply{known->clock, {known->counts.numbers()}};
}

result<void> shard_administration::learn_reuse(const learn_request& request) {
  const auto ns = namespaces_.number_of(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  const auto counts = reuse_counts::of_numbers(request.counts.items);
  if (!counts)
    return namespaces_.refuse({errc::invalid_argument, "not reuse counts: the number of values is wrong"});
  namespaces_.at(*ns).policy().learn_from(*counts);
  return {};
}

result<describe_reply> shard_administration::describe(const describe_request& request) const {
  describe_reply reply;
  namespaces_.for_each([&](std::uint32_t number, const key_space& ns) {
    if (removals_.contains(ns.id()) || (!request.ns.is_null() && request.ns != ns.id()))
      return;
    namespace_info info{.spec = ns.spec(),
                        .options = ns.options(),
                        .keys = ns.keys(),
                        .complete_keys = ns.complete_keys(),
                        .evicted_keys = ns.evicted_keys(),
                        .leases = leases_.count_in(number),
                        .reservations = 0,
                        .ranks = {},
                        .lookups = ns.lookups()};
    for (const auto rank : ns.ranks()) {
      info.ranks.items.push_back(ns.info_of(rank));
      info.reservations += info.ranks.items.back().reserved;
    }
    reply.namespaces.push_back(std::move(info));
  });
  if (!request.ns.is_null() && reply.namespaces.empty())
    return tl::unexpected<error>(namespaces_.number_of(request.ns).error());
  return reply;
}

result<list_pages_reply> shard_administration::list_pages(const list_pages_request& request) const {
  const auto found = namespaces_.find_rank(request.ns, request.rank);
  if (!found)
    return tl::unexpected<error>(found.error());
  const auto& table = found->keys.table();
  list_pages_reply reply;
  reply.next = request.from;
  for (auto looks = namespaces_.options().max_clear_looks;
       looks > 0 && reply.next < table.end() && reply.pages.size() < request.most; --looks, ++reply.next)
    if (const auto& entry = table.entry(reply.next); entry.in_use())
      if (const auto& cell = table.page(reply.next, request.rank); cell.live())
        reply.pages.items.push_back({entry.key, cell.where()});
  reply.more = reply.next < table.end();
  return reply;
}

result<key_reply> shard_administration::look_up(const key_request& request, timestamp now) {
  const auto number = namespaces_.number_of(request.ns);
  if (!number)
    return namespaces_.refuse(number.error());
  const auto& ns = namespaces_.at(*number);
  const auto entry = ns.table().find(request.key);
  if (entry == no_entry || ns.table().entry(entry).ghost())
    return fail(errc::not_found, "no key " + to_string(request.key) + " in namespace \"" + ns.spec().name + "\"");
  const auto& e = ns.table().entry(entry);
  key_reply reply{ns.table().parent(entry), e.children, e.leases, ns.complete(entry), {}, {}};
  if (e.is_protected(namespaces_.clock().now(now)))
    reply.protected_for = duration(namespaces_.clock().begin(e.protected_until) - now);
  for (const auto rank : ns.ranks())
    if (const auto page = writes_.page_of(ns.table().page(entry, rank), rank))
      reply.pages.items.push_back(*page);
  return reply;
}

// -- erasing ----------------------------------------------------------------------------------------------------------

result<result_codes> shard_administration::erase(const erase_request& request, timestamp now) {
  const auto found = namespaces_.find_keys(request.ns, request.rank, request.keys.items, found_);
  if (!found)
    return namespaces_.refuse(found.error());
  auto& ns = found->keys;
  namespaces_.advance_history(now);
  result_codes reply;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto entry = ns.table().refresh(found_[i], request.keys[i]);
    std::uint64_t pages = 0;
    if (entry != no_entry)
      ns.clear(request.rank, entry, 1, namespaces_.clock().now(now), pages);
    erased_ += pages;
    reply.results.items.push_back(byte_of(pages > 0 ? errc::ok : errc::not_found));
  }
  return reply;
}

result<clear_reply> shard_administration::clear(const clear_request& request, timestamp now) {
  const auto number = namespaces_.number_of(request.ns);
  if (!number)
    return namespaces_.refuse(number.error());
  auto& ns = namespaces_.at(*number);
  if (auto bad = namespaces_.check_ranks(ns, request.rank))
    return namespaces_.refuse(std::move(*bad));
  ns.note_cleared(request.rank);
  namespaces_.advance_history(now);
  clear_reply reply;
  reply.next = ns.clear(request.rank, request.from, namespaces_.options().max_clear_looks, namespaces_.clock().now(now),
                        reply.pages);
  reply.more = reply.next < ns.table().end();
  erased_ += reply.pages;
  return reply;
}

} // namespace troupe
